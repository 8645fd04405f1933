"""Compares the architectures of keras.applications with the networks that from_keras makes of them.

    python -m lingpipe.tools.compare_keras --models=MobileNetV2,ResNet50 --steps=2

For each architecture, with random weights and small images:

    outputs        the largest difference between Keras' outputs and the network's
    weights        the largest difference between the weights after some steps of SGD, made by
                   Keras' train_on_batch and by a pipeline of one cell and one micro-batch
    rounding       the same between two runs of Keras, of which one begins with weights that are
                   rounded otherwise: how much of a difference may come from rounding
    K=1 and K=4    whether pipelines of one cell and of four, both with the same micro-batches, give
                   the same weights to the last bit
    layers         calls of layers, between any two of which a pipeline may be cut

--json has more: the largest output, how far the steps move a weight at most, and the seconds.
Random numbers differ from Keras', so that layers which drop something are told to drop nothing.
"""
from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import time
from typing import TYPE_CHECKING, Any

from lingpipe.tools.command_line import Parser, command

if TYPE_CHECKING:
    from lingpipe.keras_models import KerasModel

TABLE = ('MobileNet', 'MobileNetV2', 'MobileNetV3Small', 'EfficientNetB0', 'EfficientNetV2B0',
         'ResNet50', 'ResNet50V2', 'VGG16', 'DenseNet121', 'InceptionV3', 'Xception',
         'ConvNeXtTiny')
_LEAST_SIZE = {'InceptionV3': 75, 'InceptionResNetV2': 75, 'Xception': 71}
_NUM_CLASSES, _RATE, _NUM_CELLS = 10, 0.01, 4


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What is known of one architecture.

    Attributes:
      model: its name in keras.applications.
      layers: the calls of layers that it has.
      outputs: the largest difference of an output.
      largest: the largest output.
      weights: the largest difference of a weight after the steps; None: not asked for.
      moved: how far the steps move a weight in Keras.
      rounding: the largest difference of a weight to a run of Keras that begins with weights of
        other last bits.
      is_same: whether weights are the same for one cell and for four; None: not asked for.
      seconds: what all of this took.
    """
    model: str
    layers: int
    outputs: float
    largest: float
    weights: float | None
    moved: float | None
    rounding: float | None
    is_same: bool | None
    seconds: float


@command
def main(argv: list[str] | None = None) -> None:
    """Prints the table."""
    p = Parser('compare_keras', __doc__)
    p.add_argument('--models', default=','.join(TABLE), help='names in keras.applications, or all')
    p.add_number('--size', 64, 'pixels of a side of an image', least=32)
    p.add_number('--batch', 4, 'images of a mini-batch; half of them are a micro-batch', least=2)
    p.add_number('--steps', 2, 'steps of SGD; 0: compare only outputs', least=0)
    p.add_argument('--json', action='store_true', help='print one object for each architecture')
    args = p.parse_args(argv)
    names = _names(args.models)
    if args.batch % 2:
        raise ValueError(f'--batch={args.batch} is odd, and a mini-batch is cut into two; use an '
                         'even number.')

    from lingpipe import cluster
    cluster.configure(_NUM_CELLS, intra_op_threads=2)
    if not args.json:
        print(_HEADER)
    for name in names:
        comparison = compare(name, args)
        text = json.dumps(dataclasses.asdict(comparison)) if args.json else row(comparison)
        print(text, flush=True)


def _names(text: str) -> list[str]:
    """The names of architectures. Raises ValueError for one that Keras does not have."""
    import keras
    known = [name for name in dir(keras.applications) if name[0].isupper()]
    names = known if text == 'all' else text.split(',')
    for name in names:
        if name not in known:
            raise ValueError(f'--models has {name!r}, which is not in keras.applications; there '
                             f'are {", ".join(known)}.')
    return names


_HEADER = ('| architecture | layers | outputs | weights | rounding | K=1 and K=4 |\n'
           '| --- | --- | --- | --- | --- | --- |')


def row(found: Comparison) -> str:
    """A line of the table."""
    same = '' if found.is_same is None else 'same bits' if found.is_same else 'DIFFERENT'
    return (f'| {found.model} | {found.layers} | {_short(found.outputs)} | '
            f'{_short(found.weights)} | {_short(found.rounding)} | {same} |')


def _short(difference: float | None) -> str:
    return '' if difference is None else f'{difference:.1e}' if difference else '0'


def compare(name: str, args: argparse.Namespace) -> Comparison:
    """Compares one architecture."""
    import keras
    import numpy as np

    import lingpipe as lp

    start = time.time()
    keras.utils.set_random_seed(0)
    size = max(args.size, _LEAST_SIZE.get(name, 0))
    model = getattr(keras.applications, name)(
        weights=None, input_shape=(size, size, 3), classes=_NUM_CLASSES)
    _drop_nothing(model)
    model.compile(keras.optimizers.SGD(_RATE), 'sparse_categorical_crossentropy')
    params = lp.from_keras(model)
    rng = np.random.default_rng(0)
    batches = [{params.inputs[0]: rng.uniform(-1, 1, [args.batch, size, size, 3]).astype('float32'),
                'labels': rng.integers(0, _NUM_CLASSES, [args.batch])}
               for _ in range(max(1, args.steps))]

    expected = model.predict_on_batch(batches[0][params.inputs[0]])
    outputs = _outputs(params, batches[0])
    weights, moved, rounding, is_same = None, None, None, None
    if args.steps:
        is_same = _is_same_for_cells(params, batches)
        whole = _learned(params, batches, num_cells=1, num_micro_batches=1)
        weights, moved, rounding = _difference_to_keras(model, params, batches, whole)
    num_layers = sum(1 for _ in params.instantiate('model').elements()) - 1   # Without the loss.
    return Comparison(name, num_layers, float(np.abs(outputs - expected).max()),
                      float(np.abs(expected).max()), weights, moved, rounding, is_same,
                      time.time() - start)


def _drop_nothing(model: Any) -> None:
    """Sets the rates of dropout and the like to 0."""
    for layer in model.layers:
        for name in 'rate', 'drop_path_rate':
            if isinstance(getattr(layer, name, None), float):
                setattr(layer, name, 0.)


def _outputs(params: KerasModel.Params, batch: dict[str, Any]) -> Any:
    """The network's output in an evaluation."""
    import tensorflow as tf

    from lingpipe.layers.context import Context

    without_loss = params.copy()
    without_loss.layers = params.layers[:-1]
    network = without_loss.instantiate('model')
    theta = network.initial_theta()

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        return network.fprop(theta, Context(), **{params.inputs[0]: x})[params.outputs[0]]
    return run(batch[params.inputs[0]]).numpy()


