"""Costs of choices: seconds of the micro-batches of a choice, and which choices there are not."""
from lingpipe.pipeline.planning.choice_costs import ChoiceCosts
from lingpipe.pipeline.planning.search_space import Choice
from tests.support.planned_chains import CHAIN, made
from tests.support.random_candidates import BATCH_SIZE, subject_of


def costs_and_choice(**pipeline):
    """Costs with a second forward and two backward for each example, and the choice of Params."""
    def seconds_of(elements):
        num_examples = next(iter(elements[0].writes.values())).spec.shape[0]
        return [(num_examples, 2 * num_examples) for _ in elements]

    subject = subject_of(made(*CHAIN), seconds_of=seconds_of, **pipeline)
    return ChoiceCosts(subject), Choice.of(subject.params)


def test_layers_are_timed_for_a_micro_batch_and_params_say_so():
    costs, choice = costs_and_choice(num_cells=2, num_micro_batches=4)
    size, num_layers = BATCH_SIZE // 4, len(costs.elements(choice))
    assert list(costs.seconds(choice)) == [(size, 2 * size)] * num_layers
    assert costs.work_s(choice.num_parts) == 3 * BATCH_SIZE * num_layers
    params = costs.params_of(choice, limit=1e6)
    assert params.layer_seconds == (3 * size,) * num_layers
    assert params.device_bytes == 1e6


def test_a_choice_must_divide_the_batch_and_find_room_for_what_is_trained():
    costs, choice = costs_and_choice(num_cells=2, num_micro_batches=4)
    assert costs.is_possible(choice)
    other_costs, three_parts = costs_and_choice(num_cells=2, num_micro_batches=3)
    assert not other_costs.is_possible(three_parts)
    state_bytes = sum(layer.state_bytes for layer in costs.state(choice))
    assert not costs.is_too_big(choice, state_bytes / 2)
    assert costs.is_too_big(choice, state_bytes / 2 - 1)
    assert not costs.is_too_big(choice, None)
