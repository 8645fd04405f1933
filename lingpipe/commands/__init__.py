"""Commands: what the trainer does with an experiment; the flag --mode names one.

    train.py     train, train_and_eval    serve.py         worker
    evaluate.py  eval                     device_setup.py  devices, threads and workers of a process
    decode.py    decode                   recovery.py      what becomes of a process that loses a worker
    inspect.py   inspect

Each takes the experiment's Params and the trainer's flags, and returns the exit code. None is imported before it is needed: TensorFlow
takes seconds.
"""
