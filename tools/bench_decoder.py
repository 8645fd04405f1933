"""Measures decoding: tokens/s of greedy and beam search on K cells.

    python -m lingpipe.tools.bench_decoder --num_cells=2 --beam_size=4

The baseline beside it runs the whole network again on every prefix. The network is a Transformer
with random weights that never says `end`, so that every sentence takes all positions.
"""
from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from lingpipe.tools import parser
from lingpipe.tools.command_line import MAX_CELLS, command
from lingpipe.wording.counts import counted

if TYPE_CHECKING:
    import tensorflow as tf

    from lingpipe.pipeline.execution.program import Program

START = 1
END = 2
HEADS = 4
REPEATS = 3   # the fastest counts


@command
def main(argv: list[str] | None = None) -> None:
    """Measures and prints."""
    args = parse(argv)
    from lingpipe import cluster
    cluster.configure(args.num_cells)
    rates = measure(args)
    if args.json:
        print(json.dumps(rates))
        return
    print(f'{rates["tokens_per_s"]:,.0f} tokens/s, K={args.num_cells}, '
          f'{counted(args.num_groups, "group")} of {args.group_size}, beam {args.beam_size}; the '
          f'first call took {rates["first_s"]:.1f} s')
    if 'naive_tokens_per_s' in rates:
        print(f'{rates["naive_tokens_per_s"]:,.0f} tokens/s when the whole network runs on every '
              'prefix')


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Returns the flags."""
    p = parser('bench_decoder', __doc__)
    p.add_number('--layers', 3, 'of the encoder, and of the decoder', least=1, most=10_000)
    p.add_number('--dim', 256, f'channels, a multiple of {HEADS}; a feed-forward part has 4 times '
                 'as many', least=HEADS)
    p.add_number('--vocab_size', 8000, 'ids, the start and the end included', least=END + 2)
    p.add_number('--source', 24, 'ids of a source', least=1)
    p.add_number('--length', 32, 'ids of a result', least=1)
    p.add_number('--num_cells', 1, 'K', least=1, most=MAX_CELLS)
    p.add_number('--num_groups', 4, 'groups of sentences', least=1)
    p.add_number('--group_size', 16, 'sentences of a group', least=1)
    p.add_number('--beam_size', 4, '1: greedy', least=1)
    p.add_argument('--no_baseline', action='store_true',
                   help='leave out running the network on every prefix')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    return p.parse_args(argv)


def measure(args: argparse.Namespace) -> dict[str, float]:
    """Returns tokens_per_s, first_s, and naive_tokens_per_s unless the baseline is left out."""
    import numpy as np

    from lingpipe.pipeline.decoding.decoder import Decoder
    from lingpipe.pipeline.decoding.search_params import SearchParams
    from lingpipe.pipeline.decoding.sentence_group import SentenceGroup

    program = transformer(args)
    shape = [args.num_groups, args.group_size, args.source]
    sources = np.random.default_rng(0).integers(END + 1, args.vocab_size, shape).astype(np.int32)
    groups = [SentenceGroup({'source': group_sources}, [args.length] * args.group_size)
              for group_sources in sources]
    search = SearchParams(beam_size=args.beam_size, max_length=args.length)
    decoder = Decoder(program, search, START, END)
    first_s, *times_s = [seconds(lambda: decoder.decode(groups)) for _ in range(1 + REPEATS)]
    num_tokens = args.num_groups * args.group_size * args.length
    rates = {'tokens_per_s': num_tokens / min(times_s), 'first_s': first_s}

    if not args.no_baseline:
        source = np.repeat(sources[0], args.beam_size, 0)
        logits = whole_network(program)
        logits(source[:1], source[:1])   # traces
        naive_s = seconds(lambda: [logits(source, source[:, :1].repeat(t, 1)).numpy()
                                   for t in range(1, args.length + 1)])
        rates['naive_tokens_per_s'] = args.group_size * args.length / naive_s
    return rates


def transformer(args: argparse.Namespace) -> Program:
    """Returns a Transformer of the flags' sizes, whose sentences never end."""
    import numpy as np
    import tensorflow as tf

    from lingpipe.pipeline.execution.program import Program
    from lingpipe.pipeline.planning.pipeline_params import PipelineParams
    from lingpipe.tasks.translation.transformer import Transformer
    from lingpipe.tasks.translation.translator import translation_learner

    network = Transformer.Params(
        name='model', num_encoder_layers=args.layers, num_decoder_layers=args.layers,
        vocab_size=args.vocab_size, model_dim=args.dim, hidden_dim=4 * args.dim, num_heads=HEADS,
        tied='embeddings').instantiate('model')
    spec = {name: tf.TensorSpec([1, args.source], tf.int32)
            for name in ('source', 'target', 'label')}
    spec['weight'] = tf.TensorSpec([1])
    program = Program(network, spec, PipelineParams(num_cells=args.num_cells),
                      translation_learner(args.dim).instantiate())

    never_end = np.where(np.arange(args.vocab_size) == END, -1e3, 0.)
    program.weights['model/softmax/b'].assign(never_end)
    return program


def whole_network(program: Program) -> Callable[..., tf.Tensor]:
    """Returns a function of sources [n, S] and prefixes [n, t] to the logits after them [n, V]."""
    import tensorflow as tf

    from lingpipe.layers.context import Context
    from lingpipe.layers.sequential import arguments
    weights = {path: tf.convert_to_tensor(variable) for path, variable in program.weights.items()}
    weights |= {w.path: weights[w.shared_with] for w in program.network.weights() if w.shared_with}

    def logits(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Runs the whole network on the prefixes, as decoding without a past would."""
        values = {'source': source, 'target': target}
        for layer in program.network.elements():
            theta = layer.theta(weights)
            if layer.gives_candidates:
                return layer.fprop(theta, Context(), values['x'][:, -1])
            outputs = layer.fprop(theta, Context(), **arguments(layer, values))
            values.update(layer.written(outputs))
        raise AssertionError('the network has no layer that gives candidates')

    signature = [tf.TensorSpec([None, None], tf.int32)] * 2
    return tf.function(logits, input_signature=signature, autograph=False)


def seconds(function: Callable[[], object]) -> float:
    """Returns how long a call takes."""
    start_s = time.perf_counter()
    function()
    return time.perf_counter() - start_s


if __name__ == '__main__':
    main()
