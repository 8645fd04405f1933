"""Beam search, step by step, on probabilities that are given by hand."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.layers.nested import NestedMap
from lingpipe.pipeline.decoding.sampling import SamplingParams
from lingpipe.pipeline.decoding.search import advance, initial_state
from lingpipe.pipeline.decoding.search_params import SearchParams

START, END, OTHER_END = 1, 2, 9
LIMIT = 4

# For two hypotheses of one sentence: the best next ids and their probabilities, the best first.
FIRST = ([[[3, 4, 5, END]] * 2], [[[.4, .3, .2, .1]] * 2])
SECOND = ([[[END, 5, 6, 7], [6, END, 3, 5]]], [[[.5, .3, .1, .1], [.9, .05, .03, .02]]])


def search(alpha: float = 0., beam_size: int = 2) -> SearchParams:
    return SearchParams(beam_size=beam_size, alpha=alpha, max_length=LIMIT)


def candidates(ids, probabilities) -> NestedMap:
    """What a softmax gives whose logits are the logarithms of twice the probabilities."""
    ids, probabilities = np.array(ids, np.int32), np.array(probabilities, np.float32)
    return NestedMap(ids=tf.constant(ids), values=tf.constant(np.log(2 * probabilities)),
                     log_sum=tf.fill(ids.shape[:2], np.log(np.float32(2))))


def after(*steps, params: SearchParams, limits=(LIMIT,), ends=(END,), num_given=0) -> NestedMap:
    """The state after some steps."""
    limits = tf.constant(limits)
    state = initial_state(limits, START, params)
    for step in steps:
        state = advance(state, candidates(*step), limits, ends, params, num_given=num_given)
    return state


def test_all_hypotheses_begin_with_the_start():
    assert after(params=search()).next.numpy().tolist() == [[START, START]]


def test_the_first_ids_are_taken_from_one_hypothesis():
    """All hypotheses are equal before the first id: the best id would be taken twice."""
    state = after(FIRST, params=search())
    assert state.next.numpy().tolist() == [[3, 4]]
    np.testing.assert_allclose(state.scores, np.log([[.4, .3]]), rtol=1e-5)


def test_the_best_unfinished_hypotheses_go_on():
    state = after(FIRST, SECOND, params=search())
    assert state.ids.numpy().tolist() == [[[4, 6], [3, 5]]]
    np.testing.assert_allclose(state.scores, np.log([[.3 * .9, .4 * .3]]), rtol=1e-5)


def test_parents_are_the_hypotheses_that_the_next_ids_continue():
    state = after(FIRST, SECOND, params=search())
    assert state.parents.numpy().tolist() == [[1, 0]]
    assert state.next.numpy().tolist() == [[6, 5]]


def test_the_best_finished_hypothesis_is_kept():
    first, second = after(FIRST, params=search()), after(FIRST, SECOND, params=search())
    assert first.best_ids.numpy().tolist() == [[END]]
    assert second.best_ids.numpy().tolist() == [[3, END]]
    np.testing.assert_allclose([*first.best_score, *second.best_score], np.log([.1, .4 * .5]),
                               rtol=1e-5)


def test_a_worse_end_does_not_replace_a_better_one():
    late = ([[[5, END, 6, 7]] * 2], [[[.4, .3, .2, .1]] * 2])
    state = after(FIRST, SECOND, late, params=search())
    assert state.best_ids.numpy().tolist() == [[3, END, END]]


@pytest.mark.parametrize(('alpha', 'is_going', 'best_ids'), [
    (0., False, [END, END]),   # log .5 against log .36, and log .45 cannot become more
    (3., True, [3, END]),      # log .5 against log .36 / (7 / 6)^3
])
def test_length_normalisation_favours_the_longer_result(alpha, is_going, best_ids):
    first = ([[[END, 3, 4, 5]] * 2], [[[.5, .45, .03, .02]] * 2])
    second = ([[[END, 5, 6, 7]] * 2], [[[.8, .1, .06, .04]] * 2])
    assert bool(after(first, params=search(alpha)).is_going) == is_going
    state = after(first, second, params=search(alpha))
    assert state.best_ids.numpy().tolist() == [best_ids]


def test_greedy_ends_with_the_first_end():
    params = search(beam_size=1)
    going = after(([[[3]]], [[[.4]]]), params=params)
    over = after(([[[3]]], [[[.4]]]), ([[[END]]], [[[.6]]]), params=params)
    assert bool(going.is_going) and not bool(over.is_going)
    assert over.best_ids.numpy().tolist() == [[3, END]]


def test_a_sentence_that_reaches_its_limit_takes_its_best_unfinished_hypothesis():
    no_end = ([[[3, 4, 5, 6]] * 2] * 2, [[[.4, .3, .2, .1]] * 2] * 2)
    state = after(no_end, params=search(), limits=(1, LIMIT))
    assert state.best_ids.numpy()[0].tolist() == [3]
    np.testing.assert_allclose(state.best_score, [np.log(.4), -np.inf], rtol=1e-5)


def test_a_sentence_at_its_limit_does_not_stop_the_others():
    no_end = ([[[3, 4, 5, 6]] * 2] * 2, [[[.4, .3, .2, .1]] * 2] * 2)
    state = after(no_end, params=search(), limits=(1, LIMIT))
    assert bool(state.is_going)
    assert np.isfinite(state.scores).tolist() == [[False, False], [True, True]]


def test_a_sentence_of_limit_0_is_over_from_the_start():
    assert not bool(after(params=search(), limits=(0,)).is_going)


@pytest.mark.parametrize(('beam_size', 'ids', 'said', 'is_finished'), [
    (1, [END, 3, 4, 5, 6, 7], [END], True),
    (1, [3, END, 4, 5, 6, 7], [3], False),
    (2, [3, 4, 5, END, 6, 7], [3, 4], True),
    (2, [3, 4, 5, 6, END, 7], [3, 4], False),
])
def test_of_more_candidates_than_count_only_the_best_continue_or_finish(
        beam_size, ids, said, is_finished):
    """With a penalty on repetition all ids are candidates.

    Any end then finished a hypothesis, however unlikely it was, and a greedy search never said it.
    """
    step = ([[ids] * beam_size], [[[.3, .25, .2, .15, .07, .03]] * beam_size])
    state = after(step, params=SamplingParams(beam_size=beam_size, repetition_penalty=1.2))
    assert state.next.numpy().tolist() == [said]
    assert (float(state.best_score[0]) > -np.inf) == is_finished


@pytest.mark.parametrize(('probabilities', 'best_ids'), [
    ([.3, .25, .2, .1, .1, .05], [END]), ([.25, .3, .2, .1, .1, .05], [OTHER_END])])
def test_any_of_several_ends_finishes_a_hypothesis(probabilities, best_ids):
    """The two best that do not end go on, although two ends are better than both."""
    step = ([[[END, OTHER_END, 3, 4, 5, 6]] * 2], [[probabilities] * 2])
    first, second = (after(*[step] * num_steps, params=search(alpha=3.), ends=(END, OTHER_END))
                     for num_steps in (1, 2))
    assert first.next.numpy().tolist() == [[3, 4]]
    assert first.best_ids.numpy().tolist() == [best_ids]
    np.testing.assert_allclose(first.best_score, np.log([.3]), rtol=1e-5)
    assert second.best_ids.numpy().tolist() == [[*best_ids, END]]   # padded with the first end


@pytest.mark.parametrize('beam_size', [1, 2])
def test_an_end_that_is_given_ends_nothing(beam_size):
    given = ([[[END]] * beam_size], [[[1.]] * beam_size])
    step = ([[[END, 3, 4, 5]] * beam_size], [[[.4, .3, .2, .1]] * beam_size])
    state = after(given, params=search(beam_size=beam_size), num_given=1)
    assert state.next.numpy()[0, 0] == END and state.best_score.numpy() == [-np.inf]
    state = after(given, step, params=search(beam_size=beam_size), num_given=1)
    assert state.best_ids.numpy().tolist() == [[END, END]]
    np.testing.assert_allclose(state.best_score, np.log([.4]), rtol=1e-5)
