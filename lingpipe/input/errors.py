"""Errors of inputs: what an input's own code raises, inside tf.data or before, as one sentence."""
from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from lingpipe.process.error_text import sentence

# What TensorFlow makes of an exception of Python inside tf.numpy_function or tf.py_function.
_FROM_PYTHON = re.compile(r'(?<![\w.:])([A-Z]\w*): (.*?)\n+Traceback', re.DOTALL)

# Errors that the data or the code of an input can cause. Others mean lost workers, or a shutdown.
_OF_INPUTS = (
    tf.errors.InvalidArgumentError, tf.errors.UnknownError, tf.errors.NotFoundError,
    tf.errors.DataLossError, tf.errors.UnimplementedError, tf.errors.FailedPreconditionError,
    tf.errors.PermissionDeniedError)

# For code that takes the symbolic tensors of a graph for arrays.
_REMEDY = ('; its methods are traced, so use operations of TensorFlow, as tf.gather(array, index), '
           'or put Python into tf.numpy_function.')


@contextlib.contextmanager
def one_sentence(name: str) -> Iterator[None]:
    """Raises ValueError for whatever the code of the input called `name` raises.

    A ValueError or OSError is a sentence for people already, and stays as it is.
    """
    try:
        yield
    except StopIteration:
        raise
    except tf.errors.OpError as error:
        if not isinstance(error, _OF_INPUTS):
            raise
        from_python = _FROM_PYTHON.search(error.message)
        if from_python and from_python[1] == 'ValueError':
            raise ValueError(from_python[2]) from error
        what = f'{from_python[1]}: {from_python[2]}' if from_python else sentence(error)
        raise ValueError(f'{name} cannot make a mini-batch: {" ".join(what.split())}') from error
    except Exception as error:
        # Autograph turns what user code raises into a page of text. The user's own error is the
        # context of that.
        is_from_autograph = hasattr(error.__context__, 'ag_error_metadata')
        own_error = error.__context__ if is_from_autograph else error
        if isinstance(own_error, ValueError | OSError):
            if own_error is error:
                raise
            raise ValueError(str(own_error)) from error
        text = ' '.join(str(own_error).split())
        remedy = _REMEDY if 'symbolic' in text else ''
        raise ValueError(f'{name} cannot be read: its code raises {type(own_error).__name__}: '
                         f'{text}{remedy}') from error
