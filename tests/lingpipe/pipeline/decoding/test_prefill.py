"""Prefill: what follows prompts does not depend on how many of their ids are read at once."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.decoding import prefill
from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.sampling import SamplingParams
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams

V, D, START, END, LIMIT = 20, 8, 1, 2, 12
PROMPTS = np.array([[5, 6, 7, 8, 9, -1, -1], [9, 8, 7, 6, 5, 4, 3], [4, 4, 4, 4, 4, 4, -1],
                    [-1] * 7, [7, 7, END, 5, -1, -1, -1]])
LIMITS = [LIMIT, LIMIT, 9, 4, LIMIT]


@functools.cache
def program() -> Program:
    """Attention, experts and attention again in 2 cells, with their initial weights."""
    attention = layers.GroupedQueryAttention.Params(input_dim=D, num_heads=4, num_groups=2)
    experts = layers.MixtureOfExperts.Params(input_dim=D, hidden_dim=6, num_experts=3,
                                             num_chosen=2)
    model = layers.Sequential.Params(name='model', layers=(
        layers.Embedding.Params(name='embedding', vocab_size=V, dim=D, reads={'ids': 'target'}),
        layers.PreNorm.Params(name='attention_0', dim=D, body=attention),
        layers.PreNorm.Params(name='ffn_0', dim=D, body=experts),
        layers.PreNorm.Params(name='attention_1', dim=D, body=attention.copy()),
        layers.Logits.Params(name='softmax', input_dim=D, vocab_size=V, writes='logits'),
        layers.CrossEntropyLoss.Params(
            name='loss', reads={'x': 'logits', 'labels': 'label'}))).instantiate('model')
    spec = {'target': tf.TensorSpec([2, 4], tf.int32), 'label': tf.TensorSpec([2, 4], tf.int32),
            'weight': tf.TensorSpec([2, 4])}
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=0.1))
    return Program(model, spec, PipelineParams(num_cells=2, layers_per_cell=(3, 3)),
                   learner.instantiate(), devices=['/device:CPU:0', '/device:CPU:1'],
                   seed=3)


@functools.cache
def decoded(start: int, prefill_size: int, **search: Any) -> tuple[np.ndarray, np.ndarray]:
    """The ids and scores that follow the prompts."""
    chances = np.random.default_rng(0).random([5, LIMIT])
    params = SamplingParams(max_length=LIMIT, prefill=prefill_size, **search)
    return Decoder(program(), params, start, END).decode(
        [SentenceGroup({}, LIMITS, PROMPTS, chances)])[0]


def test_prompts_read_at_once_have_the_ids_and_scores_of_prompts_read_one_by_one() -> None:
    for search, size in (
            ({'beam_size': 2}, 128),
            ({'beam_size': 1, 'temperature': 2., 'repetition_penalty': 1.5}, 3)):
        (ids, scores), (expected_ids, expected_scores) = (
            decoded(START, prefill_size, **search) for prefill_size in (size, 0))
        np.testing.assert_array_equal(ids, expected_ids, err_msg=str(search))
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)


@pytest.mark.parametrize('prefill_size', [0, 3])
def test_the_first_id_of_each_prompt_takes_the_place_of_a_start(prefill_size: int) -> None:
    firsts = [START, 9, START, 9, 9]
    params = SamplingParams(max_length=LIMIT, prefill=prefill_size, beam_size=2)
    with_firsts = np.concatenate([np.array(firsts)[:, np.newaxis], PROMPTS], 1)
    (ids, scores), = Decoder(program(), params, None, END).decode(
        [SentenceGroup({}, LIMITS, with_firsts)])
    for i, first in enumerate(firsts):
        expected_ids, expected_scores = decoded(first, 0, beam_size=2)   # read one by one
        np.testing.assert_array_equal(ids[i], expected_ids[i])
        np.testing.assert_allclose(scores[i], expected_scores[i], rtol=1e-5)


@pytest.mark.parametrize('limits, late, expected', [
    ([9, 9, 9], False, [2, 2, 2]), ([9, 2, 9], False, [1, 1, 1]), ([9, 9, 0], False, [3, 3, 3]),
    ([0, 0, 0], False, [4, 4, 4]), ([9, 9, 9], True, [3, 4, 2]), ([9, 2, 0], True, [3, 1, 0])])
def test_so_many_ids_are_read_at_once_as_prompts_have(limits, late, expected) -> None:
    prompts = tf.constant([[5, 6, 7, -1], [5, 6, 7, 8], [5, END, -1, -1]])
    found = prefill.num_read(prompts, tf.constant(limits), can_start_late=late)
    np.testing.assert_array_equal(found, expected)


def test_shorter_prompts_have_padding_before_them() -> None:
    prompts = tf.constant([[5, 6, 7], [8, -1, -1], [-1, -1, -1]])
    ids = prefill.left_padded(prompts, tf.constant([3, 1, 0]), START)
    np.testing.assert_array_equal(ids, [[START, 5, 6, 7], [0, 0, START, 8], [0, 0, 0, START]])
    ids = prefill.left_padded(prompts, tf.constant([3, 1, 0]), tf.constant([1, 2, 3]))
    np.testing.assert_array_equal(ids, [[1, 5, 6, 7], [0, 0, 2, 8], [0, 0, 0, 3]])
