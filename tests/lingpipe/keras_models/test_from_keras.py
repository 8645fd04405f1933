"""from_keras: a Keras model and its network compute and learn the same, however it is cut."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import lingpipe as lp
from lingpipe.keras_models import KerasLoss, KerasModel
from lingpipe.keras_models.keras_loss import metric_of
from lingpipe.layers import nested
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap

RATE, STEPS = 0.1, 3
TOLERANCE = 2e-6

Batch = dict[str, np.ndarray]


def learned(params: KerasModel.Params, batches: Sequence[Batch], num_cells: int = 1,
            num_micro_batches: int = 1,
            **values: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The weights after a step for each mini-batch, and what the last step reports."""
    learner = lp.learner_from_keras(params.keras_model)
    spec = nested.map_leaves(lambda v: tf.TensorSpec(v.shape, v.dtype), batches[0])
    pipeline = lp.PipelineParams(num_cells=num_cells, num_micro_batches=num_micro_batches,
                                 **values)
    program = lp.Program(params.instantiate('model'), spec, pipeline, learner.instantiate())
    for step, batch in enumerate(batches):
        report = program.train_step(batch, step)
    return {path: variable.numpy() for path, variable in program.weights.items()}, report


def learned_by_keras(model: Any, inputs: Sequence[str], batches: Sequence[Batch]
                     ) -> tuple[list[Any], dict[str, Any]]:
    """What Keras makes of the weights, and the last report; the model keeps its weights."""
    before = model.get_weights()
    model.run_eagerly = True   # For a few steps, a graph takes longer.
    for batch in batches:
        labels = {name.removeprefix('labels_'): value for name, value in batch.items()
                  if name.startswith('labels')}
        model.reset_metrics()
        report = model.train_on_batch([batch[name] for name in inputs],
                                      labels.get('labels', labels), batch.get('weight'),
                                      return_dict=True)
    after: list[Any] = model.get_weights()
    model.set_weights(before)
    return after, report


def check_learning(model: Any, batches: Sequence[Batch]) -> dict[str, Any]:
    """Checks that a compiled model learns in a pipeline of one micro-batch what it does in Keras.

    Returns what the last step reports, that of Keras as 'keras'.
    """
    params = lp.from_keras(model)
    wanted, keras_report = learned_by_keras(model, params.inputs, batches)
    whole, report = learned(params, batches)
    np.testing.assert_allclose(report['loss'], keras_report['loss'], rtol=TOLERANCE)
    lp.to_keras(params, whole)
    for found, value in zip(model.get_weights(), wanted, strict=True):
        np.testing.assert_allclose(found, value, atol=TOLERANCE)
    return {**report, 'keras': keras_report}


def check_cuts(model: Any, batches: Sequence[Batch]) -> None:
    """Checks that pipelines of 1 and 4 cells learn the same to the last bit."""
    split, _ = learned(lp.from_keras(model), batches, 1, 4)
    cut, _ = learned(lp.from_keras(model), batches, 4, 4)
    for path, value in split.items():
        np.testing.assert_array_equal(cut[path], value)


