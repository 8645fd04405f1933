"""Models that translate the messages of MediaWiki to English, small enough for two cores.

The first command unpacks Debian's package (60 MB; its messages are under GPL-2+). The others build
a corpus of all languages, and one of the 26 languages in LANGUAGES_26.

    python -m lingpipe.tools.get_mediawiki --output=/tmp/mediawiki
    python -m lingpipe.tools.build_corpus --output=data/catalogues --mediawiki=/tmp/mediawiki
    python -m lingpipe.tools.train_vocabulary --corpus=data/catalogues --size=16000
    python -m lingpipe.tools.build_corpus --output=data/catalogues26 --mediawiki=/tmp/mediawiki \\
        --languages=pt,es,fr,...
    python -m lingpipe.tools.train_vocabulary --corpus=data/catalogues26 --size=8000

Messages are short: half of them have at most 6 pieces of English. All languages translate the same
5,800 English messages, and the English of a test message is in no language's training part. So the
model has to produce English that it has never seen, which is hard, and the scores are low.
"""
from __future__ import annotations

from lingpipe.learning import learning_rates
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.translation.inputs import TranslationInput
from lingpipe.tasks.translation.transformer import Transformer
from lingpipe.tasks.translation.translator import translation_learner, translator
from lingpipe.training.experiment import Experiment
from lingpipe.training.registry import register
from lingpipe.training.train_params import TrainParams

# About nine languages of each third of the 101, by their numbers of pairs. All of them are written
# in Latin or Cyrillic letters.
LANGUAGES_26 = (
    'pt', 'es', 'fr', 'it', 'de', 'nl', 'sv', 'no', 'pl', 'ru', 'ca', 'gl', 'da', 'lb', 'sk', 'hr',
    'be', 'af', 'fy', 'gd', 'ga', 'co', 'la', 'ht', 'ku', 'uz')


def experiment(network: Transformer.Params, directory: str, bucket_lengths: tuple[int, ...],
               num_steps: int) -> Experiment.Params:
    """Returns the experiment that trains a Transformer in 2 cells on all languages of a corpus.

    Training draws the languages with T = 5. An evaluation sees 20 sentences of each.
    """
    learner = translation_learner(
        model_dim=network.model_dim, warmup_steps=500, clip_norm=1.)
    train_input = TranslationInput.Params(
        directory=directory, batch_size=32, bucket_lengths=bucket_lengths, temperature=5.)
    test_input = TranslationInput.Params(
        directory=directory, batch_size=32, split='test', bucket_lengths=bucket_lengths,
        overlong='cut', shuffle=False, num_epochs=1, examples_per_language=20)
    return Experiment.Params(
        task=translator(network, learner),
        train_input=train_input,
        eval_inputs={'test': test_input},
        pipeline=PipelineParams(num_cells=2, num_micro_batches=8, recompute='none'),
        train=TrainParams(num_steps=num_steps, checkpoint_every_steps=500))


def transformer(num_layers: int, hidden_dim: int, num_heads: int,
                vocab_size: int) -> Transformer.Params:
    """Returns L + L layers of 192 channels; source, target and softmax share one table."""
    return Transformer.Params(
        num_encoder_layers=num_layers, num_decoder_layers=num_layers, vocab_size=vocab_size,
        model_dim=192, hidden_dim=hidden_dim, num_heads=num_heads, head_dim=48, tied='all',
        dropout_rate=0.1, label_smoothing=0.1, divide_ffn_init_by_depth=True, max_abs_logit=30.)


