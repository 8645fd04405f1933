"""Networks of KerasLayers learn what keras.Sequential learns, however they are cut and split."""
from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.input import ArrayInput
from lingpipe.layers import nested
from lingpipe.layers.weight import Weight
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.training.evaluation import Evaluations
from lingpipe.training.problem import Review

RATE, STEPS, SEED = 0.3, 3, 5
TOLERANCE = 2e-6

Spec = tuple[str, dict[str, Any]]  # The class and the configuration of a Keras layer.


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a few steps.

    It has the loss of each step, the weights after the last one by path, and an evaluation.
    """
    losses: list[float]
    weights: dict[str, np.ndarray]
    evaluation: float


def keras_layers(specs: Sequence[Spec], shape: tuple[int, ...], dtype: str = 'float32',
                 **params: Any) -> list[Any]:
    """Returns the Params of the layers, the first of which reads 'image'.

    Each has the input shape that Keras computes for the output of the layer before it.
    """
    made: list[Any] = []
    for i, (name, config) in enumerate(specs):
        one = layers.KerasLayer.Params(name=f'{i}', class_name=name, config=json.dumps(config),
                                       input_shape=shape, input_dtype=dtype, **params)
        if i == 0:
            one.reads = {'x': 'image'}
        made.append(one)
        output = one.instantiate().keras_layer(keras.KerasTensor((None, *shape), dtype))
        shape, dtype = output.shape[1:], output.dtype
    return made


def learned(members: Sequence[Any], batches: Sequence[dict[str, np.ndarray]], num_cells: int = 1,
            num_micro_batches: int = 1, accumulate: int = 1, **pipeline: Any) -> Outcome:
    """Trains a pipeline on the mini-batches; `members` are the Params of all layers."""
    network = layers.Sequential.Params(layers=tuple(members)).instantiate('model')
    learner = Learner.Params(optimizer=optimizers.SGD.Params(), accumulate=accumulate,
                             learning_rate=learning_rates.Constant.Params(rate=RATE))
    spec = nested.map_leaves(lambda v: tf.TensorSpec(v.shape, v.dtype), batches[0])
    params = PipelineParams(num_cells=num_cells, num_micro_batches=num_micro_batches,
                            shares_threads=False, **pipeline)
    program = Program(network, spec, params, learner.instantiate(), seed=SEED)
    losses = []
    for step, i in enumerate(range(0, len(batches), accumulate)):
        for j in range(accumulate - 1):
            program.accumulate(batches[i + j], step, j)
        losses.append(
            float(program.train_step(batches[i + accumulate - 1], step, accumulate - 1)['loss']))
    total, weight = program.evaluator(spec).step(batches[0])[0]['loss']
    return Outcome(losses, {path: variable.numpy() for path, variable in program.weights.items()},
                   float(total / weight))


def own_weights(members: Sequence[Any]) -> list[list[Weight]]:
    """Returns the weights of each layer."""
    network = layers.Sequential.Params(layers=tuple(members)).instantiate('model')
    return [list(layer.own_weights.values()) for layer in network.elements()]


def keras_model(specs: Sequence[Spec], members: Sequence[Any],
                image: np.ndarray) -> keras.Sequential:
    """Builds the same network in Keras for such images, with the first weights of `members`."""
    classes = [getattr(keras.layers, name, None) or keras.saving.get_registered_object(name)
               for name, _ in specs]
    originals = [made.from_config(config) for made, (_, config) in zip(classes, specs, strict=True)]
    model = keras.Sequential([keras.Input(image.shape[1:], dtype=image.dtype), *originals])
    for own, original in zip(own_weights(members), originals, strict=False):
        original.set_weights([weight.initial_value(SEED).numpy() for weight in own])
    return model


def expected(specs: Sequence[Spec], members: Sequence[Any],
             batches: Sequence[dict[str, np.ndarray]]) -> Outcome:
    """Trains keras.Sequential on the same mini-batches, from the same first weights."""
    model = keras_model(specs, members, batches[0]['image'])
    # For a few steps, a graph takes longer.
    model.compile(keras.optimizers.SGD(RATE), 'mse', run_eagerly=True)

    losses = []
    for batch in batches:
        model.reset_metrics()
        losses.append(
            float(model.train_on_batch(batch['image'], batch['target'], weights_for_keras(batch))))
    weights = {weight.path: value
               for own, original in zip(own_weights(members), model.layers, strict=False)
               for weight, value in zip(own, original.get_weights(), strict=True)}
    model.reset_metrics()
    evaluation = model.test_on_batch(batches[0]['image'], batches[0]['target'],
                                     weights_for_keras(batches[0]))
    return Outcome(losses, weights, float(evaluation))


def weights_for_keras(batch: dict[str, np.ndarray]) -> np.ndarray | None:
    """Keras divides a weighted loss by the number of examples, lingpipe by the sum of weights."""
    weight = batch.get('weight')
    return None if weight is None else weight * len(weight) / weight.sum()


def assert_equal(found: Outcome, wanted: Outcome, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(found.losses, wanted.losses, rtol=tolerance)
    np.testing.assert_allclose(found.evaluation, wanted.evaluation, rtol=tolerance)
    assert found.weights.keys() == wanted.weights.keys()
    for path, value in wanted.weights.items():
        np.testing.assert_allclose(found.weights[path], value, rtol=tolerance, atol=tolerance,
                                   err_msg=path)


def assert_same_bits(found: Outcome, wanted: Outcome) -> None:
    assert (found.losses, found.evaluation) == (wanted.losses, wanted.evaluation)
    for path, value in wanted.weights.items():
        np.testing.assert_array_equal(found.weights[path], value, err_msg=path)


MSE = layers.MeanSquaredErrorLoss.Params(name='loss')


def sentences(
        num_batches: int = STEPS, size: int = 8, length: int = 6) -> list[dict[str, np.ndarray]]:
    """Draws ids of sentences of 1 to `length` words, padded with 0, and a target."""
    random = np.random.default_rng(1)
    ids = random.integers(1, 11, (num_batches, size, length)).astype(np.int32)
    ids[np.arange(length) >= random.integers(1, length + 1, (num_batches, size, 1))] = 0
    targets = random.normal(size=(num_batches, size, 2)).astype(np.float32)
    return [{'image': one, 'target': target} for one, target in zip(ids, targets, strict=True)]


L2 = {'class_name': 'L2', 'config': {'l2': 0.1}}
MASKED: list[Spec] = [('Embedding', {'input_dim': 11, 'output_dim': 4, 'mask_zero': True}),
                      ('Dropout', {'rate': 0.0}), ('SimpleRNN', {'units': 3}),
                      ('Dense', {'units': 2})]


def test_masks_reach_every_layer_that_reads_them() -> None:
    """A mask belonged to the Python tensor and was lost at the end of a cell.

    The loss was 0.69265 instead of 0.69324.
    """
    batches = sentences()
    members = [*keras_layers(MASKED, (6,), 'int32'), MSE]
    whole = learned(members, batches, num_micro_batches=2)
    assert_equal(whole, expected(MASKED, members, batches))
    cut, recompute = (1, 1, 3), ('cell', 'none', 'cell')
    assert_same_bits(
        learned(members, batches, len(cut), 2, layers_per_cell=cut, recompute=recompute), whole)


def test_masks_go_through_layers_of_lingpipe() -> None:
    """Layers that work position by position pass a mask on; attention reads it by name.

    Attention also keeps the mask.
    """
    batches = sentences()
    plain: list[Spec] = [MASKED[0], ('GlobalAveragePooling1D', {}), ('Dense', {'units': 2})]
    first, pool, last = keras_layers(plain, (6,), 'int32')
    between = [layers.LayerNorm.Params(name='norm', dim=4),
               layers.PositionEmbedding.Params(name='position', dim=4),
               layers.Sequential.Params(name='inner', layers=(
                   layers.MultiHeadAttention.Params(name='attention', input_dim=4, num_heads=2,
                                                    reads={'mask': 'x.mask'}),
                   layers.Dropout.Params(name='drop', rate=0.))),
               layers.Dense.Params(name='dense', input_dim=4, units=4)]
    members = [first, *between, pool, last, MSE]
    whole = learned(members, batches, num_micro_batches=2)
    assert_same_bits(learned(members, batches, 3, 2, layers_per_cell=(1, 4, 4)), whole)
    padded = [{**batch, 'image': np.concatenate([batch['image'], np.zeros_like(batch['image'])], 1)}
              for batch in batches]
    first, pool, last = keras_layers(plain, (12,), 'int32')
    # Padding changes nothing.
    assert_equal(learned([first, *between, pool, last, MSE], padded), whole)


def test_the_mask_of_an_output_may_weight_the_loss() -> None:
    """The mask weights the loss as in Keras.

    Regularizers then count with their full value, although the weight depends on the mask.
    """
    specs: list[Spec] = [
        MASKED[0], ('Dense', {'units': 2, 'kernel_regularizer': L2, 'activity_regularizer': L2})]
    batches = [{**batch, 'target': np.ones((8, 6, 2), np.float32)} for batch in sentences()]
    members = [*keras_layers(specs, (6,), 'int32'),
               layers.MeanSquaredErrorLoss.Params(name='loss', reads={'weight': 'x.mask'})]
    assert_equal(learned(members, batches, 3, 2), expected(specs, members, batches))


REGULARIZED: list[Spec] = [
    ('Dense',
     {'units': 4, 'activation': 'tanh', 'kernel_regularizer': L2, 'activity_regularizer': L2}),
    ('Dense', {'units': 2, 'bias_regularizer': L2,
               'activity_regularizer': {'class_name': 'L1', 'config': {'l1': 0.1}}})]


def rows(weight: Sequence[float] = (), num_batches: int = STEPS,
         shape: tuple[int, ...] = (5,)) -> list[dict[str, np.ndarray]]:
    """Examples in ascending order, so that micro-batches differ.

    Their targets are [2], and weights are optional.
    """
    random = np.random.default_rng(2)
    batches = []
    for _ in range(num_batches):
        image = random.normal(size=(8, *shape)) + 0.3 * np.arange(8).reshape(-1, *[1] * len(shape))
        batches.append({'image': image.astype(np.float32),
                        'target': random.normal(size=(8, 2)).astype(np.float32)})
        if weight:
            batches[-1]['weight'] = np.array(weight, np.float32)
    return batches


@pytest.mark.parametrize('weight, pipeline', [
    ((), {'num_cells': 3, 'num_micro_batches': 4, 'schedule': 'zb_h1'}),
    ((1, 0) * 4, {'num_micro_batches': 4, 'sum_groups': 2}),
    ((2, 0.5, 0, 0, 0, 0, 1, 3), {'num_cells': 2, 'num_micro_batches': 2, 'num_replicas': 2})])
def test_regularizers_add_what_keras_adds(weight: tuple[float, ...],
                                          pipeline: dict[str, int]) -> None:
    """Regularizers were scaled by examples / weight.

    The penalty was 0.7537 instead of 2.2611 with two outputs, and 4.522 instead of 2.261 with half
    of the weights 0.
    """
    batches = rows(weight)
    members = [*keras_layers(REGULARIZED, (5,)), MSE]
    assert_equal(learned(members, batches, **pipeline), expected(REGULARIZED, members, batches))


def test_regularizers_of_accumulated_mini_batches_count_once() -> None:
    batches = rows(num_batches=4)
    joined = [{name: np.concatenate([a[name], b[name]]) for name in a}
              for a, b in [batches[:2], batches[2:]]]
    members = [*keras_layers(REGULARIZED, (5,)), MSE]
    found = learned(members, batches, accumulate=2)
    wanted = learned(members, joined, num_micro_batches=2)
    np.testing.assert_allclose(found.losses, wanted.losses, rtol=TOLERANCE)
    for path, value in wanted.weights.items():
        np.testing.assert_allclose(found.weights[path], value, rtol=TOLERANCE, atol=TOLERANCE,
                                   err_msg=path)


@pytest.mark.parametrize('config, pipeline',
                         [({}, {'num_cells': 2, 'num_micro_batches': 2, 'num_replicas': 2}),
                          ({'dtype': 'float64'}, {'num_micro_batches': 2}),
                          ({'renorm': True}, {'num_micro_batches': 4})])
def test_moving_averages_are_those_of_the_mini_batch(config: dict[str, Any],
                                                     pipeline: dict[str, int]) -> None:
    """The variances of micro-batches were averaged: 7.10 instead of 30.87 on ordered data.

    In float64, Keras adds moments of float64 to its averages; here they were of float32, and the
    step could not be traced.
    """
    specs: list[Spec] = [('BatchNormalization', {'momentum': 0.6, **config}),
                         ('Dense', {'units': 2})]
    batches = rows()
    members = [*keras_layers(specs, (5,)), MSE]
    found, wanted = learned(members, batches, **pipeline), expected(specs, members, batches)
    averages = [path for path in wanted.weights if 'moving' in path or 'renorm' in path]
    assert len(averages) == (5 if 'renorm' in config else 2)
    for path in averages:
        np.testing.assert_allclose(found.weights[path], wanted.weights[path], rtol=TOLERANCE,
                                   err_msg=path)


def test_moving_averages_leave_masked_positions_out() -> None:
    specs: list[Spec] = [('Masking', {}), ('BatchNormalization', {'momentum': 0.6}),
                         ('GlobalAveragePooling1D', {}), ('Dense', {'units': 2})]
    batches = rows(shape=(4, 3))
    for batch in batches:
        batch['image'][np.arange(4) >= [[4], [1], [1], [2], [3], [1], [4], [4]]] = 0.
    members = [*keras_layers(specs, (4, 3)), MSE]
    found, wanted = learned(members, batches, 3, 4), expected(specs, members, batches)
    for path in 'model/1/moving_mean', 'model/1/moving_variance':
        np.testing.assert_allclose(found.weights[path], wanted.weights[path], rtol=TOLERANCE,
                                   err_msg=path)
    assert_equal(learned(members, batches, 2), wanted)


@pytest.mark.parametrize('norm', [
    layers.BatchNorm.Params(dim=5, decay=0.),
    layers.KerasLayer.Params(class_name='BatchNormalization', config='{"momentum": 0}',
                             input_shape=(5,))])
def test_moving_averages_of_accumulated_mini_batches_weigh_every_example_alike(norm: Any) -> None:
    """Two mini-batches of different sizes had the same weight."""
    large, small = rows(num_batches=2)
    small = {name: value[-2:] for name, value in small.items()}

    norm = norm.copy().set(name='norm', reads={'x': 'image'})
    network = layers.Sequential.Params(layers=(
        norm, layers.Dense.Params(name='dense', input_dim=5, units=2), MSE)).instantiate('model')
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=RATE), accumulate=2)
    specs = [nested.map_leaves(lambda v: tf.TensorSpec(v.shape, v.dtype), batch)
             for batch in (large, small)]

    program = Program(network, specs, PipelineParams(num_micro_batches=2), learner.instantiate())
    program.accumulate(large, 0, 0)
    program.train_step(small, 0, 1)

    images = np.concatenate([large['image'], small['image']])
    np.testing.assert_allclose(program.weights['model/norm/moving_mean'], images.mean(0),
                               rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(program.weights['model/norm/moving_variance'], images.var(0),
                               rtol=TOLERANCE)


@keras.saving.register_keras_serializable('lingpipe_networks')
class TwoNorms(keras.layers.Layer):
    """Has a BatchNormalization that is called twice, and one in a model inside a layer."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.norm = keras.layers.BatchNormalization(momentum=0.8)
        self.inner = keras.Sequential([keras.layers.Dense(4),
                                       keras.layers.BatchNormalization(momentum=0.5)])

    def call(self, x: Any, training: bool = False) -> Any:
        return self.inner(self.norm(x - 3 * self.norm(x, training=training), training=training),
                          training=training)


