"""Micro-batches: their shapes, and the networks and mini-batches that cannot be split."""

import re

import pytest
import tensorflow as tf

from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.pipeline.planning.micro_batches import (
    check_state,
    check_whole,
    divisors,
    split_spec,
)


class Contrastive(Layer):
    """A loss that compares examples with each other."""

    needs_whole_batch = True


class Counting(Layer):
    """A layer whose counters cannot be merged."""

    unmerged_state = ('count', 'mean')


def network_of(layer):
    return Sequential.Params(name='net', layers=(layer,)).instantiate('net')


def test_a_part_has_the_mini_batch_over_micro_batches_and_replicas():
    spec = {'image': tf.TensorSpec([16, 8]), 'text': {'ids': tf.TensorSpec([16, 5], tf.int32)}}
    assert split_spec(spec, num_micro_batches=4, num_replicas=2) == {
        'image': tf.TensorSpec([2, 8]), 'text': {'ids': tf.TensorSpec([2, 5], tf.int32)}}


@pytest.mark.parametrize(('shapes', 'num_micro_batches', 'num_replicas', 'sentence'), [
    ({'image': [16, 8]}, 3, 1,
     'num_micro_batches=3 does not divide the batch of 16 examples; use 1, 2, 4, 8 or 16, or '
     'change train_input.batch_size.'),
    ({'image': [16, 8]}, 1, 3,
     'num_replicas=3 does not divide the batch of 16 examples; use 1, 2, 4, 8 or 16, or change '
     'train_input.batch_size.'),
    ({'image': [16, 8]}, 16, 2,
     'num_micro_batches=16 does not divide the 8 examples of each of 2 replicas; use 1, 2, 4 or '
     '8, or change train_input.batch_size.'),
    ({'image': [None, 8]}, 1, 1,
     "'image' of the mini-batch has shape (None, 8); the first dimension must be the batch size, "
     'a number.'),
    ({'scale': []}, 1, 1, "'scale' of the mini-batch has shape (); the first dimension must be"),
    ({'image': None}, 1, 1, "'image' of the mini-batch has shape <unknown>; the first dimension"),
    ({'image': [16, 8], 'labels': [8]}, 1, 1,
     "the tensors of a mini-batch have different first dimensions, {'image': 16, 'labels': 8}; "
     'all must be the batch size.'),
    ({'image': [0, 8]}, 1, 1, 'the mini-batch has 0 examples; give it 1 or more.'),
])
def test_a_mini_batch_that_cannot_be_split_is_refused(shapes, num_micro_batches, num_replicas,
                                                      sentence):
    spec = {name: tf.TensorSpec(shape) for name, shape in shapes.items()}
    with pytest.raises(ValueError, match=re.escape(sentence)):
        split_spec(spec, num_micro_batches, num_replicas)


@pytest.mark.parametrize(('num_micro_batches', 'num_replicas', 'num_parts'),
                         [(2, 3, 6), (2, 1, 2), (1, 3, 3)])
def test_a_layer_that_needs_the_whole_mini_batch_refuses_parts(num_micro_batches, num_replicas,
                                                               num_parts):
    sentence = (f'net/pairs: Contrastive needs the whole mini-batch, since its result for an '
                f'example depends on the others, but with num_micro_batches={num_micro_batches} '
                f'and num_replicas={num_replicas} it would see one of {num_parts} parts at a time; '
                'set both to 1, or use a loss that is a sum over examples.')
    with pytest.raises(ValueError, match=re.escape(sentence)):
        check_whole(network_of(Contrastive.Params(name='pairs')), num_micro_batches, num_replicas)


def test_a_layer_whose_state_cannot_be_merged_refuses_parts():
    sentence = ('net/counter: what becomes of count, mean depends on the examples, and lingpipe '
                'cannot merge it over the 4 micro-batches of an update; set '
                'num_micro_batches, num_replicas and accumulate to 1 or, in a KerasLayer with '
                'moving averages of means, averages_state=True.')
    with pytest.raises(ValueError, match=re.escape(sentence)):
        check_state(network_of(Counting.Params(name='counter')), num_parts=4)


def test_a_mini_batch_in_one_part_suits_every_layer():
    check_whole(network_of(Contrastive.Params(name='pairs')), num_micro_batches=1, num_replicas=1)
    check_state(network_of(Counting.Params(name='counter')), num_parts=1)


@pytest.mark.parametrize(('size', 'words'), [(1, '1'), (7, '1 or 7'), (12, '1, 2, 3, 4, 6 or 12')])
def test_divisors_are_told_in_words(size, words):
    assert divisors(size) == words
