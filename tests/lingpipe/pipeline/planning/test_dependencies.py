"""Dependencies: what a slot waits for."""

from lingpipe.pipeline.planning.dependencies import chain, dependency_graph
from lingpipe.pipeline.planning.schedule import Slot
from lingpipe.pipeline.planning.schedules import make_schedule


def test_dependencies_follow_skip_connections_both_ways():
    schedule = make_schedule('gpipe', 4, 2, backward_cells={1, 2, 3})
    edges = {(0, 1), (1, 2), (2, 3), (0, 2), (1, 3)}
    graph = dependency_graph(schedule, edges)
    assert graph[Slot('F', 0, 1)] == ()
    assert graph[Slot('F', 2, 1)] == (Slot('F', 0, 1), Slot('F', 1, 1))
    assert graph[Slot('B', 3, 1)] == (Slot('F', 1, 1), Slot('F', 2, 1))
    assert graph[Slot('B', 1, 1)] == (Slot('F', 1, 1), Slot('B', 2, 1), Slot('B', 3, 1))
    assert Slot('B', 0, 1) not in graph
    assert dependency_graph(schedule)[Slot('B', 2, 1)] == (Slot('F', 2, 1), Slot('B', 3, 1))


def test_the_edges_of_a_chain_join_neighbours():
    assert chain(4) == {(0, 1), (1, 2), (2, 3)}
