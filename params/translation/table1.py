"""Transformer-L of the GPipe paper's Tables 1 to 3 (arXiv:1811.06965): how deep a Transformer can be on K accelerators of 16 GB, how fast.

A decoder alone: 2048 channels, 8192 hidden units, 32 heads, a vocabulary of 32,000 and 32 sequences of 1024 tokens an
update, by RMSProp with momentum. The tables are about memory and speed alone: tokens are random, and the learning rate,
which the paper does not print, is the Transformer's. M is 32, one sequence a micro-batch, which is less than the paper's
4 K where K is 32 and 128. None of these was trained where they were written; `--mode=inspect` prints weights, partition
and predicted memory, `lingpipe.tools.paper_tables` the tables.
"""
from __future__ import annotations

from typing import Literal

from lingpipe.learning import optimizers
from lingpipe.pipeline.planning.plan import PipelineParams
from lingpipe.tasks.translation.random_tokens import RandomTokens
from lingpipe.tasks.translation.transformer import Transformer
from lingpipe.tasks.translation.translator import translation_learner, translator
from lingpipe.training.experiment import Experiment
from lingpipe.training.registry import register
from lingpipe.training.train_params import TrainParams

VOCAB_SIZE = 32_000
BATCH_SIZE = 32
LENGTH = 1024


def transformer(num_layers: int) -> Transformer.Params:
    """Transformer-L."""
    return Transformer.Params(num_encoder_layers=0, num_decoder_layers=num_layers, vocab_size=VOCAB_SIZE, model_dim=2048, hidden_dim=8192,
                              num_heads=32, divide_ffn_init_by_depth=True)


def experiment(num_layers: int, num_cells: int, num_micro_batches: int = BATCH_SIZE,
               recompute: Literal['none', 'cell'] = 'cell') -> Experiment.Params:
    """Transformer-L in K cells."""
    learner = translation_learner(model_dim=2048)
    learner.optimizer = optimizers.RMSProp.Params(momentum=0.9)
    return Experiment.Params(
        task=translator(transformer(num_layers), learner),
        train_input=RandomTokens.Params(batch_size=BATCH_SIZE, vocab_size=VOCAB_SIZE, target_length=LENGTH),
        pipeline=PipelineParams(num_cells=num_cells, num_micro_batches=num_micro_batches, recompute=recompute, schedule='gpipe'),
        train=TrainParams(num_steps=100))


@register
class Transformer3:
    """Transformer-3, 282 M weights, K = 1, no micro-batches, no recomputation: Table 1, Naive-1.

        python -m lingpipe.trainer --model=translation.table1.Transformer3 --logdir=/tmp/table1

    In the paper it is the deepest that one accelerator of 16 GB trains by itself. lingpipe would need 32 GB there
    (forecast of --mode=inspect, 2026-11-22).
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return experiment(3, num_cells=1, num_micro_batches=1, recompute='none')


@register
class Transformer13:
    """Transformer-13, 786 M weights, K = 1 with micro-batches and recomputation: Table 1, Pipeline-1.

        python -m lingpipe.trainer --model=translation.table1.Transformer13 --logdir=/tmp/table1
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return experiment(13, num_cells=1)


@register
class Transformer24:
    """Transformer-24, 1.3 G weights, K = 8, M = 32: the throughput without a fast interconnect of Table 3.

        python -m lingpipe.trainer --model=translation.table1.Transformer24 --logdir=/tmp/table1

    The paper's throughput at M = 32, with K = 2 as 1: 1.8 and 3.3 for K = 4 and 8. It does not say the sizes; these are Table 1's.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return experiment(24, num_cells=8)


@register
class Transformer48:
    """Transformer-48, 2.5 G weights, K = 8, M = 32: the throughput of Table 2.

        python -m lingpipe.trainer --model=translation.table1.Transformer48 --logdir=/tmp/table1

    The paper's throughput, with K = 2, M = 1 as 1: 1.8, 3.4, 6.3 for K = 2, 4, 8 at M = 32. Its sizes are Table 1's, as for Transformer-24.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return experiment(48, num_cells=8)


@register
class Transformer103:
    """Transformer-103, 5.3 G weights, K = 8: Table 1, Pipeline-8.

        python -m lingpipe.trainer --model=translation.table1.Transformer103 --logdir=/tmp/table1
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return experiment(103, num_cells=8)


@register
class Transformer415:
    """Transformer-415, 21.0 G weights, K = 32: Table 1, Pipeline-32.

        python -m lingpipe.trainer --model=translation.table1.Transformer415 --logdir=/tmp/table1
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return experiment(415, num_cells=32)


@register
class Transformer1663:
    """Transformer-1663, 83.9 G weights, K = 128: Table 1, Pipeline-128, 298 times what one accelerator trains by itself in the paper.

        python -m lingpipe.trainer --model=translation.table1.Transformer1663 --logdir=/tmp/table1
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return experiment(1663, num_cells=128)
