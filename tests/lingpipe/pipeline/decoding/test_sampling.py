"""Sampling: which candidates are left, against NumPy."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.hyperparams import ParamsError
from lingpipe.layers.nested import NestedMap
from lingpipe.pipeline.decoding.sampling import SamplingParams, narrowed

LOGITS = np.log(np.array([.05, .4, .2, .05, .3], np.float32))


def narrow(chances: Any = 0., written: Any = (), prompts: Any = (), position: int = 0,
           **fields: Any) -> NestedMap:
    """What is left for one sentence with one hypothesis, for each of the chances."""
    chances = np.reshape(np.asarray(chances, np.float32), [-1, 1])
    n = len(chances)
    values, ids = tf.math.top_k(np.broadcast_to(LOGITS, [n, 1, 5]), 5)
    candidates = NestedMap(values=values, ids=ids, log_sum=tf.zeros([n, 1]))
    state = NestedMap(position=tf.constant(position),
                      ids=tf.constant(np.broadcast_to(np.array(written, np.int32),
                                                      [n, 1, len(written)])))
    given = NestedMap(prompts=tf.constant(np.broadcast_to(np.array(prompts, np.int32),
                                                          [n, len(prompts)])),
                      chances=tf.constant(np.tile(chances, [1, position + 1])),
                      starts=tf.zeros([n], tf.int32))
    return narrowed(candidates, state, given, SamplingParams(beam_size=1, **fields))


@pytest.mark.parametrize('fields, shares', [
    ({'temperature': 1.}, [.05, .4, .2, .05, .3]),
    ({'temperature': .5}, np.array([.0025, .16, .04, .0025, .09]) / .295),
    ({'temperature': 1., 'top_k': 2}, [0, 4 / 7, 0, 0, 3 / 7]),
    ({'temperature': 1., 'top_p': .75}, [0, 4 / 9, 2 / 9, 0, 3 / 9]),
    ({'temperature': 1., 'top_p': .01}, [0, 1, 0, 0, 0])])
def test_ids_are_drawn_as_often_as_they_are_likely(fields: Any, shares: Any) -> None:
    chances = (np.arange(1000) + 0.5) / 1000
    ids = narrow(chances, **fields)['ids'].numpy()
    assert ids.shape == (1000, 1, 1)
    np.testing.assert_allclose(np.bincount(ids.ravel(), minlength=5) / 1000, shares, atol=2e-3)


def test_ids_that_were_written_before_are_less_likely() -> None:
    left = narrow(written=[1, 1, 3], repetition_penalty=2.)
    logits = np.where(np.isin(np.arange(5), [1, 3]), 2 * LOGITS, LOGITS)   # All are negative.
    np.testing.assert_array_equal(left['ids'][0, 0], np.argsort(-logits, kind='stable'))
    np.testing.assert_allclose(left['log_sum'][0, 0], np.log(np.sum(np.exp(logits))), rtol=1e-5)


def test_the_ids_of_a_prompt_are_certain() -> None:
    for position, expected in enumerate([3, 0, 1]):   # The best id is 1.
        left = narrow(prompts=[3, 0, -1], position=position)
        assert int(left['ids'][0, 0, 0]) == expected
        is_certain = float(left['values'][0, 0, 0] - left['log_sum'][0, 0]) == 0
        assert is_certain == (position < 2)


def test_fields_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ParamsError, match='beam_size=1, or temperature=0'):
        SamplingParams(temperature=1.).validate()
    with pytest.raises(ParamsError, match='nothing is drawn; set temperature=1'):
        SamplingParams(top_k=3).validate()