@keras.saving.register_keras_serializable('lingpipe_networks')
class Counts(keras.layers.Layer):
    """Has state of three dtypes, which no example changes."""

    def build(self, input_shape: Any) -> None:
        for name, dtype, first in [('steps', 'int32', 2**24), ('is_odd', 'bool', False),
                                   ('power', 'float64', 0.1)]:
            setattr(self, name, self.add_weight(
                name=name, shape=(), dtype=dtype, trainable=False,
                initializer=lambda shape, dtype, first=first: keras.ops.full(shape, first, dtype)))

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.steps.assign(self.steps + 1)
            self.is_odd.assign(keras.ops.logical_not(self.is_odd))
            self.power.assign(self.power * 1.1)
        return x


@keras.saving.register_keras_serializable('lingpipe_networks')
class Seen(keras.layers.Layer):
    """Keeps the number of examples and the average of their means."""

    def build(self, input_shape: Any) -> None:
        self.count = self.add_weight(name='count', shape=(), dtype='int32', initializer='zeros',
                                     trainable=False)
        self.mean = self.add_weight(name='mean', shape=(5,), initializer='zeros', trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.count.assign(self.count + keras.ops.shape(x)[0])
            self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.mean(x, 0))
        return x


@keras.saving.register_keras_serializable('lingpipe_networks')
class Mean(Seen):
    """Keeps only the average of the means."""

    def build(self, input_shape: Any) -> None:
        self.mean = self.add_weight(name='mean', shape=(5,), initializer='zeros', trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.mean(x, 0))
        return x


