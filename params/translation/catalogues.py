"""One model for the messages of MediaWiki in 101 languages, to English: small enough for two cores.

    python -m tools.get_mediawiki --output=/tmp/mediawiki                          # Debian's package, 60 MB; its messages are under GPL-2+
    python -m tools.build_corpus --output=data/catalogues --mediawiki=/tmp/mediawiki
    python -m tools.train_vocabulary --corpus=data/catalogues --size=16000

Messages are short, 6 pieces of English in the middle, and all languages translate the same 5,800, so test English is in no language's
training; a translation of English that was never seen is hard, and the numbers are low.
"""
from __future__ import annotations

from lingpipe.experiment import Experiment
from lingpipe.pipeline.plan import PipelineParams
from lingpipe.registry import register
from lingpipe.train_loop import TrainLoop
from tasks.translation.inputs import TranslationInput
from tasks.translation.transformer import Transformer
from tasks.translation.translator import translation_learner, translator

DIRECTORY = 'data/catalogues'
VOCAB_SIZE = 16_000


def experiment(num_layers: int, model_dim: int, hidden_dim: int, num_steps: int, languages: tuple[str, ...] = ()) -> Experiment.Params:
    """A Transformer of L + L layers in 2 cells, on some of the languages, or all."""
    network = Transformer.Params(
        num_encoder_layers=num_layers, num_decoder_layers=num_layers, vocab_size=VOCAB_SIZE, model_dim=model_dim, hidden_dim=hidden_dim,
        num_heads=4, tied='all', dropout_rate=0.1, label_smoothing=0.1, divide_ffn_init_by_depth=True, max_abs_logit=30.)
    train = TranslationInput.Params(directory=DIRECTORY, batch_size=32, bucket_lengths=(16, 32, 64), temperature=5., languages=languages)
    test = TranslationInput.Params(directory=DIRECTORY, split='test', batch_size=32, bucket_lengths=(64,), overlong='cut', shuffle=False,
                                   num_epochs=1, examples_per_language=20, languages=languages)
    return Experiment.Params(
        task=translator(network, translation_learner(model_dim=model_dim, warmup_steps=500, clip_norm=1.)),
        train_input=train, eval_inputs={'test': test},
        pipeline=PipelineParams(num_cells=2, num_micro_batches=4, recompute='none'),
        train=TrainLoop.Params(num_steps=num_steps, checkpoint_every_steps=500))


@register
class AllLanguages:
    """101 languages to English, 3 + 3 layers of 192 channels, in 2 cells.

        python -m lingpipe.trainer --model=translation.catalogues.AllLanguages --logdir=/tmp/all --mode=train_and_eval \\
            --set train_input.directory=CORPUS --set eval_inputs.test.directory=CORPUS
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return experiment(num_layers=3, model_dim=192, hidden_dim=768, num_steps=3000)
