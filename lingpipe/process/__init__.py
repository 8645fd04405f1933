"""The process: what exists once in it, and what it says when it ends.

    tensorflow_import.py    TensorFlow's import: quiet, or with a clear sentence
    tensorflow_settings.py  devices, threads, memory and Grappler: before TensorFlow's first op
    stop_signals.py         SIGTERM, SIGHUP and Ctrl-C
    closed_pipe.py          a command whose reader has gone
    error_text.py           an exception, in words
    exit_code.py            what ended a child process, in words
    fork_server.py          processes that begin with modules imported
    fresh_tensor.py         a number as a tensor that TensorFlow does not keep
    process_name.py         what others are told about who holds a logdir or a worker
"""
