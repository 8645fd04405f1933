"""Modes: what the trainer does with an experiment.

    training.py    train, train_and_eval          placement.py  devices, threads and workers of a process
    evaluation.py  eval                           recovery.py   what becomes of a process that loses a worker
    decoding.py    decode                         logdir.py     whose experiment it is, its newest weights
    worker.py      worker                         inspection.py inspect
                                                  lock.py       one trainer at a time in a logdir

Each takes the experiment's Params and the trainer's flags, and returns the exit code. None is imported before it is needed: TensorFlow
takes seconds.
"""