def test_batch_normalizations_in_layers_are_found_and_count_every_call() -> None:
    specs: list[Spec] = [('lingpipe_networks>TwoNorms', {}), ('Dense', {'units': 2})]
    members = [*keras_layers(specs, (5,)), MSE]
    assert_equal(learned(members, rows(), 2), expected(specs, members, rows()))


def test_state_keeps_its_dtype() -> None:
    """State passed through float32, where 16777217 is 16777216."""
    specs: list[Spec] = [('lingpipe_networks>Counts', {}), ('Dense', {'units': 2})]
    members = [*keras_layers(specs, (5,)), MSE]
    found = learned(members, rows(), 2, 4)
    assert found.weights['model/0/steps'] == 2**24 + STEPS
    assert (found.weights['model/0/is_odd'].dtype == bool
            and found.weights['model/0/is_odd'] == bool(STEPS % 2))
    assert found.weights['model/0/power'] == 0.1 * 1.1 * 1.1 * 1.1
    assert_equal(found, expected(specs, members, rows()))


def test_state_that_depends_on_examples_needs_one_micro_batch() -> None:
    specs: list[Spec] = [('lingpipe_networks>Seen', {}), ('Dense', {'units': 2})]
    members = [*keras_layers(specs, (5,)), MSE]
    assert_equal(learned(members, rows()), expected(specs, members, rows()))
    sentence = ('model/0: what becomes of count, mean depends on the examples, and lingpipe '
                'cannot merge it over the 2 micro-batches of an update')
    for split in {'num_micro_batches': 2}, {'accumulate': 2}:
        with pytest.raises(ValueError, match=sentence):
            learned(members, rows(), **split)


