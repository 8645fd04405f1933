"""What is proposed after steps that were not finite."""
from __future__ import annotations

import pathlib

import tensorflow as tf

from lingpipe.checkpoint import Checkpointer
from lingpipe.training.initialize_from import InitializeFrom
from lingpipe.training.remedy import remedy
from tests.support.tiny_experiment import Tiny


def test_a_run_from_a_checkpoint_takes_nothing_else_of_where_this_one_began(
        tmp_path: pathlib.Path) -> None:
    """Its checkpoint has the adapters, and rules were for another source."""
    checkpointer = Checkpointer(str(tmp_path / 'checkpoints'))
    path = checkpointer.save(1, {'weights/w': tf.Variable(1.)})
    params = Tiny.params()
    params.initialize_from = InitializeFrom(directory='folder', adapters='lora',
                                            rules=(('weights/w', 'weights/v'),))
    text = remedy(params, checkpointer, str(tmp_path), last_finite=2)
    assert f'--set initialize_from.directory={path} ' in text
    assert (r"""--set 'initialize_from.rules=[["weights/(.*)", "weights/\\1"]]' """
            """--set 'initialize_from.adapters=""' """) in text
