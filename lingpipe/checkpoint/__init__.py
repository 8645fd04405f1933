"""Checkpoint: variables and a few facts about them on disk, whole or not at all.

    checkpoints/step-00000123/variables.index, variables.data-...     TensorFlow's tensor bundle, keyed by path, never by cell
                              metadata.json                           shapes, dtypes, the caller's metadata, lengths and a hash of
                                                                      the files beside it, a checksum of its own
    checkpoints/best.json                                             the step that is kept for its metric
    checkpoints/tmp-*                                                 being written; left over after a kill, removed at the next start
    checkpoints/old-step-*                                            in the way of a newer save of the same step
    checkpoints/bad-step-*                                            damaged, kept for a person to look at, otherwise ignored

A directory gets its final name by one rename when all its files are on the disk, so a kill at any moment leaves the checkpoints
before it. Bits that rot later are found by the checksums that TensorFlow keeps for every tensor, files of two steps and parts of copies by
what metadata.json says of the others. The process that trains writes and reads
all files, so that workers on other machines need no file system in common.

    files.py         the files of one checkpoint           initialization.py  weights from another experiment
    checkpointer.py  which are kept, which is restored     copier.py          what is written while training goes on
"""
from lingpipe.checkpoint.checkpointer import Checkpointer
from lingpipe.checkpoint.initialization import Initialization, initialize

__all__ = ['Checkpointer', 'Initialization', 'initialize']
