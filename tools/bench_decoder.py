"""Measures decoding: tokens/s of greedy and beam search on K cells, and of running the whole network again on every prefix.

    python -m lingpipe.tools.bench_decoder --num_cells=2 --beam_size=4

The network is a Transformer with random weights that never says `end`, so that every sentence takes all positions.
"""
from __future__ import annotations

import argparse
import json
import time
from typing import Any

from lingpipe.tools import parser
from lingpipe.tools.command_line import MAX_CELLS, command

START, END = 1, 2
HEADS = 4
REPEATS = 3   # the fastest counts


@command
def main(argv: list[str] | None = None) -> None:
    """Measures and prints."""
    p = parser('bench_decoder', __doc__)
    p.add_number('--layers', 3, 'of the encoder, and of the decoder', least=1, most=10_000)
    p.add_number('--dim', 256, f'channels, a multiple of {HEADS}; a feed-forward part has 4 times as many', least=HEADS)
    p.add_number('--vocab_size', 8000, 'ids, the start and the end included', least=END + 2)
    p.add_number('--source', 24, 'ids of a source', least=1)
    p.add_number('--length', 32, 'ids of a result', least=1)
    p.add_number('--num_cells', 1, 'K', least=1, most=MAX_CELLS)
    p.add_number('--num_groups', 4, 'groups of sentences', least=1)
    p.add_number('--group_size', 16, 'sentences of a group', least=1)
    p.add_number('--beam_size', 4, '1: greedy', least=1)
    p.add_argument('--no_baseline', action='store_true', help='leave out running the network on every prefix')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    from lingpipe import cluster
    cluster.configure(args.num_cells)
    found = measure(args)
    if args.json:
        print(json.dumps(found))
        return
    print(f'{found["tokens_per_s"]:,.0f} tokens/s, K={args.num_cells}, {args.num_groups} groups of {args.group_size}, '
          f'beam {args.beam_size}; the first call took {found["first_s"]:.1f} s')
    if 'naive_tokens_per_s' in found:
        print(f'{found["naive_tokens_per_s"]:,.0f} tokens/s when the whole network runs on every prefix')


def measure(args: argparse.Namespace) -> dict[str, float]:
    """tokens_per_s, first_s, and unless left out naive_tokens_per_s."""
    import numpy as np
    import tensorflow as tf

    from lingpipe.pipeline.decoding.decoder import Decoder, Group
    from lingpipe.pipeline.decoding.search import SearchParams
    from lingpipe.pipeline.execution.program import Program
    from lingpipe.pipeline.planning.plan import PipelineParams
    from lingpipe.tasks.translation.transformer import Transformer
    from lingpipe.tasks.translation.translator import translation_learner
    network = Transformer.Params(
        name='model', num_encoder_layers=args.layers, num_decoder_layers=args.layers, vocab_size=args.vocab_size, model_dim=args.dim,
        hidden_dim=4 * args.dim, num_heads=HEADS, tied='embeddings').instantiate('model')
    spec: dict[str, Any] = {name: tf.TensorSpec([1, args.source], tf.int32) for name in ('source', 'target', 'label')}
    program = Program(network, spec | {'weight': tf.TensorSpec([1])}, PipelineParams(num_cells=args.num_cells),
                      translation_learner(args.dim).instantiate())
    program.weights['model/softmax/b'].assign(np.where(np.arange(args.vocab_size) == END, -1e3, 0.))
    sources = np.random.default_rng(0).integers(END + 1, args.vocab_size, [args.num_groups, args.group_size, args.source]).astype(np.int32)
    groups = [Group({'source': one}, [args.length] * args.group_size) for one in sources]
    decoder = Decoder(program, SearchParams(beam_size=args.beam_size, max_length=args.length), START, END)
    first_s, *times_s = [seconds(lambda: decoder.decode(groups)) for _ in range(1 + REPEATS)]
    made: dict[str, float] = {'tokens_per_s': args.num_groups * args.group_size * args.length / min(times_s), 'first_s': first_s}
    if not args.no_baseline:
        source = np.repeat(sources[0], args.beam_size, 0)
        logits = whole_network(program)
        logits(source[:1], source[:1])   # traces
        made['naive_tokens_per_s'] = args.group_size * args.length / seconds(
            lambda: [logits(source, source[:, :1].repeat(t, 1)).numpy() for t in range(1, args.length + 1)])
    return made


def whole_network(program: Any) -> Any:
    """A function of sources [n, S] and prefixes [n, t] to the logits after them [n, V]."""
    import tensorflow as tf

    from lingpipe.layers.context import Context
    from lingpipe.layers.sequential import arguments
    weights = {path: tf.convert_to_tensor(variable) for path, variable in program.weights.items()}
    weights |= {w.path: weights[w.shared_with] for w in program.network.weights() if w.shared_with}

    def logits(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        values = {'source': source, 'target': target}
        for layer in program.network.elements():
            if layer.gives_candidates:
                return layer.fprop(layer.theta(weights), Context(), values['x'][:, -1])
            values.update(layer.written(layer.fprop(layer.theta(weights), Context(), **arguments(layer, values))))
        raise AssertionError
    return tf.function(logits, input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2, autograph=False)


def seconds(function: Any) -> float:
    """How long a call takes."""
    start_s = time.perf_counter()
    function()
    return time.perf_counter() - start_s


if __name__ == '__main__':
    main()
