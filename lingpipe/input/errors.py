"""Errors of inputs: what an input's own code raises, inside tf.data or before, as one sentence."""
from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from lingpipe.process.error_text import sentence

# What TensorFlow makes of an exception of Python inside tf.numpy_function or tf.py_function.
_FROM_PYTHON = re.compile(r'(?<![\w.])(\w+): (.*?)\n+Traceback', re.DOTALL)
# Errors that the data or the code of an input can cause; others tell of lost workers, or that all ends.
_OF_INPUTS = (tf.errors.InvalidArgumentError, tf.errors.UnknownError, tf.errors.NotFoundError, tf.errors.DataLossError,
              tf.errors.UnimplementedError, tf.errors.FailedPreconditionError, tf.errors.PermissionDeniedError)


@contextlib.contextmanager
def one_sentence(name: str) -> Iterator[None]:
    """Raises ValueError for what the code of the input called `name` raises.

    An error that is a sentence for people already stays as it is: a ValueError or OSError.
    """
    try:
        yield
    except StopIteration:
        raise
    except tf.errors.OpError as error:
        if not isinstance(error, _OF_INPUTS):
            raise
        found = _FROM_PYTHON.search(error.message)
        if found and found[1] == 'ValueError':
            raise ValueError(found[2]) from error
        what = f'{found[1]}: {found[2]}' if found else sentence(error)
        raise ValueError(f'{name} cannot make a mini-batch: {" ".join(what.split())}') from error
    except Exception as error:
        # Autograph makes a page of what user code raises, which is the context of its own error.
        own = error.__context__ if hasattr(error.__context__, 'ag_error_metadata') else error
        if isinstance(own, ValueError | OSError):
            if own is error:
                raise
            raise ValueError(str(own)) from error
        raise ValueError(f'{name} cannot be read: its code raises {type(own).__name__}: {" ".join(str(own).split())}') from error