@register
class AllLanguages:
    """Trains 101 languages to English, with 3 + 3 layers of 192 channels, in 2 cells.

        python -m lingpipe.trainer --model=translation.catalogues.AllLanguages --logdir=/tmp/all \\
            --mode=train_and_eval \\
            --set train_input.directory=CORPUS --set eval_inputs.test.directory=CORPUS
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(transformer(3, 768, 4, vocab_size=16_000), 'data/catalogues',
                          (16, 32, 64), num_steps=3000)


@register
class Languages26:
    """Trains 26 languages to English, with 3 + 3 layers of 192 channels: the first of two parts.

        python -m lingpipe.trainer --model=translation.catalogues.Languages26 \\
            --logdir=/tmp/languages26 --mode=train_and_eval \\
            --set train_input.directory=CORPUS --set eval_inputs.test.directory=CORPUS

    The languages have a vocabulary of their own. The second part is Languages26Annealed. To train
    one language alone, add --set "train_input.languages=['fy']" and
    --set "eval_inputs.test.languages=['fy']".

    Measured on 2026-11-21: BLEU and chrF on at most 100 sentences of each language, after both
    parts. These are 4,500 steps and take 120 minutes of CPU time, an hour on two cores. In brackets
    are the scores of languages with high, middle and low resources, that is numbers of training
    pairs:

        model         16.0  34.0    (20.9  38.7,   13.9  34.0,    9.3  26.0)
        dictionary    12.3  41.4    (13.9  44.9,   13.1  41.9,    8.2  34.8)
        copying        4.0  18.8    ( 3.9  20.1,    3.8  19.0,    4.6  16.0)
        model, no words dropped, 4,000 steps of the first part, 95 minutes
                      15.8  32.6    (19.8  36.3,   13.5  32.3,   11.1  26.6)

    In each third, BLEU is above both baselines. chrF is below the dictionary's in all of them, with
    any beam and any length normalisation. There are only 5,250 different English sentences to learn
    from, and where a sentence is new, the decoder writes something likely while the dictionary
    translates word for word.

    After 10 steps, K = 1, 2 and 4 give bitwise identical weights and slots (406 variables).

    One language alone, after 1,000 steps with as many tokens and without dropping words
    (--set task.model.source_word_dropout_rate=0 --set task.model.target_word_dropout_rate=0). In
    brackets are the scores of all 26 languages trained together in this way, after 1,000 and after
    4,000 steps:

        fy            12.8  29.5    ( 7.7  21.2,   18.7  29.7)
        ga             5.3  26.6    ( 1.2  17.1,    5.6  24.4)
        ht             1.7  21.1    ( 1.6  19.5,    1.7  21.6)

    So after equally many steps a language is better alone, when all of the steps are its own.
    Together with the others it needs four times as many steps to be as good or better.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        network = transformer(3, 768, 4, vocab_size=8_000).set(
            source_word_dropout_rate=0.1, target_word_dropout_rate=0.3)
        return experiment(network, 'data/catalogues26', (8, 16, 32, 64), num_steps=2500)


@register
class Languages26Annealed:
    """Trains the second part of Languages26: 2,000 steps in which the learning rate falls to 0.

        python -m lingpipe.trainer --model=translation.catalogues.Languages26Annealed \\
            --logdir=/tmp/annealed --mode=train_and_eval \\
            --set initialize_from.directory=/tmp/languages26 \\
            --set train_input.directory=CORPUS --set eval_inputs.test.directory=CORPUS
        python -m lingpipe.tools.score_translations \\
            --model=translation.catalogues.Languages26Annealed --logdir=/tmp/annealed \\
            --corpus=CORPUS --baselines

    It starts from the weights of Languages26, where the scores of both parts are given.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        params = Languages26.params()
        params.task.learner.learning_rate = learning_rates.Linear.Params(
            rate=0.0014, warmup_steps=100, decay_steps=1900)
        params.train_input.seed = 1   # The batches differ from those of the first part.
        params.train.num_steps = 2000
        params.initialize_from.directory = 'logs/languages26'
        return params


@register
class Languages26Deep:
    """Trains Languages26 with twice the layers of half the hidden units and half the heads.

        python -m lingpipe.trainer --model=translation.catalogues.Languages26Deep \\
            --logdir=/tmp/deep --mode=train_and_eval \\
            --set train_input.directory=CORPUS --set eval_inputs.test.directory=CORPUS

    It has as many weights as Languages26, except those of LayerNorm and the biases.

    Measured on 2026-11-21: BLEU and chrF on at most 50 sentences of each language (high, middle and
    low resources), after 1,000 steps on the same batches:

        this experiment                       5.5  21.1   ( 5.7  21.6,    6.0  22.3,    4.5  18.6)
        Languages26 without dropped words     8.9  24.5   (10.0  25.7,    9.3  26.0,    6.0  20.5)

    At this early point the wider network is ahead. Longer runs were not compared.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return experiment(transformer(6, 384, 2, vocab_size=8_000), 'data/catalogues26',
                          (8, 16, 32, 64), num_steps=5000)
