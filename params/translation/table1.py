"""Transformer-L of the GPipe paper's Tables 1 to 3 (arXiv:1811.06965).

The tables say how deep a Transformer can be on K accelerators of 16 GB, and how fast it is. The
network is a decoder alone: 2048 channels, 8192 hidden units, 32 heads and a vocabulary of 32,000.
It is trained on 32 sequences of 1024 tokens an update, by RMSProp with momentum.

Because the tables are about memory and speed alone, the tokens are random. The paper does not print
the learning rate; it is the Transformer's here. M is 32, one sequence a micro-batch, which for
K = 32 and 128 is less than the paper's 4 K.

None of these experiments was trained when it was written. `--mode=inspect` prints the weights, the
partition and the forecast of memory; `lingpipe.tools.paper_tables` prints the tables.
"""
from __future__ import annotations

from typing import Literal

from lingpipe.learning import optimizers
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
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
    """Returns Transformer-L."""
    return Transformer.Params(
        num_encoder_layers=0, num_decoder_layers=num_layers, vocab_size=VOCAB_SIZE,
        model_dim=2048, hidden_dim=8192, num_heads=32, divide_ffn_init_by_depth=True)


def experiment(num_layers: int, num_cells: int, num_micro_batches: int = BATCH_SIZE,
               recompute: Literal['none', 'cell'] = 'cell') -> Experiment.Params:
    """Returns the experiment that trains Transformer-L in K cells."""
    learner = translation_learner(model_dim=2048)
    learner.optimizer = optimizers.RMSProp.Params(momentum=0.9)
    return Experiment.Params(
        task=translator(transformer(num_layers), learner),
        train_input=RandomTokens.Params(
            batch_size=BATCH_SIZE, vocab_size=VOCAB_SIZE, target_length=LENGTH),
        pipeline=PipelineParams(num_cells=num_cells, num_micro_batches=num_micro_batches,
                                recompute=recompute, schedule='gpipe'),
        train=TrainParams(num_steps=100))


@register
class Transformer3:
    """Trains Transformer-3, 282 M weights, K = 1: Naive-1 of Table 1.

        python -m lingpipe.trainer --model=translation.table1.Transformer3 --logdir=/tmp/table1

    It has no micro-batches and no recomputation. In the paper it is the deepest that one
    accelerator of 16 GB trains by itself. lingpipe would need 32 GB there (forecast of
    --mode=inspect, 2026-11-22).
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(3, num_cells=1, num_micro_batches=1, recompute='none')


@register
class Transformer13:
    """Trains Transformer-13, 786 M weights, K = 1: Pipeline-1 of Table 1.

        python -m lingpipe.trainer --model=translation.table1.Transformer13 --logdir=/tmp/table1

    It has micro-batches and recomputation.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(13, num_cells=1)


@register
class Transformer24:
    """Trains Transformer-24, 1.3 G weights, K = 8, M = 32, as in Table 3.

        python -m lingpipe.trainer --model=translation.table1.Transformer24 --logdir=/tmp/table1

    Table 3 measures the throughput without a fast interconnect. At M = 32, relative to K = 2, the
    paper has 1.8 for K = 4 and 3.3 for K = 8. It does not give the sizes; these are Table 1's.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(24, num_cells=8)


@register
class Transformer48:
    """Trains Transformer-48, 2.5 G weights, K = 8, M = 32, as in Table 2.

        python -m lingpipe.trainer --model=translation.table1.Transformer48 --logdir=/tmp/table1

    The paper's throughput at M = 32, relative to K = 2 and M = 1, is 1.8, 3.4 and 6.3 for K = 2, 4
    and 8. It does not give the sizes; these are Table 1's.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(48, num_cells=8)


@register
class Transformer103:
    """Trains Transformer-103, 5.3 G weights, K = 8: Pipeline-8 of Table 1.

        python -m lingpipe.trainer --model=translation.table1.Transformer103 --logdir=/tmp/table1
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(103, num_cells=8)


@register
class Transformer415:
    """Trains Transformer-415, 21.0 G weights, K = 32: Pipeline-32 of Table 1.

        python -m lingpipe.trainer --model=translation.table1.Transformer415 --logdir=/tmp/table1
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(415, num_cells=32)


@register
class Transformer1663:
    """Trains Transformer-1663, 83.9 G weights, K = 128: Pipeline-128 of Table 1.

        python -m lingpipe.trainer --model=translation.table1.Transformer1663 --logdir=/tmp/table1

    It is 298 times as large as what one accelerator trains by itself in the paper.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(1663, num_cells=128)
