"""Sentence group: tensors of any size, and groups that decoding cannot take."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.pipeline.decoding.sentence_group import SentenceGroup, grouped, specs_of, tensors_of
from lingpipe.pipeline.planning.dataflow import BATCH, Value

SOURCE = Value('source', BATCH, tf.TensorSpec([4, 7], tf.int32), needs_gradient=False)
IDS = np.zeros([2, 3], np.int64)


def test_sentences_and_time_have_any_size():
    values, limits, prompts, chances = specs_of([SOURCE])
    assert values == tf.TensorSpec([None, None], tf.int32)
    assert limits.shape.rank == 1
    assert prompts.dtype == tf.int32 and chances.dtype == tf.float32


def test_a_group_without_prompts_has_none_of_every_sentence():
    group = SentenceGroup({'source': IDS}, limits=[5, 0])
    ids, limits, prompts, chances = tensors_of(group, [SOURCE], max_length=5)
    assert ids.dtype == tf.int32 and ids.shape == (2, 3)
    assert limits.numpy().tolist() == [5, 0]
    assert prompts.shape == chances.shape == (2, 0)


@pytest.mark.parametrize('num_sentences, num_cells, sizes', [
    (0, 2, []), (1, 2, [[0, 1]]), (5, 1, [[4], [1]]), (8, 2, [[4, 4]]), (7, 3, [[2, 2, 3]]),
    (9, 2, [[2, 2, 2, 3]]), (18, 2, [[4, 4, 4, 4], [0, 1, 0, 1]])])
def test_few_sentences_make_few_groups(num_sentences, num_cells, sizes):
    """Two groups a cell wrote eight texts at half the speed of one a cell."""
    calls = list(grouped(range(num_sentences), num_cells, 4))
    assert [[len(group) for group in groups] for groups in calls] == sizes
    assert [i for groups in calls for group in groups for i in group] == list(range(num_sentences))


def test_other_values_and_longer_limits_are_refused():
    with pytest.raises(ValueError, match='a group has target, but decoding reads source'):
        tensors_of(SentenceGroup({'target': IDS}, [5, 5]), [SOURCE], 5)
    with pytest.raises(ValueError, match='a limit of 6 ids is above max_length=5'):
        tensors_of(SentenceGroup({'source': IDS}, [6, 1]), [SOURCE], 5)
