"""Newest checkpoint: which one a logdir has, as far as its files tell."""
from __future__ import annotations

import pathlib

import tensorflow as tf

from lingpipe.checkpoint import Checkpointer
from lingpipe.training.newest_checkpoint import facts_of


def test_the_facts_of_the_newest_are_those_of_the_newest_that_is_whole(
        tmp_path: pathlib.Path) -> None:
    """There were none if the newest was damaged, so that each call read the one before it again."""
    checkpointer = Checkpointer(str(tmp_path / 'checkpoints'))
    for step in 1, 2, 3:
        checkpointer.save(step, {'weights/w': tf.Variable(float(step))}, {'task': {'step': step}})
    facts = facts_of(str(tmp_path), 'newest')
    assert facts and facts['step'] == 3 and facts['metadata'] == {'task': {'step': 3}}
    assert facts == facts_of(str(tmp_path), '3') != facts_of(str(tmp_path), '2')

    (tmp_path / 'checkpoints/step-00000003/metadata.json').write_text('{')
    (tmp_path / 'checkpoints/step-00000002/variables.index').write_bytes(b'')
    assert facts_of(str(tmp_path), '3') is facts_of(str(tmp_path), '2') is None
    facts = facts_of(str(tmp_path), 'newest')
    assert facts and facts['step'] == 1
