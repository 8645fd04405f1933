"""Checkpoint: variables and a few facts about them on disk, whole or not at all.

    checkpoints/step-00000123/variables.index    TensorFlow's tensor bundle, keyed by path and never
                              variables.data-... by cell
                              metadata.json      shapes, dtypes, the caller's metadata, lengths and
                                                 a hash of the files beside it, and a checksum
    checkpoints/best.json                        the step that is kept for its metric
    checkpoints/tmp-*                            being written; what a kill leaves over is removed
                                                 at the next start
    checkpoints/old-step-*                       in the way of a newer save of the same step
    checkpoints/bad-step-*                       damaged; kept for a person to look at, and ignored

A directory gets its final name by one rename, when all its files are on the disk. So a kill at any
moment leaves the checkpoints before it. Files can also be damaged later. TensorFlow keeps a
checksum of every tensor, which finds bits that rot; metadata.json describes the other files, which
finds files of two steps and copies that are not complete.

Workers write and read their own variables if they see the directory at the same path. If not, the
process that trains does so for them, and workers need no file system in common.

    facts.py           metadata.json, and whether the files beside it are those it was written with
    files.py           the files of one checkpoint, written and read
    parts.py           which process writes which variables, a few at a time
    worker_files.py    what workers write and read themselves
    directory.py       the checkpoints by their steps, and what a kill leaves beside them
    best_record.py     best.json
    checkpointer.py    which checkpoints are kept, and which is restored
    chosen_step.py     newest, best or a step
    initialization.py  weights from another experiment, or from a file
    weight_files.py    files of weights that other programs have written
    hugging_face.py    folders of Hugging Face, by the names of a LanguageModel's weights
    peft_adapters.py   folders of peft, with the adapters of such a model
    copier.py          the values of variables at one moment, to be written while training goes on
    pacing.py          how much CPU time the thread that writes takes
    unreadable.py      what is there and cannot be read, which is not damage
    room.py            whether the disk has room for a checkpoint
    side_files.py      what a logdir holds besides its checkpoints

The two classes and the function below need TensorFlow, and are imported when they are first used.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lingpipe.checkpoint.checkpointer import Checkpointer
    from lingpipe.checkpoint.initialization import Initialization, initialize

__all__ = ['Checkpointer', 'Initialization', 'initialize']

if not TYPE_CHECKING:  # With a __getattr__, type checkers would take every name for public.

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first used."""
        if name not in __all__:
            raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
        file = 'checkpointer' if name == 'Checkpointer' else 'initialization'
        globals()[name] = getattr(importlib.import_module(f'{__name__}.{file}'), name)
        return globals()[name]