def outputs(params: KerasModel.Params, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The network's outputs in an evaluation."""
    without_loss = params.copy()
    without_loss.layers = tuple(layer for layer in params.layers
                                if not isinstance(layer, KerasLoss.Params))
    network = without_loss.instantiate('model')
    values = network.fprop(network.initial_theta(), Context(),
                           **{name: tf.constant(batch[name]) for name in params.inputs})
    return {name: values[name].numpy() for name in params.outputs}


def branches() -> Any:
    """Two inputs, a layer and a model that are used twice, operations, BatchNorm, a penalty."""
    first, second = keras.Input((6,), name='first'), keras.Input((6,), name='second')
    shared = keras.layers.Dense(5, activation='tanh', kernel_regularizer='l2')
    a, b = shared(first), shared(second)
    x = keras.layers.Concatenate()([keras.layers.Add()([a, b]), a * b])
    x = keras.layers.BatchNormalization()(x)[:, 1:]
    block = keras.Sequential([keras.Input((9,)), keras.layers.Dense(9, activation='relu')],
                             name='block')
    model = keras.Model([first, second],
                        keras.layers.Dense(3, name='out')(block(x) + block(2. * x)))
    model.compile(keras.optimizers.SGD(RATE), 'mse')
    return model


def rows(num_batches: int = STEPS) -> list[Batch]:
    rng = np.random.default_rng(0)
    shapes = {'first': 6, 'second': 6, 'labels': 3}
    return [{name: rng.normal(size=[8, n]).astype(np.float32) for name, n in shapes.items()}
            for _ in range(num_batches)]


def tagger(mask_zero: bool) -> Any:
    """Masks of tokens, several outputs of a layer and of the model, cross-entropies of softmax."""
    tokens = keras.Input((4,), name='tokens', dtype='int32')
    x = keras.layers.Embedding(9, 4, mask_zero=mask_zero)(tokens)
    x, scores = keras.layers.MultiHeadAttention(2, 3)(x, x, return_attention_scores=True)
    states, last = keras.layers.SimpleRNN(
        3, return_sequences=True, return_state=True, unroll=True)(x)
    tags = keras.layers.Dense(5, activation='softmax', name='tags')(states)
    kind = keras.layers.Dense(1, activation='sigmoid', name='kind')(
        keras.layers.Concatenate()([last, keras.layers.Flatten()(scores)]))
    return keras.Model([tokens], [tags, kind])


def sentences(num_batches: int = STEPS) -> list[Batch]:
    """Sentences of different lengths, filled up with 0."""
    rng = np.random.default_rng(1)
    ids = rng.integers(1, 9, [num_batches, 8, 4])
    ids[np.arange(4) >= rng.integers(2, 5, [num_batches, 8, 1])] = 0
    return [{'tokens': one.astype(np.int32), 'labels_tags': rng.integers(0, 5, [8, 4]),
             'labels_kind': rng.integers(0, 2, [8, 1])} for one in ids]


def test_a_model_with_branches_learns_what_keras_learns_however_it_is_cut() -> None:
    model, batches = branches(), rows()
    expected = model.predict_on_batch([batches[0]['first'], batches[0]['second']])
    found = outputs(lp.from_keras(model), batches[0])['out']
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    check_learning(model, batches)
    check_cuts(model, batches)


def test_the_only_loss_of_a_model_leaves_out_what_its_mask_leaves_out() -> None:
    both = tagger(mask_zero=True)
    model = keras.Model(both.inputs, both.get_layer('tags').output)
    model.compile(keras.optimizers.SGD(RATE), 'sparse_categorical_crossentropy',
                  metrics=['accuracy'])
    batches = [{'tokens': batch['tokens'], 'labels': batch['labels_tags']}
               for batch in sentences()]
    report = check_learning(model, batches)
    np.testing.assert_allclose(report['accuracy'], report['keras']['accuracy'], rtol=TOLERANCE)


def test_a_model_of_several_outputs_learns_what_keras_learns() -> None:
    model = tagger(mask_zero=False)
    model.compile(keras.optimizers.SGD(RATE, momentum=0.9, weight_decay=0.01),
                  {'tags': keras.losses.SparseCategoricalCrossentropy(),
                   'kind': 'binary_crossentropy'}, loss_weights={'tags': 1., 'kind': 0.5})
    check_learning(model, sentences())


@pytest.mark.parametrize('mask_zero', [True, False])
def test_a_mask_beside_several_losses_costs_a_warning(
        mask_zero: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The loss was another than in Keras, and only a page of the documents said so."""
    model = tagger(mask_zero)
    model.compile('sgd', {'tags': 'sparse_categorical_crossentropy', 'kind': 'binary_crossentropy'})
    lp.from_keras(model)
    told = ("the output 'tags' of the Keras model has a mask, and there are several losses: here "
            'each example counts as one in its loss, however many of its positions count, and in '
            'Keras each position; so the loss and the trained weights differ from those of fit, '
            'unless all examples are equally long')
    assert [record.getMessage() for record in caplog.records] == [told] * mask_zero


def twice(optimizer: Any) -> Any:
    """A table of 5 rows that two layers read, so that ids occur often; labels [b, 4, 2]."""
    tokens, others = (keras.Input((4,), name=name, dtype='int32') for name in ('tokens', 'others'))
    table = keras.layers.Embedding(5, 3, name='words')
    x = keras.layers.Dense(3, activation='tanh')(table(tokens))
    x = keras.layers.Concatenate()([x, table(others)])
    model = keras.Model([tokens, others], keras.layers.Dense(2)(x))
    model.compile(optimizer, 'mse')
    return model


def pairs_of_sentences() -> list[Batch]:
    rng = np.random.default_rng(2)
    return [{**{name: rng.integers(0, 5, [8, 4]).astype(np.int32) for name in ('tokens', 'others')},
             'labels': rng.normal(size=[8, 4, 2]).astype(np.float32)} for _ in range(STEPS)]


@pytest.mark.parametrize('values', [{}, {'global_clipnorm': 0.05}], ids=str)
def test_ids_that_occur_often_learn_what_they_learn_in_keras(values: dict[str, Any]) -> None:
    """Keras squares the gradient of each occurrence by itself."""
    model, batches = twice(keras.optimizers.Adam(RATE, **values)), pairs_of_sentences()
    check_learning(model, batches)
    if not values:
        params = lp.from_keras(model)
        split, _ = learned(params, batches, 1, 4, sum_groups=2)
        between_reads = (2, len(params.layers) - 2)
        replicas, _ = learned(params, batches, 2, 2, num_replicas=2, schedule='zb_h1',
                              recompute='cell', layers_per_cell=between_reads)
        for path, value in split.items():
            np.testing.assert_array_equal(replicas[path], value)


def test_a_table_that_is_the_last_layer_too_learns_what_it_learns_in_keras() -> None:
    """Keras takes reverse=True by name only, and adds the gradients of both calls."""
    ids = keras.Input((4,), name='ids', dtype='int32')
    table = keras.layers.ReversibleEmbedding(7, 3)
    x = keras.layers.Dense(3, activation='tanh')(table(ids))
    model = keras.Model([ids], table(x, reverse=True))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    rng = np.random.default_rng(0)
    batches = [{name: rng.integers(0, 7, [8, 4], np.int32) for name in ('ids', 'labels')}
               for _ in range(STEPS)]
    check_learning(model, batches)


def test_rows_that_a_layer_of_ones_own_gathers_learn_what_they_learn_in_keras() -> None:
    @keras.saving.register_keras_serializable('tests')
    class Gathered(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.table = self.add_weight(shape=(9, 3), name='table')

        def call(self, ids: Any) -> Any:
            return keras.ops.take(self.table, ids, axis=0)

    tokens = keras.Input((4,), name='tokens', dtype='int32')
    model = keras.Model([tokens], Gathered(name='words')(tokens))
    model.compile(keras.optimizers.Adagrad(RATE), 'mse')
    batches = [{'tokens': batch['tokens'], 'labels': np.ones([8, 4, 3], np.float32)}
               for batch in sentences()]
    check_learning(model, batches)

    params = lp.from_keras(model)
    learner = lp.learner_from_keras(model).set(accumulate=2).instantiate()
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batches[0].items()}
    with pytest.raises(ValueError, match='the gradients of the rows of model/words/table are kept '
                                         'apart, but the learner accumulates 2 mini-batches'):
        lp.Program(params.instantiate('model'), spec, lp.PipelineParams(), learner)


def test_an_embedding_that_would_learn_otherwise_than_in_keras_is_said_or_refused() -> None:
    ids = keras.Input((4,), dtype='int32')
    network = lp.from_keras(keras.Model(ids, keras.layers.Embedding(5, 3, name='words')(ids)))

    def problem(optimizer: Any, keeps_rows: bool = False, **values: Any) -> lp.Problem:
        network.layers[0].keeps_gradient_rows = keeps_rows
        learner = lp.Learner.Params(
            optimizer=optimizer.Params(),
            learning_rate=lp.learning_rates.Constant.Params(rate=RATE), **values)
        made: lp.Problem = lp.Problem.Params(model=network, learner=learner).instantiate()
        return made

    def remarks(*args: Any, **values: Any) -> list[str]:
        return problem(*args, **values).remarks()

    remark, = remarks(lp.optimizers.Adam)
    assert remark.startswith('model/words: if an id occurs several times in a mini-batch')
    assert remarks(lp.optimizers.SGD, clip_norm=1.) == [remark]
    assert remarks(lp.optimizers.SGD) == remarks(lp.optimizers.Lion) == []
    assert remarks(lp.optimizers.Adam, accumulate=2) == []
    assert remarks(lp.optimizers.Adam, keeps_rows=True) == []

    accumulating = problem(lp.optimizers.Adam, keeps_rows=True, accumulate=2)
    batch_spec = {name: tf.TensorSpec([2, 4], tf.int32) for name in accumulating.network.reads()}
    with pytest.raises(ValueError, match='the gradients of the rows of model/words.* are kept '
                                         'apart, but the learner accumulates 2 mini-batches'):
        lp.Program(accumulating.network, batch_spec, lp.PipelineParams(), accumulating.learner)


def test_layers_compute_in_the_dtypes_of_their_policies() -> None:
    x = keras.Input((4,))
    y = keras.layers.Dense(3, activation='relu', dtype='mixed_bfloat16')(x)
    model = keras.Model(x, keras.layers.Dense(2, dtype='float32', name='out')(y))
    batch = {'x': np.random.default_rng(0).normal(size=[5, 4]).astype(np.float32)}
    params = lp.from_keras(model)
    np.testing.assert_array_equal(outputs(params, batch)['out'], model.predict_on_batch(batch['x']))


def test_complex_values_are_refused_where_the_model_takes_real_ones() -> None:
    """The imaginary part was dropped."""
    x = keras.Input((4,))
    params = lp.from_keras(keras.Model(x, keras.layers.Dense(3, name='out')(x)))
    with pytest.raises(ValueError, match='out reads complex64, but the Keras layer was built for '
                                         'float32, which would lose the imaginary part'):
        outputs(params, {'x': np.ones([5, 4], np.complex64)})


def test_inputs_gain_or_lose_a_last_dimension_of_1_as_in_keras() -> None:
    """Numbers [b] for an Input of one channel were broadcast to [b, b], and [b, 1] likewise."""
    column, number = keras.Input((1,), name='column'), keras.Input((), name='number')
    x = keras.Input((3,), name='x')
    model = keras.Model([column, number, x],
                        x * column - keras.ops.expand_dims(keras.ops.tanh(number), 1))
    batch = {'column': np.arange(3.), 'number': np.arange(3.)[:, np.newaxis], 'x': np.eye(3)}
    expected = model.predict_on_batch([batch[name] for name in batch])
    np.testing.assert_allclose(*outputs(lp.from_keras(model), batch).values(), expected,
                               atol=TOLERANCE)
    with pytest.raises(ValueError, match=r'reads x_1 of shape \(3, 2\), but the Keras layer was '
                                         r'made for examples of shape \(1,\)'):
        outputs(lp.from_keras(model), {**batch, 'column': np.ones([3, 2])})


def test_an_architecture_of_keras_gives_the_outputs_of_keras() -> None:
    model = keras.applications.MobileNetV2(weights=None, input_shape=(32, 32, 3), classes=5,
                                           alpha=0.35)
    params = lp.from_keras(model)
    batch = {'x': np.random.default_rng(0).normal(size=[2, 32, 32, 3]).astype(np.float32)}
    model.run_eagerly = True   # For one call, a graph takes longer.
    np.testing.assert_allclose(outputs(params, batch)['predictions'],
                               model.predict_on_batch(batch['x']), atol=TOLERANCE)


def test_the_text_is_whole_and_the_same_for_the_same_model_made_again() -> None:
    params = lp.from_keras(branches())
    again = lp.from_keras(branches())
    assert again == params
    assert KerasModel.Params.from_text(params.to_text()) == params
    assert params.inputs == ('first', 'second') and params.outputs == ('out',)


def test_weights_that_are_in_no_text_are_asked_for() -> None:
    params = KerasModel.Params.from_text(lp.from_keras(branches()).to_text())
    with pytest.raises(ValueError, match='model/dense: the weights begin with the values of a'):
        params.instantiate('model').initial_theta()
    with pytest.raises(ValueError, match='these Params have no Keras model: they were read from'):
        lp.to_keras(params, {})


def test_models_without_a_graph_are_refused() -> None:
    class Own(keras.Model):
        def call(self, x: Any) -> Any:
            return x

    for model, sentence in ((Own(), "the model Own 'own.*' has a call.. of its own"),
                            (keras.Sequential([keras.layers.Dense(2)]), 'has not been built'),
                            (3, '3.* is no model of Keras|int .* is no model of Keras')):
        with pytest.raises(ValueError, match=sentence):
            lp.from_keras(model)


def test_a_sequential_that_was_made_by_its_first_call_is_refused_with_a_remedy_that_works() -> None:
    """It was told to leave out a batch_size that nobody had given."""
    model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(2)])
    x = np.random.default_rng(0).normal(size=[8, 4]).astype(np.float32)
    expected = model.predict(x, verbose=0)
    with pytest.raises(ValueError, match=r'takes mini-batches of 8 examples only: .* by '
                                         r'keras.Sequential\(\[keras.Input\(\(4,\)\), \*model.lay'):
        lp.from_keras(model)
    params = lp.from_keras(keras.Sequential([keras.Input((4,)), *model.layers]))
    np.testing.assert_allclose(outputs(params, {'x': x})[params.outputs[0]], expected,
                               atol=TOLERANCE)


@keras.saving.register_keras_serializable('tests')
class _Reconstruction(keras.layers.Layer):
    def call(self, x: Any, y: Any) -> Any:
        self.add_loss(keras.ops.mean(keras.ops.square(x - y)))
        return y


@keras.saving.register_keras_serializable('tests')
def _nothing(labels: Any, x: Any) -> Any:
    return 0. * keras.ops.mean(x, -1)


def test_a_model_that_is_trained_by_add_loss_alone_learns_it_beside_a_loss_of_0() -> None:
    x = keras.Input((4,), name='x')
    model = keras.Model([x], _Reconstruction()(x, keras.layers.Dense(4)(x)))
    batches = [{'x': np.random.default_rng(step).normal(size=[8, 4]).astype(np.float32)}
               for step in range(STEPS)]
    model.compile(keras.optimizers.SGD(RATE))
    with pytest.raises(ValueError, match='if a Keras model is trained by add_loss alone, compile '
                                         'it with a loss that is 0'):
        learned(lp.from_keras(model), batches)

    before = model.get_weights()
    for batch in batches:
        model.train_on_batch(batch['x'])
    wanted = model.get_weights()
    model.set_weights(before)
    model.compile(keras.optimizers.SGD(RATE), _nothing)
    weights, _ = learned(lp.from_keras(model), [
        {**batch, 'labels': np.zeros([8], np.float32)} for batch in batches], 2, 2)
    found = weights['model/dense/kernel'], weights['model/dense/bias']
    for value, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value, expected, atol=TOLERANCE)


def test_layers_that_cannot_be_had_are_refused_by_name() -> None:
    x = keras.Input((4,))
    model = keras.Model(x, keras.layers.Lambda(lambda y: y * 2, name='twice')(x))
    with pytest.raises(ValueError, match="the layer 'twice' of the Keras model cannot be had: "
                                         "Lambda 'twice' holds a Python function without a name"):
        lp.from_keras(model)
    model = keras.Model(x, keras.ops.mean(x, axis=0))
    with pytest.raises(ValueError, match="the layer 'mean' .* whose first dimension is not that"):
        lp.from_keras(model)


def _tenth() -> float:
    return 0.1


@keras.saving.register_keras_serializable('tests')
def _of_classes(labels: Any, x: Any) -> Any:
    return keras.ops.mean(keras.ops.square(labels[:, None] - x), -1)


def _distance(labels: Any, x: Any) -> Any:
    return keras.ops.mean(abs(x - labels), -1)


@pytest.mark.filterwarnings('ignore:.*received `from_logits=True`, but:UserWarning')
@pytest.mark.parametrize(('loss', 'metric', 'activation'), [
    (keras.losses.Huber(0.3), keras.metrics.MeanSquaredError(), None),
    (keras.losses.mean_squared_error, 'mae', None),
    (keras.losses.CategoricalCrossentropy(from_logits=True), 'accuracy', 'softmax'),
    ('binary_crossentropy', 'accuracy', 'sigmoid'),
    (keras.losses.CategoricalFocalCrossentropy(), 'accuracy', 'softmax'),
    ('binary_focal_crossentropy', 'accuracy', 'sigmoid'),
    (keras.losses.SparseCategoricalCrossentropy(ignore_class=0), 'accuracy', 'softmax')])
def test_losses_and_metrics_are_those_of_keras(loss: Any, metric: Any, activation: Any) -> None:
    x = keras.Input((4,), name='x')
    model = keras.Model([x], keras.layers.Dense(3, activation)(x))
    model.compile(keras.optimizers.SGD(RATE), loss, metrics=[metric])
    rng = np.random.default_rng(2)
    classes = rng.integers(0, 3, [8])
    is_sparse = isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
    labels = classes if is_sparse else np.eye(3, dtype=np.float32)[classes]
    batches = [{'x': rng.normal(size=[8, 4]).astype(np.float32), 'labels': labels}]
    report = check_learning(model, batches)
    for name, value in report['keras'].items():
        np.testing.assert_allclose(report[name], value, rtol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize('loss', ['circle', keras.losses.Circle(), keras.losses.Circle(gamma=9.)])
def test_a_loss_that_compares_examples_learns_what_it_learns_in_keras(loss: Any) -> None:
    """The class was refused, and the function, which is the same, was not."""
    x = keras.Input((4,), name='x')
    model = keras.Model([x], keras.layers.Dense(3)(x))
    model.compile(keras.optimizers.SGD(1e-4), loss)
    rng = np.random.default_rng(0)
    check_learning(model, [{'x': rng.normal(size=[8, 4]).astype(np.float32),
                            'labels': np.array([0, 0, 0, 1, 1, 1, 2, 3])} for _ in range(2)])


def test_weights_of_examples_are_the_sample_weights_of_keras() -> None:
    x = keras.Input((4,), name='x')
    model = keras.Model([x], keras.layers.Dense(3)(x))
    model.compile(keras.optimizers.SGD(RATE), 'mse', metrics=['mae'], weighted_metrics=['mae'])
    rng = np.random.default_rng(2)
    batches = [{'x': rng.normal(size=[8, 4]).astype(np.float32),
                'labels': rng.normal(size=[8, 3]).astype(np.float32),
                'weight': rng.uniform(0.5, 3, [8]).astype(np.float32)}]
    report = check_learning(model, batches)
    assert set(report['keras']) == {'loss', 'mae', 'weighted_mae'}
    for name, value in report['keras'].items():
        np.testing.assert_allclose(report[name], value, rtol=TOLERANCE, err_msg=name)


def test_a_loss_is_computed_of_probabilities_where_keras_sees_no_logits() -> None:
    """They are those of another dtype. Of the logits, the loss differed by 1e-3."""
    x = keras.Input((4,), name='x')
    model = keras.Model([x], keras.layers.Dense(3, 'softmax', dtype='mixed_bfloat16')(x))
    model.compile(keras.optimizers.SGD(RATE, global_clipnorm=0.1),
                  'sparse_categorical_crossentropy', auto_scale_loss=False)
    rng = np.random.default_rng(2)
    check_learning(model, [{'x': rng.normal(size=[8, 4]).astype(np.float32),
                            'labels': rng.integers(0, 3, [8])}])


def test_what_a_model_computes_by_itself_in_training_is_refused() -> None:
    class Own(keras.Model):
        def train_step(self, data: Any) -> Any:
            return {}

    x = keras.Input((4,))
    model = Own(x, keras.layers.Dense(3)(x))
    assert lp.from_keras(model).outputs   # It is not compiled.
    model.compile('sgd', 'mse')
    with pytest.raises(ValueError, match="model Own 'own.*' has a train_step.. of its own"):
        lp.from_keras(model)


def test_weights_without_a_name_have_one_that_does_not_depend_on_others() -> None:
    @keras.saving.register_keras_serializable('tests')
    class Scaled(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.factor = self.add_weight(shape=(shape[-1],))
            self.offset = self.add_weight(shape=(shape[-1],))

        def call(self, x: Any) -> Any:
            return x * self.factor + self.offset

    x = keras.Input((4,))
    params = lp.from_keras(keras.Model(x, Scaled(name='scaled')(x)))
    for network in params.instantiate('model'), params.instantiate('model'):
        assert [weight.path for weight in network.weights()] == [
            'model/scaled/variable_0', 'model/scaled/variable_1']


@pytest.mark.parametrize('softmax', [keras.layers.Softmax(), keras.ops.softmax])
def test_a_saturated_softmax_of_its_own_learns_from_its_logits(softmax: Any) -> None:
    """As Keras does, which finds them in its graph. Of the probabilities, the loss was 10."""
    x = keras.Input((4,), name='x')
    kernel = keras.initializers.GlorotUniform(seed=2)
    model = keras.Model([x], softmax(keras.layers.Dense(3, kernel_initializer=kernel)(x * 100.)))
    model.compile(keras.optimizers.SGD(RATE), 'sparse_categorical_crossentropy')
    rng = np.random.default_rng(2)
    batches = [{'x': rng.normal(size=[8, 4]).astype(np.float32), 'labels': rng.integers(0, 3, [8])}]
    assert check_learning(model, batches)['loss'] > 30


@pytest.mark.parametrize('loss', ['sparse_categorical_crossentropy', _of_classes])
def test_a_cross_entropy_that_is_a_metric_is_computed_of_logits_as_in_keras(loss: Any) -> None:
    """The metric was 10 beside a loss of the same name of 26."""
    x = keras.Input((4,), name='x')
    kernel = keras.initializers.GlorotUniform(seed=2)
    model = keras.Model([x], keras.layers.Dense(3, 'softmax', kernel_initializer=kernel)(x * 100.))
    model.compile(keras.optimizers.SGD(RATE), loss,
                  metrics=['sparse_categorical_crossentropy'],
                  weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy(name='weighted')])
    rng = np.random.default_rng(2)
    report = check_learning(model, [{'x': rng.normal(size=[8, 4]).astype(np.float32),
                                     'labels': rng.integers(0, 3, [8])}])
    assert report['weighted'] > 20
    for name, value in report['keras'].items():
        np.testing.assert_allclose(report[name], value, rtol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize('behind', [
    keras.layers.Identity(), keras.layers.Activation('linear'), keras.layers.Dropout(0.),
    keras.layers.Dropout(0.3, seed=1), keras.layers.Reshape([3])])
def test_what_is_behind_a_saturated_softmax_hides_its_logits_where_it_does_in_keras(
        behind: Any) -> None:
    """Behind an Identity, the loss was computed of probabilities: 10 in place of 26."""
    x = keras.Input((4,), name='x')
    kernel = keras.initializers.GlorotUniform(seed=2)
    softmax = keras.layers.Dense(3, 'softmax', kernel_initializer=kernel)
    model = keras.Model([x], behind(softmax(x * 100.)))
    model.compile(keras.optimizers.SGD(RATE), 'sparse_categorical_crossentropy')
    rng = np.random.default_rng(2)
    batch = {'x': rng.normal(size=[8, 4]).astype(np.float32), 'labels': rng.integers(0, 3, [8])}
    network, ctx = lp.from_keras(model).instantiate('model'), Context()
    network.fprop(network.initial_theta(), ctx, **nested.map_leaves(tf.constant, batch))
    found = sum(ctx.emissions.losses.values()) / sum(ctx.emissions.weights.values())
    expected = model.test_on_batch(batch['x'], batch['labels'])
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE)
    if getattr(behind, 'rate', 0) == 0:   # Others draw other numbers.
        check_learning(model, [batch])
    else:   # An entry that is dropped counts 1e-7, of which the logarithm is -16.
        _, report = learned(lp.from_keras(model), [batch])
        assert report['loss'] < 16.2 < expected


@pytest.mark.parametrize(('compiled', 'sentence'), [
    ({'loss': keras.losses.CTC()}, 'the Keras loss CTC keeps state that TensorFlow makes'),
    ({'loss': keras.losses.ctc}, 'the Keras loss CTC keeps state that TensorFlow makes'),
    ({'loss': 'mse', 'loss_weights': ['mae']},
     r"has loss_weights=\['mae'\], .* The third argument of compile is loss_weights in Keras 3"),
    ({'loss': 'mse', 'metrics': ['accuracy']}, 'which accuracy that is depends on labels'),
    ({'loss': 'mse', 'metrics': [keras.metrics.AUC()]}, 'AUC is no mean over examples'),
    ({'loss': keras.losses.MeanSquaredError(reduction='sum')}, "has reduction='sum'"),
    ({'loss': _distance}, "the loss '_distance' cannot be made again .* your own function or class "
                          'with @keras.saving.register_keras_serializable'),
    ({'loss': 'mse', 'metrics': [_distance]}, "the metric '_distance' cannot be made again")])
def test_losses_and_metrics_that_no_pipeline_has_are_refused(compiled: dict[str, Any],
                                                             sentence: str) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile('sgd', **compiled)
    with pytest.raises(ValueError, match=sentence):
        lp.from_keras(model)


def test_a_metric_may_be_a_registered_function() -> None:
    registered = keras.saving.register_keras_serializable('tests')(_distance)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile('sgd', 'mse', metrics=[registered])
    text, = lp.from_keras(model).layers[-1].metrics
    assert metric_of(text).name == '_distance'


@keras.saving.register_keras_serializable('tests')
class _OwnMean(keras.metrics.Mean):
    """A mean over examples, which only its code says."""


@keras.saving.register_keras_serializable('tests')
def _one_number(labels: Any, x: Any) -> Any:
    return keras.ops.mean(abs(x - labels))


@pytest.mark.parametrize(('compiled', 'sentence'), [
    ({'loss': _one_number}, 'model/loss: the Keras loss _one_number gives one number for all'),
    ({'loss': 'mse', 'metrics': [_one_number]}, 'model/loss: the metric _one_number gives one '
                                                'number for all examples, which micro-batches')])
def test_losses_and_metrics_of_one_number_are_named(compiled: Any, sentence: str) -> None:
    """The loss was called loss_function_wrapper_60, and the metric gave an IndexError."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile('sgd', **compiled)
    network = lp.from_keras(model).instantiate('model')
    with pytest.raises(ValueError, match=sentence):
        network.fprop(network.initial_theta(), Context(), x=tf.ones([4, 4]), labels=tf.ones([4, 2]))


def test_the_metrics_that_are_accepted_are_named_to_the_author_of_another() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile('sgd', 'mse', metrics=[_OwnMean()])
    with pytest.raises(ValueError, match='_OwnMean is no mean over examples of a function .* '
                                         'or a keras.metrics.MeanMetricWrapper without an upd'):
        lp.from_keras(model)


@pytest.mark.parametrize(('loss', 'labels', 'sentence'), [
    ('sparse_categorical_crossentropy', tf.zeros([4, 3]), 'for one-hot labels, compile the model'),
    ('categorical_crossentropy', tf.zeros([4], tf.int32), 'it takes one-hot labels; for numbers'),
    ('mse', tf.zeros([4, 2]), 'give labels of the shape of the output')])
def test_labels_that_a_loss_does_not_take_are_refused(loss: str, labels: tf.Tensor,
                                                      sentence: str) -> None:
    layer = KerasLoss.Params(loss=json.dumps(loss)).instantiate('loss')
    with pytest.raises(ValueError, match=f'loss: the Keras loss does not take .*{sentence}'):
        layer.fprop(NestedMap(), Context(), x=tf.ones([4, 3]), labels=labels)


def test_what_is_no_keras_model_is_refused() -> None:
    network = lp.from_keras(branches())
    with pytest.raises(TypeError, match='to_keras takes the Params that from_keras returned'):
        lp.to_keras(network, [np.zeros(3)])
    with pytest.raises(TypeError, match='Adam .* is no model of Keras; give the compiled model'):
        lp.learner_from_keras(keras.optimizers.Adam())
    with pytest.raises(lp.ParamsError, match=r'write lp.from_keras\(model\), the model of a task'):
        lp.Problem.Params(model=branches())
    with pytest.raises(lp.ParamsError, match='write lp.layers.KerasLayer.Params'):
        lp.Sequential.Params(layers=(keras.layers.LSTM(3),))
    with pytest.raises(ValueError, match='layer=Dense is no layer of Keras; give an object'):
        lp.layers.KerasLayer.Params(layer=keras.layers.Dense)
    with pytest.raises(ValueError, match=r'is a model; write from_keras\(model\)'):
        lp.layers.KerasLayer.Params(layer=branches())


@pytest.mark.parametrize(('optimizer', 'expected'), [
    (keras.optimizers.RMSprop(0.5, rho=0.8), lp.Learner.Params(
        optimizer=lp.optimizers.RMSProp.Params(rho=0.8), decay_vectors=True,
        learning_rate=lp.learning_rates.Constant.Params(rate=0.5))),
    (keras.optimizers.AdamW(0.01, beta_1=0.8, weight_decay=0.1, global_clipnorm=2.),
     lp.Learner.Params(
         optimizer=lp.optimizers.AdamW.Params(beta_1=0.8), weight_decay=0.1, clip_norm=2.,
         decay_vectors=True, learning_rate=lp.learning_rates.Constant.Params(rate=0.01))),
    (keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.5, 90, 0.1)),
     lp.Learner.Params(
         optimizer=lp.optimizers.SGD.Params(), decay_vectors=True,
         learning_rate=lp.learning_rates.Cosine.Params(rate=0.5, decay_steps=90,
                                                       final_fraction=0.1))),
    (keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.5, 90, warmup_target=0.8)),
     lp.Learner.Params(   # Without warm-up steps, Keras begins at their target.
         optimizer=lp.optimizers.SGD.Params(), decay_vectors=True,
         learning_rate=lp.learning_rates.Cosine.Params(rate=0.8, decay_steps=90))),
    (keras.optimizers.SGD(keras.optimizers.schedules.PiecewiseConstantDecay([2, 3], [3., 2., 1.])),
     lp.Learner.Params(
         optimizer=lp.optimizers.SGD.Params(), decay_vectors=True,
         learning_rate=lp.learning_rates.Piecewise.Params(boundaries=(3, 4), rates=(3., 2., 1.)))),
    (keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), lp.Learner.Params(
        optimizer=lp.optimizers.SGD.Params(), decay_vectors=True, accumulate=2,
        learning_rate=lp.learning_rates.Constant.Params(rate=0.1)))])
