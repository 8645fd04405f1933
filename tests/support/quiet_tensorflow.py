"""Importing this makes TensorFlow's import quiet and quick, as it is in the trainer's process."""
from lingpipe.process import tensorflow_import

tensorflow_import.quiet(is_own_process=True)
