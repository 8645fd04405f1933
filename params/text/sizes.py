"""Language models of 1.3, 7 and 70 billion weights, as LLaMA 2 has them (arXiv:2307.09288).

They are for a corpus of your own: name its files, or a directory of tokens (tasks/text/inputs.py).

    python -m lingpipe.trainer --model=text.sizes.G7B --logdir=/tmp/7b \\
        --set "train_input.files=['/data/*.jsonl']" --set train_input.directory=/data/tokens

None of them was trained when this was written. `--mode=inspect` counts and partitions them.
"""
from __future__ import annotations

from typing import Any

from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.text.inputs import TextInput
from lingpipe.tasks.text.language_model import LanguageModel
from lingpipe.tasks.text.task import language_learner, language_problem
from lingpipe.training.experiment import Experiment
from lingpipe.training.registry import register
from lingpipe.training.train_params import TrainParams

VOCAB_SIZE = 32_000
NUM_STEPS = 100_000


def experiment(num_cells: int, num_micro_batches: int, rate: float, length: int = 4096,
               **sizes: Any) -> Experiment.Params:
    """Returns the experiment of a size, with one example a micro-batch."""
    source = TextInput.Params(directory='data/text', vocab_size=VOCAB_SIZE, length=length,
                              batch_size=num_micro_batches, test_share=0.001)
    model = LanguageModel.Params(vocab_size=VOCAB_SIZE, dtype='bfloat16', block_size=512, **sizes)
    return Experiment.Params(
        task=language_problem(model, language_learner(rate, NUM_STEPS, warmup_steps=2000)),
        train_input=source,
        eval_inputs={'test': source.copy().set(split='test', shuffle=False, num_epochs=1)},
        pipeline=PipelineParams(num_cells=num_cells, num_micro_batches=num_micro_batches,
                                recompute='cell'),
        train=TrainParams(num_steps=NUM_STEPS))


@register
class G1B3:
    """A language model of 1.3 billion weights: 24 layers of 2048 channels, K = 4.

        python -m lingpipe.trainer --model=text.sizes.G1B3 --mode=inspect
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(4, 32, 3e-4, num_layers=24, model_dim=2048, hidden_dim=5504,
                          num_heads=16)


@register
class G7B:
    """A language model of 7 billion weights, LLaMA 2 7B: 32 layers of 4096 channels, K = 8.

        python -m lingpipe.trainer --model=text.sizes.G7B --mode=inspect
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(8, 64, 3e-4, num_layers=32, model_dim=4096, hidden_dim=11_008,
                          num_heads=32)


@register
class G70B:
    """A language model of 70 billion weights, LLaMA 2 70B: 80 layers of 8192 channels, K = 40.

        python -m lingpipe.trainer --model=text.sizes.G70B --mode=inspect

    8 heads of keys and values serve 64 heads of queries.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(40, 160, 1.5e-4, num_layers=80, model_dim=8192, hidden_dim=28_672,
                          num_heads=64, num_groups=8)