def test_a_learner_is_that_of_the_optimizer(optimizer: Any, expected: lp.Learner.Params) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(optimizer, 'mse')
    assert lp.learner_from_keras(model) == expected


@pytest.mark.parametrize(('layers', 'loss', 'what'), [
    ([keras.layers.Dense(2), keras.layers.BatchNormalization(name='norm')], 'mse',
     "the BatchNormalization 'norm': Keras moves its averages with every mini-batch"),
    ([keras.layers.Masking(), keras.layers.Dense(2)], 'mse',
     'an output with a mask: Keras takes the mean of the means of mini-batches'),
    ([keras.layers.Dense(3, 'softmax')],
     keras.losses.SparseCategoricalCrossentropy(ignore_class=0),
     'a loss with ignore_class: Keras takes the mean of the means of mini-batches'),
    ([keras.layers.BatchNormalization(trainable=False), keras.layers.Dense(3, 'softmax')],
     keras.losses.SparseCategoricalCrossentropy(), None),
    ([keras.layers.Masking(), keras.layers.LSTM(2)], 'mse', None)])
def test_accumulation_that_learns_otherwise_in_keras_is_refused(layers, loss, what) -> None:
    model = keras.Sequential([keras.Input((5, 4)), *layers])
    model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), loss)
    if what is None:
        assert lp.learner_from_keras(model).accumulate == 2
        return
    sentence = rf'beside {what}, .*; compile without .* set accumulate of the Learner\.$'
    with pytest.raises(ValueError, match=sentence):
        lp.learner_from_keras(model)


