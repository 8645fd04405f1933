"""Measures how fast a language model reads prompts and writes, in lingpipe and in plain Keras.

    python -m lingpipe.tools.bench_generation --num_cells=2
    python -m lingpipe.tools.bench_generation --keras --threads=2

Both have the same weights and write the best id every time. The time until the first id counts as
reading, the rest as writing. Each measurement needs a process of its own, since a process sets its
threads once.
"""
from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from lingpipe.tools import parser
from lingpipe.tools.bench_text import configure, model_params, say
from lingpipe.tools.command_line import MAX_CELLS, command

if TYPE_CHECKING:
    import numpy as np

START = 1
NEVER = -1   # the id that ends a text


@command
def main(argv: list[str] | None = None) -> None:
    """Measures and prints."""
    args = parse(argv)
    configure(args)
    results = measure(args)
    say(args, results,
        f'{results["read_per_s"]:,.0f} tokens/s read, {results["written_per_s"]:,.0f} tokens/s '
        f'written; the first call took {results["first_s"]:.1f} s')


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Returns the flags."""
    p = parser('bench_generation', __doc__)
    p.add_argument('--keras', action='store_true', help='measure plain Keras')
    p.add_argument('--no_cache', action='store_true',
                   help='let Keras read everything again for each id')
    p.add_argument('--jit', action='store_true', help='compile Keras with XLA')
    p.add_number('--threads', 1, 'threads of plain Keras', least=1, most=1024)
    p.add_number('--num_cells', 1, 'K', least=1, most=MAX_CELLS)
    p.add_number('--groups', 0, 'groups of prompts in lingpipe; 0: one a cell', least=0)
    p.add_number('--prefill', 128, 'ids of a prompt that lingpipe reads at once; 0: one by one',
                 least=0)
    p.add_number('--layers', 4, 'layers', least=1, most=10_000)
    p.add_number('--dim', 256, 'channels, a multiple of 8; a feed-forward part has 3 times as '
                 'many', least=8)
    p.add_number('--vocab_size', 4000, 'ids', least=4)
    p.add_number('--prompts', 16, 'prompts', least=1)
    p.add_number('--length', 128, 'ids of a prompt', least=2)
    p.add_number('--new', 64, 'ids that follow a prompt', least=2)
    p.add_number('--repeats', 5, 'repetitions, of which the fastest counts', least=1)
    p.add_argument('--json', action='store_true', help='print one JSON object')
    return p.parse_args(argv)


def measure(args: argparse.Namespace) -> dict[str, float]:
    """Returns read_per_s and written_per_s, in tokens, and first_s."""
    import numpy as np
    shape = [args.prompts, args.length - 1]
    prompts = np.random.default_rng(0).integers(3, args.vocab_size, shape).astype(np.int32)
    generate = keras_generate(args) if args.keras else lingpipe_generate(args)
    first_s = seconds(generate, prompts, args.new)

    # The first pair warms up.
    times_s = [(seconds(generate, prompts, 1), seconds(generate, prompts, args.new))
               for _ in range(1 + args.repeats)][1:]
    read_s, whole_s = (min(times) for times in zip(*times_s, strict=True))
    return {'read_per_s': args.prompts * args.length / read_s,
            'written_per_s': written_per_s(args.prompts * (args.new - 1), read_s, whole_s),
            'first_s': first_s}


def written_per_s(num_ids: int, read_s: float, whole_s: float) -> float:
    """Returns how many ids are written in a second.

    Args:
      num_ids: ids that follow the first.
      read_s: seconds until the first id of each prompt.
      whole_s: seconds until the last.

    Raises:
      ValueError: writing took no time that can be told from noise.
    """
    if whole_s <= read_s:
        raise ValueError(f'writing took {1e3 * whole_s:.3g} ms with the first ids, and these alone '
                         f'{1e3 * read_s:.3g} ms: that is too short to measure; use more --new.')
    return num_ids / (whole_s - read_s)


def lingpipe_generate(args: argparse.Namespace) -> Callable[[np.ndarray, int], np.ndarray]:
    """A function of prompts [n, P] without the start, and of a number of ids to write."""
    import numpy as np
    import tensorflow as tf

    from lingpipe.pipeline.decoding.decoder import Decoder
    from lingpipe.pipeline.decoding.sampling import SamplingParams
    from lingpipe.pipeline.decoding.sentence_group import SentenceGroup
    from lingpipe.pipeline.execution.program import Program
    from lingpipe.pipeline.planning.pipeline_params import PipelineParams
    from lingpipe.tasks.text.task import language_learner

    spec = {name: tf.TensorSpec([1, args.length], tf.int32) for name in ('target', 'label')}
    spec['weight'] = tf.TensorSpec([1, args.length])
    program = Program(model_params(args).instantiate('model'), spec,
                      PipelineParams(num_cells=args.num_cells),
                      language_learner(0.1, 10, 1).instantiate())
    params = SamplingParams(beam_size=1, alpha=0., max_length=args.length + args.new,
                            prefill=args.prefill)
    decoder = Decoder(program, params, START, NEVER)
    num_groups = args.groups or args.num_cells

    def generate(prompts: np.ndarray, num_new: int) -> np.ndarray:
        groups = [SentenceGroup({}, np.full(len(some), some.shape[1] + num_new, np.int32), some)
                  for some in np.array_split(prompts, num_groups)]
        return np.concatenate([ids for ids, _ in decoder.decode(groups)])

    return generate


def keras_generate(args: argparse.Namespace) -> Callable[[np.ndarray, int], np.ndarray]:
    """The same of plain Keras."""
    import numpy as np

    from lingpipe.tools.keras_generation import keras_generate
    from lingpipe.tools.keras_language_model import keras_language_model
    params = model_params(args)
    _, by_path = keras_language_model(params, args.length)
    for weight in params.instantiate('model').weights():
        by_path[weight.path].assign(weight.initial_value(0))
    functions = {num_new: keras_generate(params, by_path, args.length + num_new,
                                         not args.no_cache, args.jit)
                 for num_new in (1, args.new)}

    def generate(prompts: np.ndarray, num_new: int) -> np.ndarray:
        whole = np.pad(prompts, [[0, 0], [1, 0]], constant_values=START)
        ids: np.ndarray = functions[num_new](whole).numpy()
        return ids[:, 1:]

    return generate


def seconds(generate: Callable[[np.ndarray, int], np.ndarray], prompts: np.ndarray,
            num_new: int) -> float:
    """Returns how long a call takes."""
    start_s = time.perf_counter()
    generate(prompts, num_new)
    return time.perf_counter() - start_s


if __name__ == '__main__':
    main()
