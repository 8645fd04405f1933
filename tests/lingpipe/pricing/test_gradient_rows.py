"""Gradient rows: which weights have a gradient of rows, and how many; their bytes in a forecast."""
from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.pricing import gradient_rows

IDS = tf.TensorSpec([2, 6], tf.int32)


def embedding(**values) -> layers.KerasLayer.Params:
    return layers.KerasLayer.Params(
        layer=keras.layers.Embedding(11, 4, **values), name='table', reads={'x': 'ids'},
        input_shape=(6,), input_dtype='int32')


def test_a_table_that_is_only_looked_up_has_a_row_for_each_id():
    table = embedding().instantiate('model/table')
    path = 'model/table/embeddings'
    assert gradient_rows(table, {'x': IDS}, [path], ['x']) == {path: 12}
    regularized = embedding(embeddings_regularizer='l2').instantiate('model/table')
    assert gradient_rows(regularized, {'x': IDS}, [path], ['x']) == {}


def test_an_output_that_nothing_reads_makes_no_gradient_dense():
    @keras.saving.register_keras_serializable('tests')
    class Both(keras.layers.Layer):
        """Looks ids up, and scores all words."""

        def build(self, shape):
            self.words = self.add_weight(shape=(11, 4), name='words')

        def call(self, ids):
            x = keras.ops.take(self.words, ids, axis=0)
            return x, keras.ops.matmul(x, keras.ops.transpose(self.words))

    def rows(read: str, num_channels: int):
        both = layers.KerasLayer.Params(
            layer=Both(), name='table', reads={'x': 'ids'}, input_shape=(6,),
            input_dtype='int32', writes={'x_0': 'vectors', 'x_1': 'scores'})
        loss = layers.MeanSquaredErrorLoss.Params(name='loss', reads={'x': read})
        network = layers.Sequential.Params(name='model', layers=(both, loss)).instantiate('model')
        return wire(network, {'ids': IDS, 'target': tf.TensorSpec([2, 6, num_channels])}
                    )[0].gradient_rows

    assert rows('vectors', 4) == {'model/table/words': 12}
    assert rows('scores', 11) == {}


def test_a_number_of_rows_that_is_not_known_is_refused():
    @keras.saving.register_keras_serializable('tests')
    class Some(keras.layers.Embedding):
        """Reads rows of the ids above 0 alone."""

        def call(self, ids):
            return tf.reduce_sum(super().call(tf.boolean_mask(ids, ids > 0)), 0) + tf.zeros([2, 4])

    some = layers.KerasLayer.Params(layer=Some(11, 4), name='table', reads={'x': 'ids'},
                                    input_shape=(6,), input_dtype='int32')
    path = 'model/table/embeddings'
    with pytest.raises(ValueError, match=f'{path}: how many rows of it model/table reads is not'):
        gradient_rows(some.instantiate('model/table'), {'x': IDS}, [path], ['x'])


def test_the_rows_of_all_micro_batches_count_in_place_of_the_table():
    loss = layers.MeanSquaredErrorLoss.Params(name='loss', reads={'target': 'target'})
    spec = {'ids': IDS, 'target': tf.TensorSpec([2, 6, 4])}

    def first(params: layers.KerasLayer.Params):
        network = layers.Sequential.Params(name='model', layers=(params, loss)).instantiate('model')
        return wire(network, spec, num_parts=3)[0]

    kept, summed = embedding(), embedding()
    summed.keeps_gradient_rows = False
    assert first(kept).gradient_bytes == 3 * 12 * (4 * 4 + 8)
    assert first(summed).gradient_bytes == 11 * 4 * 4