def _is_same_for_cells(params: KerasModel.Params, batches: list[dict[str, Any]]) -> bool:
    """Whether one cell and four cells give the same bits, with two micro-batches each."""
    one, four = (_learned(params, batches, num_cells, 2) for num_cells in (1, _NUM_CELLS))
    # Bytes, since a NaN, of which BatchNorm of two numbers makes some, equals no NaN.
    return all(one[path].tobytes() == four[path].tobytes() for path in one)


def _learned(params: KerasModel.Params, batches: list[dict[str, Any]], num_cells: int,
             num_micro_batches: int) -> dict[str, Any]:
    """The weights of a pipeline after a step for each mini-batch."""
    import tensorflow as tf

    import lingpipe as lp

    gc.collect()   # Earlier programs hold themselves, and much memory.
    spec = {name: tf.TensorSpec(value.shape, value.dtype) for name, value in batches[0].items()}
    pipeline = lp.PipelineParams(num_cells=num_cells, num_micro_batches=num_micro_batches)
    learner = lp.learner_from_keras(params.keras_model).instantiate()
    program = lp.Program(params.instantiate('model'), spec, pipeline, learner)
    for step, batch in enumerate(batches):
        program.train_step(batch, step)
    return {path: variable.numpy() for path, variable in program.weights.items()}


def _difference_to_keras(model: Any, params: KerasModel.Params, batches: list[dict[str, Any]],
                         weights: dict[str, Any]) -> tuple[float, float, float]:
    """The largest difference between Keras' weights after the same steps and a pipeline's.

    The second number is how far the steps move a weight at most, and the third the largest
    difference to the weights of Keras' steps from weights with other last bits.
    """
    import numpy as np

    import lingpipe as lp

    def learned() -> list[Any]:
        for batch in batches:
            model.train_on_batch(batch[params.inputs[0]], batch['labels'])
        return model.get_weights()   # type: ignore[no-any-return]

    before = model.get_weights()
    expected = learned()
    rng = np.random.default_rng(0)
    half_ulp = np.finfo(np.float32).eps / 2   # Rounds to a whole one in one direction at least.
    factors = (1 + half_ulp * rng.choice([-1, 1], weight.shape) for weight in before)
    model.set_weights([(weight * factor).astype('float32')
                       for weight, factor in zip(before, factors, strict=True)])
    otherwise_rounded = learned()
    lp.to_keras(params, weights)
    found = model.get_weights()

    def largest(some: list[Any], others: list[Any]) -> float:
        return max(float(np.abs(one - other).max())
                   for one, other in zip(some, others, strict=True))
    return (largest(found, expected), largest(before, expected),
            largest(otherwise_rounded, expected))


if __name__ == '__main__':
    main()
