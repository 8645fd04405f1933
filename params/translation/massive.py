"""Massively multilingual translation: 102 languages to English in one model.

This is section 5 of the GPipe paper (arXiv:1811.06965). T(L, H, A) has L layers in the encoder and
L in the decoder, 1024 channels, H hidden units, A heads of 64 channels, and a vocabulary of 64,000
pieces that all languages share. The recipe is the Transformer's, with the paper's two measures for
deep models: the initial values of the feed-forward weights are divided by the number of layers, and
the logits are clipped. None of these experiments was trained when it was written.

You need your own corpus, in data/massive: see lingpipe.tools.build_corpus and
lingpipe.tools.train_vocabulary (--size=64000).
"""
from __future__ import annotations

from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.translation.inputs import TranslationInput
from lingpipe.tasks.translation.transformer import Transformer
from lingpipe.tasks.translation.translator import translation_learner, translator
from lingpipe.training.experiment import Experiment
from lingpipe.training.registry import register
from lingpipe.training.train_params import TrainParams

VOCAB_SIZE = 64_000
BATCH_SIZE = 2048   # Of 128 tokens each: the paper's smallest mini-batch, 260K tokens.
DIRECTORY = 'data/massive'
MAX_ABS_LOGIT = 30.


def transformer(num_layers: int, hidden_dim: int, num_heads: int,
                vocabulary_shards: int = 1) -> Transformer.Params:
    """Returns T(L, H, A): one table for source and target, and another one for the softmax."""
    return Transformer.Params(
        num_encoder_layers=num_layers, num_decoder_layers=num_layers, vocab_size=VOCAB_SIZE,
        model_dim=1024, hidden_dim=hidden_dim, num_heads=num_heads, head_dim=64,
        tied='embeddings', dropout_rate=0.1, label_smoothing=0.1, divide_ffn_init_by_depth=True,
        max_abs_logit=MAX_ABS_LOGIT, vocabulary_shards=vocabulary_shards)


def experiment(network: Transformer.Params, num_cells: int) -> Experiment.Params:
    """Returns the experiment that trains a T(L, H, A) in K cells.

    It has 4 K micro-batches, which make the bubble negligible, and at least 32.
    """
    train_input = TranslationInput.Params(
        directory=DIRECTORY, batch_size=BATCH_SIZE, bucket_lengths=(32, 64, 128), temperature=5.)
    test_input = TranslationInput.Params(
        directory=DIRECTORY, split='test', batch_size=BATCH_SIZE, bucket_lengths=(32, 64, 128),
        overlong='cut', shuffle=False, num_epochs=1)
    return Experiment.Params(
        task=translator(network, translation_learner(model_dim=1024)),
        train_input=train_input,
        eval_inputs={'test': test_input},
        pipeline=PipelineParams(num_cells=num_cells, num_micro_batches=max(32, 4 * num_cells)),
        train=TrainParams(num_steps=500_000, checkpoint_every_steps=1000, eval_every_steps=5000))


@register
class T6x8192x16:
    """Trains T(6, 8192, 16), 408 M weights, K = 1: the paper's baseline, a Transformer Big.

        python -m lingpipe.trainer --model=translation.massive.T6x8192x16 --logdir=/tmp/massive
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(transformer(6, 8192, 16), num_cells=1)


@register
class T12x16384x32:
    """Trains T(12, 16384, 32), 1.24 G weights, K = 2: the wide model.

        python -m lingpipe.trainer --model=translation.massive.T12x16384x32 --logdir=/tmp/massive
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(transformer(12, 16384, 32, vocabulary_shards=4), num_cells=2)


@register
class T24x8192x16:
    """Trains T(24, 8192, 16), 1.24 G weights, K = 4: the deep model.

        python -m lingpipe.trainer --model=translation.massive.T24x8192x16 --logdir=/tmp/massive

    In the paper it is better than the wide model in languages with few examples.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(transformer(24, 8192, 16, vocabulary_shards=4), num_cells=4)


@register
class T32x16384x32:
    """Trains T(32, 16384, 32), 3.1 G weights, K = 8.

        python -m lingpipe.trainer --model=translation.massive.T32x16384x32 --logdir=/tmp/massive
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(transformer(32, 16384, 32, vocabulary_shards=4), num_cells=8)


@register
class T64x16384x32:
    """Trains T(64, 16384, 32), 6.0 G weights, K = 16: the paper's largest, 128 layers.

        python -m lingpipe.trainer --model=translation.massive.T64x16384x32 --logdir=/tmp/massive
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(transformer(64, 16384, 32, vocabulary_shards=4), num_cells=16)
