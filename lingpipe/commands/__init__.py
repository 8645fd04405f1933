"""Commands: what the trainer does with an experiment; the flag --mode names one.

    train.py     train, train_and_eval    run_options.py   what a command is asked for
    evaluate.py  eval                     device_setup.py  devices, threads and workers of a process
    decode.py    decode                   recovery.py      what a process does that loses a worker
    inspect.py   inspect                  flags.py         the flags, and the options they give
    predict.py   predict                  early_start.py   what it does if TensorFlow starts early
    export.py    export                   line_input.py    lines that a command reads
    serve.py     worker

Each takes the experiment's Params and RunOptions, and returns what it found; trainer.py makes an
exit code of it. None is imported before it is needed: TensorFlow takes seconds.
"""