def test_averages_of_means_are_merged_where_that_is_said() -> None:
    specs: list[Spec] = [('lingpipe_networks>Mean', {}), ('Dense', {'units': 2})]
    members = [*keras_layers(specs, (5,), averages_state=True), MSE]
    assert_equal(learned(members, rows(), 2, 4), expected(specs, members, rows()))


@pytest.mark.parametrize('members, sentence', [
    ([('Embedding', MASKED[0][1]), ('Flatten', {})],
     'model/1: Flatten does not support masks, and would lose that of its input; set drops_mask'),
    ([('Embedding', MASKED[0][1]), layers.GlobalAvgPool2D.Params(name='pool')],
     r"model/pool reads 'x', which has the mask 'x.mask', and would leave the mask out; set "
     r"drops_mask=True in the KerasLayer that writes"),
    ([('Embedding', MASKED[0][1]),
      layers.MultiHeadAttention.Params(name='attention', input_dim=4, num_heads=2)],
     r"model/attention reads 'x', .* would leave the mask out; set its reads=\{'mask': 'x.mask'\}"),
    ([('Embedding', MASKED[0][1])],
     r"model/loss reads 'x', .* would leave the mask out; set its reads=\{'weight': 'x.mask'\}")])
def test_a_layer_that_would_lose_a_mask_says_so(members: list[Any], sentence: str) -> None:
    made = [(keras_layers([member], (6,) if i == 0 else (6, 4), 'int32' if i == 0 else 'float32')[0]
             .copy().set(name=f'{i}', reads={'x': 'image'} if i == 0 else {}))
            if isinstance(member, tuple) else member
            for i, member in enumerate(members)]
    with pytest.raises(ValueError, match=sentence):
        learned([*made, MSE], sentences())