def test_an_optimizer_without_an_equal_is_refused() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match='is not compiled, so that it has no optimizer'):
        lp.learner_from_keras(model)
    sgd, decay = keras.optimizers.SGD, keras.optimizers.schedules.ExponentialDecay(1., 2, 0.5)
    without_biases = sgd(weight_decay=0.1)
    without_biases.exclude_from_weight_decay(var_names=['bias'])
    for optimizer, sentence in (
            (sgd(clipvalue=1.), 'SGD has clipvalue=1.0, which no Learner has; compile with global'),
            (without_biases, 'SGD excludes weights from its weight decay'),
            (keras.optimizers.Muon(weight_decay=0.1),
             'Muon has weight_decay=0.1 and adam_weight_decay=0.004, and a Learner has one'),
            (sgd(_tenth), 'the learning rate is a Python function'),
            (sgd(decay, gradient_accumulation_steps=2), 'Keras counts mini-batches for it, and a'),
            (keras.optimizers.LossScaleOptimizer(sgd()), 'Keras scales the loss of this model'),
            (sgd(keras.optimizers.schedules.CosineDecay(0., 3, warmup_target=0.2, warmup_steps=2)),
             r'learning_rates.Cosine.Params\(rate=0.2, decay_steps=3, final_fraction=0.0, warmup_'),
            (sgd(keras.optimizers.schedules.CosineDecayRestarts(1., 2)),
             r'CosineDecayRestarts\(initial_learning_rate=1.0, .* has no equal in lingpipe')):
        model.compile(optimizer, 'mse')
        with pytest.raises(ValueError, match=sentence):
            lp.learner_from_keras(model)


class OwnSGD(keras.optimizers.SGD):
    """An optimizer that Keras does not have."""


def test_a_learning_rate_without_an_equal_and_an_own_optimizer_have_a_remedy_that_works() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    warm = keras.optimizers.schedules.CosineDecay(0., 3, warmup_target=0.2, warmup_steps=2)
    model.compile(keras.optimizers.SGD(warm, momentum=0.5), 'mse')
    with pytest.raises(ValueError, match='give learner_from_keras learning_rate=lp.learning_rates'):
        lp.learner_from_keras(model)
    rate = lp.learning_rates.Cosine.Params(rate=0.2, decay_steps=3, warmup_steps=2)
    learner = lp.learner_from_keras(model, learning_rate=rate)
    assert learner.learning_rate == rate
    assert learner.optimizer == lp.optimizers.SGD.Params(momentum=0.5)
    with pytest.raises(TypeError, match='learning_rate=0.1 is none of lp.learning_rates; give one'):
        lp.learner_from_keras(model, learning_rate=0.1)  # type: ignore[arg-type]

    model.compile(OwnSGD(0.1), 'mse')
    with pytest.raises(ValueError, match='or write a Learner .* whose keras_class is OwnSGD'):
        lp.learner_from_keras(model)
