"""A language model of Python: the standard library of the interpreter that runs it.

This text is on every machine, and its licence (PSF-2.0) allows it. Python 3.11 has 8.8 MB of it
in the folders below; 2 % of the files are kept for the evaluation.
"""
from __future__ import annotations

import os
import sysconfig

from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.text.inputs import TextInput
from lingpipe.tasks.text.language_model import LanguageModel
from lingpipe.tasks.text.task import language_learner, language_problem
from lingpipe.training.experiment import Experiment
from lingpipe.training.registry import register
from lingpipe.training.train_params import TrainParams

VOCAB_SIZE = 4000

# Folders of the standard library that are text for people to read, without tables and tests.
FOLDERS = ('.', 'asyncio', 'collections', 'concurrent', 'ctypes', 'curses', 'dbm', 'distutils',
           'email', 'html', 'http', 'importlib', 'json', 'logging', 'multiprocessing', 'sqlite3',
           'tkinter', 'tomllib', 'unittest', 'urllib', 'venv', 'wsgiref', 'xml', 'xmlrpc',
           'zoneinfo', 'idlelib')


def sources() -> tuple[str, ...]:
    """Patterns of the files of the standard library, of the folders that there are."""
    root = sysconfig.get_path('stdlib')
    folders = [os.path.normpath(os.path.join(root, folder)) for folder in FOLDERS]
    return tuple(os.path.join(folder, '*.py') for folder in folders if os.path.isdir(folder))


@register
class Small:
    """Trains 4 layers of 128 channels on the Python standard library, in 2 cells.

        python -m lingpipe.trainer --model=text.python.Small --logdir=/tmp/python-text \\
            --mode=train_and_eval

    The first run makes the tokens, in data/python-text, and the vocabulary, of 4,000 pieces.

    Measured on 2026-11-22 with Python 3.11.7, on the files of the test, after 800 steps, which are
    less than one pass over the text and take 6 minutes of CPU time on a Xeon with AVX-512, with the
    evaluation:

        loss 3.746, perplexity 42.3, 1.668 bits a byte, accuracy 0.333
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        num_steps = 800
        source = TextInput.Params(files=sources(), directory='data/python-text',
                                  vocab_size=VOCAB_SIZE, length=256, batch_size=8,
                                  test_share=0.02)
        test = source.copy().set(split='test', shuffle=False, num_epochs=1)
        model = LanguageModel.Params(vocab_size=VOCAB_SIZE, num_layers=4, model_dim=128,
                                     hidden_dim=384, num_heads=4, num_groups=2, is_tied=True)
        return Experiment.Params(
            task=language_problem(model, language_learner(3e-3, num_steps, warmup_steps=100)),
            train_input=source,
            eval_inputs={'test': test},
            pipeline=PipelineParams(num_cells=2, num_micro_batches=4),
            train=TrainParams(num_steps=num_steps, checkpoint_every_steps=500))


@register
class SmallExperts:
    """Trains `Small` with 4 experts of half the hidden units in place of each feed-forward part.

        python -m lingpipe.trainer --model=text.python.SmallExperts --logdir=/tmp/python-experts \\
            --mode=train_and_eval

    Each token goes to 2 of the experts, so that it costs about what it costs in `Small`, and the
    feed-forward parts have twice the weights. An evaluation has the balance of the experts of each
    part.

    Measured on 2026-11-23 with Python 3.11.7, on the files of the test, after 400 steps, half as
    many as `Small` makes, which take 4 minutes of CPU time on a Xeon with AVX-512, with the
    evaluation:

        loss 4.136, perplexity 62.5, 1.842 bits a byte, accuracy 0.298

    Of the four mixtures, `left_out` was 0.001 to 0.008 and `busiest` 1.15 to 1.23: hardly a token
    came over the capacity.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        num_steps = 400
        params = Small.params().set(**{'train.num_steps': num_steps})
        params.task.model.set(num_experts=4, num_chosen=2, hidden_dim=192)
        params.task.learner = language_learner(3e-3, num_steps, warmup_steps=100)
        return params
