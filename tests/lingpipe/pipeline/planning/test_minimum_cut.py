"""The minimum cut against all cuts of small graphs."""

import itertools
import random

from lingpipe.pipeline.planning.minimum_cut import INFINITE, minimum_cut


def capacity(arcs, side):
    return sum(size for tail, head, size in arcs if tail in side and head not in side)


def test_no_cut_of_a_small_graph_costs_less_and_none_that_costs_the_same_has_fewer_nodes():
    rng = random.Random(3)
    for _ in range(300):
        num_nodes = rng.randint(2, 7)
        arcs = [(tail, head, rng.choice([0, 1, 2, 5, INFINITE]))
                for tail, head in itertools.permutations(range(num_nodes), 2)
                if rng.random() < 0.4]
        sides = [{0, *some} for n in range(num_nodes - 1)
                 for some in itertools.combinations(range(1, num_nodes - 1), n)]
        best = min((capacity(arcs, side), len(side)) for side in sides)
        found = minimum_cut(num_nodes, arcs, 0, num_nodes - 1)
        assert (capacity(arcs, found), len(found)) == best, arcs