def test_a_mask_may_be_dropped() -> None:
    specs: list[Spec] = [('Embedding', MASKED[0][1]), ('Flatten', {}), ('Dense', {'units': 2})]
    members = [*keras_layers(specs, (6,), 'int32', drops_mask=True), MSE]
    with pytest.warns(UserWarning, match='does not support masking'):
        wanted = expected(specs, members, sentences())
    assert_equal(learned(members, sentences(), 2), wanted)


# Evaluations: the copies that fill up the last mini-batch.

@keras.saving.register_keras_serializable('lingpipe_networks')
class Centered(keras.layers.Layer):
    """A user's layer that lets examples see each other and adds a loss of its own."""

    def call(self, x: Any) -> Any:
        self.add_loss(keras.ops.mean(keras.ops.square(x)))
        return x - keras.ops.mean(x, axis=0, keepdims=True)


class TenRows(ArrayInput):
    """Ten examples: in mini-batches of 8, six copies of the last example fill the second one."""

    def load(self) -> dict[str, np.ndarray]:
        batches = rows(num_batches=2)
        return {name: np.concatenate([batch[name] for batch in batches])[:10]
                for name in ('image', 'target')}


SEES_COPIES: dict[str, list[Spec]] = {
    'activity regularizers': REGULARIZED,
    'a softmax over examples': [
        ('Dense', {'units': 4}), ('Softmax', {'axis': 0}), ('Dense', {'units': 2})],
    "a user's layer": [
        ('Dense', {'units': 4}), ('lingpipe_networks>Centered', {}), ('Dense', {'units': 2})]}


