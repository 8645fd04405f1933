"""Measures a language model: examples/s, peak memory and losses, in lingpipe and in plain Keras.

    python -m lingpipe.tools.bench_text --num_cells=2
    python -m lingpipe.tools.bench_text --keras --threads=2

Both begin with the same weights and learn from the same random tokens by SGD, so that the losses
agree. (By Adam they do not: if an id comes twice, Keras squares each of its gradients, as it
leaves that of a table in slices, and lingpipe squares their sum.)
Each measurement is a process of its own, since threads and peak memory are those of a process.
"""
from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lingpipe.tools import parser
from lingpipe.tools.command_line import MAX_CELLS, command
from lingpipe.wording.counts import counted

if TYPE_CHECKING:
    import numpy as np

    from lingpipe.tasks.text.language_model import LanguageModel

RATE = 0.1   # of SGD


@command
def main(argv: list[str] | None = None) -> None:
    """Measures and prints."""
    args = parse(argv)
    configure(args)
    results = measure(args)
    say(args, results,
        f'{results["examples_per_s"]:.2f} examples/s of {counted(args.length, "token")}',
        f'peak memory {results["peak_mb"]:,.0f} MB, of which {results["before_mb"]:,.0f} MB '
        'before the network was built',
        f'loss {results["losses"][0]:.6f} at first, {results["losses"][-1]:.6f} after '
        f'{counted(len(results["losses"]) - 1, "step")}')


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Returns the flags."""
    p = parser('bench_text', __doc__)
    p.add_argument('--keras', action='store_true', help='measure plain Keras')
    p.add_number('--threads', 1, 'threads of plain Keras', least=1, most=1024)
    p.add_number('--num_cells', 1, 'K', least=1, most=MAX_CELLS)
    p.add_number('--num_micro_batches', 4, 'M', least=1)
    p.add_number('--layers', 4, 'layers', least=1, most=10_000)
    p.add_number('--dim', 256, 'channels, a multiple of 8; a feed-forward part has 3 times as '
                 'many', least=8)
    p.add_number('--vocab_size', 4000, 'ids', least=2)
    p.add_number('--length', 256, 'T', least=1)
    p.add_number('--batch', 8, 'examples of a mini-batch', least=1)
    p.add_number('--steps', 8, 'steps that are measured, after two', least=1)
    p.add_argument('--json', action='store_true', help='print one JSON object')
    return p.parse_args(argv)


def configure(args: argparse.Namespace) -> None:
    """Sets the threads of plain Keras, or makes the devices of the cells."""
    if args.keras:
        import tensorflow as tf
        tf.config.threading.set_intra_op_parallelism_threads(args.threads)
        tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    else:
        from lingpipe import cluster
        cluster.configure(args.num_cells)


def say(args: argparse.Namespace, results: Mapping[str, Any], *lines: str) -> None:
    """Prints the lines, after a word on what was measured, or the results as one JSON object."""
    if args.json:
        print(json.dumps(results))
        return
    what = f'lingpipe, K={args.num_cells}'
    if args.keras:
        what = f'Keras, {counted(args.threads, "thread")}'
    print(f'{what}: ' + '\n'.join(lines))


def model_params(args: argparse.Namespace) -> LanguageModel.Params:
    """The language model of the flags' sizes, with 4 heads in 2 groups."""
    from lingpipe.tasks.text.language_model import LanguageModel
    return LanguageModel.Params(
        name='model', vocab_size=args.vocab_size, num_layers=args.layers, model_dim=args.dim,
        hidden_dim=3 * args.dim, num_heads=4, num_groups=2, has_bytes=False)


def batches(args: argparse.Namespace) -> list[dict[str, np.ndarray]]:
    """The mini-batches: each token is the one before plus 1 or 2, which can be learned."""
    import numpy as np
    rng = np.random.default_rng(0)
    mini_batches = []
    for _ in range(2 + args.steps):
        steps = rng.integers(1, 3, [args.batch, args.length + 1])
        ids = (np.cumsum(steps, 1) % args.vocab_size).astype(np.int32)
        mini_batches.append({'target': ids[:, :-1], 'label': ids[:, 1:],
                             'weight': np.ones([args.batch, args.length], np.float32)})
    return mini_batches


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Returns examples_per_s, the losses of all steps, peak_mb and before_mb."""
    before_mb = peak_mb()
    step, _ = keras_steps(args) if args.keras else lingpipe_steps(args)
    losses, times_s = [], []
    for number, batch in enumerate(batches(args)):
        start_s = time.perf_counter()
        losses.append(step(batch, number))
        times_s.append(time.perf_counter() - start_s)
    return {'examples_per_s': args.batch / statistics.median(times_s[2:]), 'losses': losses,
            'peak_mb': peak_mb(), 'before_mb': before_mb}


def lingpipe_steps(args: argparse.Namespace) -> tuple[
        Callable[[dict[str, Any], int], float], Callable[[], dict[str, np.ndarray]]]:
    """A function that trains a step and returns its loss, and one that returns the weights."""
    import tensorflow as tf

    from lingpipe.learning import learning_rates, optimizers
    from lingpipe.learning.learner import Learner
    from lingpipe.pipeline.execution.program import Program
    from lingpipe.pipeline.planning.pipeline_params import PipelineParams

    spec = {name: tf.TensorSpec(value.shape, value.dtype)
            for name, value in batches(args)[0].items()}
    pipeline = PipelineParams(num_cells=args.num_cells, num_micro_batches=args.num_micro_batches,
                              recompute='none')
    learner = Learner.Params(optimizer=optimizers.SGD.Params(),
                             learning_rate=learning_rates.Constant.Params(rate=RATE))
    program = Program(model_params(args).instantiate('model'), spec, pipeline,
                      learner.instantiate())
    return (lambda batch, number: float(program.train_step(batch, number)['loss']),
            lambda: {path: variable.numpy() for path, variable in program.weights.items()})


def keras_steps(args: argparse.Namespace) -> tuple[
        Callable[[dict[str, Any], int], float], Callable[[], dict[str, np.ndarray]]]:
    """The same of plain Keras: a compiled model, and train_on_batch."""
    import keras

    from lingpipe.tools.keras_language_model import keras_language_model
    params = model_params(args)
    model, by_path = keras_language_model(params, args.length)
    for weight in params.instantiate('model').weights():
        by_path[weight.path].assign(weight.initial_value(0))
    model.compile(keras.optimizers.SGD(RATE), jit_compile=False,
                  loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    def step(batch: dict[str, Any], number: int) -> float:
        model.reset_metrics()   # Otherwise Keras returns the mean of all steps.
        return float(model.train_on_batch(batch['target'], batch['label']))

    return step, lambda: {path: variable.numpy() for path, variable in by_path.items()}


def peak_mb() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == '__main__':
    main()
