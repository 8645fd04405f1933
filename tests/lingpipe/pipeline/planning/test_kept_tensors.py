"""Kept tensors: the sets that are best, against all sets of small graphs, and by hand."""

import itertools
import random

import pytest

from lingpipe.pipeline.planning.kept_tensors import cell_graph, fewest_repeats
from lingpipe.pricing import Made, Recipe, RecipeOp
from tests.support.planned_chains import CHAIN, IMAGE, WIDE, plan_of


def chain_graph():
    """The graph of the layers a, b (with its rectifier) and c: products of 8, 16 and 16 terms."""
    plan = plan_of(*CHAIN, num_micro_batches=4)
    elements = plan.elements[:3]
    recipes = plan.forecast.memory.recipes[:3]
    return cell_graph(elements, recipes, plan.forecast.times.forward[:3])


def test_what_is_needed_takes_the_bytes_of_a_cell_that_recomputes_nothing():
    graph = chain_graph()
    kept = graph.keeping(graph.all_needed)
    assert (kept.held, kept.working, kept.repeat_cost) == (IMAGE + WIDE + WIDE, 0, 0)
    assert {path for path, _ in kept.names} == {'model/a', 'model/b'}


def test_keeping_nothing_takes_the_bytes_of_a_cell_that_recomputes_all():
    kept = chain_graph().keeping(frozenset())
    assert (kept.held, kept.working, kept.names) == (IMAGE, WIDE + WIDE, frozenset())


def test_a_tensor_that_the_backward_does_not_read_is_not_made_again():
    """The output of c is read by later cells alone: its product does not run again."""
    graph = chain_graph()
    times = plan_of(*CHAIN, num_micro_batches=4).forecast.times.forward
    a_and_b = sum(times[:2])
    assert graph.keeping(frozenset()).repeat_cost == pytest.approx(a_and_b)


def test_the_product_that_takes_least_is_repeated_first():
    """a has half the terms of b, and both outputs the same bytes."""
    graph = chain_graph()
    least = graph.keeping(graph.all_needed).needed_bytes(4) - 1
    kept, = fewest_repeats([graph], [4], lambda kept: kept[0].needed_bytes(4) <= least)
    assert {path for path, _ in kept.names} == {'model/b'}


def test_nothing_fits_a_device_without_bytes():
    assert fewest_repeats([chain_graph()], [4], lambda kept: False) is None


def random_recipes(rng):
    """Recipes of the layers a, b and c, with random ops between what they read and write."""
    recipes = []
    for _ in range(3):
        sources = [(0, 0)]
        ops = []
        for i in range(rng.randint(1, 3)):
            inputs = tuple(rng.sample(sources, rng.randint(1, len(sources))))
            ops.append(RecipeOp(rng.choice([0, 0.1, 0.5, 1]), inputs,
                                ((f'op{i}', rng.choice([1, 4, 10])),)))
            sources.append(Made(i, 0))
        needed = tuple(rng.sample(sources, rng.randint(1, len(sources))))
        recipes.append(Recipe(tuple(ops), needed, {(0, 0): sources[-1]}))
    return recipes


def test_no_set_of_tensors_costs_less_for_any_price_of_a_byte():
    rng = random.Random(7)
    elements = plan_of(*CHAIN, num_micro_batches=4).elements[:3]
    for _ in range(100):
        graph = cell_graph(elements, random_recipes(rng), [rng.choice([1, 3])] * 3)
        num_live, price = rng.randint(1, 4), rng.choice([0.001, 0.05, 0.2, 10.0])
        made = [i for i, tensor in enumerate(graph.tensors) if tensor.op >= 0]

        def cost(kept):
            found = graph.keeping(frozenset(kept))   # noqa: B023
            return found.repeat_cost + price * found.needed_bytes(num_live)   # noqa: B023

        best = min(cost(some) for n in range(len(made) + 1)
                   for some in itertools.combinations(made, n))
        assert cost(graph.cheapest(price, num_live)) == pytest.approx(best)


def test_more_bytes_never_spend_more_time_again():
    rng = random.Random(8)
    elements = plan_of(*CHAIN, num_micro_batches=4).elements[:3]
    for _ in range(50):
        graph = cell_graph(elements, random_recipes(rng), [1, 2, 3])
        most = graph.keeping(graph.all_needed).needed_bytes(3)
        costs = []
        for limit in range(most + 1):
            found = fewest_repeats([graph], [3], lambda kept: kept[0].needed_bytes(3) <= limit)   # noqa: B023
            if found is not None:
                assert found[0].needed_bytes(3) <= limit
                costs.append(found[0].repeat_cost)
        assert costs[-1] == 0
        assert costs[0] == max(costs)