class Sizes(Review):
    """Records how many examples of each mini-batch it is shown, and how many outputs."""

    fetch = ('x',)

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def see(self, batch: Mapping[str, Any], fetched: Mapping[str, Any]) -> None:
        self.seen.append((len(batch['image']), len(fetched['x'])))


def evaluated(members: Sequence[Any], num_cells: int, num_micro_batches: int = 1,
              source_class: type[ArrayInput] = TenRows, review: Review | None = None) -> float:
    """Returns the loss on all examples of a source, in mini-batches of 8."""
    network = layers.Sequential.Params(layers=tuple(members)).instantiate('model')
    source = source_class.Params(batch_size=8, shuffle=False, num_epochs=1).instantiate()
    params = PipelineParams(num_cells=num_cells, num_micro_batches=num_micro_batches)
    learner = Learner.Params(learning_rate=learning_rates.Constant.Params(rate=RATE)).instantiate()
    program = Program(network, source.spec(), params, learner, seed=SEED)
    task: Any = types.SimpleNamespace(   # All that is asked of a task.
        review=lambda source: review, derived_metrics=lambda metrics: {})
    evaluations = Evaluations(program, {'test': source}, task, '')
    evaluations.check('test')
    evaluation = evaluations.run('test')
    assert evaluation is not None
    return evaluation.metrics['loss']


@pytest.mark.parametrize('specs', SEES_COPIES.values(), ids=SEES_COPIES)
def test_an_evaluation_is_that_of_keras_where_layers_would_see_copies(specs: list[Spec]) -> None:
    """Copies have weight 0, but they counted in penalties and wherever examples see each other."""
    members = [*keras_layers(specs, (5,)), MSE]
    examples = TenRows.Params(batch_size=8).instantiate().load()
    model = keras_model(specs, members, examples['image'])
    model.compile(loss='mse', run_eagerly=True)

    found = evaluated(members, num_cells=1)
    wanted = model.evaluate(examples['image'], examples['target'], batch_size=8, verbose=0)
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE)
    assert evaluated(members, num_cells=3) == found


def test_an_evaluation_in_micro_batches_is_that_of_keras() -> None:
    """The last mini-batch has two examples, which are not divisible by four: one micro-batch."""
    members = [*keras_layers(REGULARIZED, (5,)), MSE]
    whole, *split = [evaluated(members, num_cells, num_micro_batches)
                     for num_cells, num_micro_batches in ((1, 1), (1, 4), (3, 4))]
    np.testing.assert_allclose(split[0], whole, rtol=TOLERANCE)
    assert split[0] == split[1]


@pytest.mark.parametrize(('specs', 'sizes'), [
    (REGULARIZED, [8, 2]), ([('Dense', {'units': 2})], [8, 8])])
def test_a_review_sees_what_is_evaluated(specs: list[Spec], sizes: list[int]) -> None:
    """One traced step of a fixed shape serves all mini-batches if copies change nothing."""
    review = Sizes()
    evaluated([*keras_layers(specs, (5,)), MSE], num_cells=2, review=review)
    assert review.seen == [(size, size) for size in sizes]


def test_a_source_with_mini_batches_of_its_own_must_say_which_examples_are_real() -> None:
    class OwnBatches(TenRows):
        def dataset(self, position: int = 0) -> tf.data.Dataset:
            return super().dataset(position)

    sees_copies = [*keras_layers(REGULARIZED, (5,)), MSE]
    sentence = r'eval_inputs\.test: OwnBatches makes its own mini-batches, .* give it num_real'
    with pytest.raises(ValueError, match=sentence):
        evaluated(sees_copies, 1, source_class=OwnBatches)
    sees_none = [*keras_layers([('Dense', {'units': 2})], (5,)), MSE]
    evaluated(sees_none, 1, source_class=OwnBatches)
