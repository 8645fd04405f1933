"""Gradient rows: which weights have a gradient of rows, and how many; their bytes in a forecast."""
from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pricing import gradient_rows
from tests.support.learners import learner

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


def test_an_output_that_no_loss_depends_on_makes_no_gradient_dense():
    @keras.saving.register_keras_serializable('tests')
    class Both(keras.layers.Layer):
        """Looks ids up, and scores all words."""

        def build(self, shape):
            self.words = self.add_weight(shape=(11, 4), name='words')

        def call(self, ids):
            x = keras.ops.take(self.words, ids, axis=0)
            return x, keras.ops.matmul(x, keras.ops.transpose(self.words))

    def network(read: str, *others: layers.Layer.Params):
        both = layers.KerasLayer.Params(
            layer=Both(), name='table', reads={'x': 'ids'}, input_shape=(6,),
            input_dtype='int32', writes={'x_0': 'vectors', 'x_1': 'scores'})
        loss = layers.MeanSquaredErrorLoss.Params(name='loss', reads={'x': read})
        return layers.Sequential.Params(
            name='model', layers=(both, *others, loss)).instantiate('model')

    spec = {'ids': IDS, 'target': tf.TensorSpec([2, 6, 4])}
    assert wire(network('vectors'), spec)[0].gradient_rows == {'model/table/words': 12}
    assert wire(network('scores'), {**spec, 'target': tf.TensorSpec([2, 6, 11])}
                )[0].gradient_rows == {}

    in_vain = layers.Dense.Params(name='in_vain', input_dim=11, units=2, reads={'x': 'scores'},
                                  writes='nothing')
    program = Program(network('vectors', in_vain), spec, PipelineParams(), learner())
    with pytest.raises(ValueError, match='model/table/words: the loss depends on fewer of the '
                                         'values that model/table writes than other layers read'):
        program.train_step({'ids': np.zeros([2, 6], np.int32),
                            'target': np.zeros([2, 6, 4], np.float32)}, 0)


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
