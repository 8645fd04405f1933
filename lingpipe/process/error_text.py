"""Error text: an exception as the one sentence that a command prints."""
from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

# What TensorFlow writes around the sentence that matters.
_TENSORFLOW_FRAME = re.compile(
    r'\s*$|Graph execution error:|Detected at node|<stack traces unavailable>|\s*File "|Node: |'
    r'\s*\[\[|\d+ root error|\s*\(\d+\) \w+:\s*$|\s+\[Op:')
_NODE = re.compile(r'\{\{node ([^}]+)\}\}')
_KERAS_FRAME = re.compile(
    r'Exception encountered when calling .*?\n\n\x1b\[1m(.*?)\x1b\[0m\n\nArguments received',
    re.DOTALL)
_WRAPPING = re.compile(
    r'\{\{function_node [^}]*\}\} | ?\[Op:\w+\].*|'
    r'Error in user-defined function passed to \S+ transformation with iterator: \S+: ')
_MOST_CHARACTERS = 400

# The remedy if the code of a layer treats the tensors of a graph as arrays.
_SYMBOLIC_REMEDY = ('; fprop is traced, so use operations of TensorFlow, as tf.tanh for np.tanh, '
                    'and tf.where or tf.cond for if')


def sentence(error: BaseException) -> str:
    """Returns one line that says what happened.

    ValueError and similar errors are raised with a sentence for people. Any other exception is
    introduced by its type, and only the first line that says something is kept.
    """
    says_enough = isinstance(error, ValueError | ArithmeticError | OSError | ImportError)
    said = reason(error) if isinstance(error, OSError) else _without_keras(str(error))
    text = ' '.join(said.split('\n')) if says_enough else _first_line(error)
    is_introduced = not says_enough or isinstance(error, UnicodeError) or not text
    line = f'{type(error).__name__}: {text}' if is_introduced else text
    return line.removesuffix(': ') + notes(error)


def reason(error: OSError) -> str:
    """Returns why a call of the system failed, without its number: 'Permission denied: /logdir'."""
    if not error.strerror:   # raised with a sentence for people
        return str(error)
    return f'{error.strerror}: {error.filename}' if error.filename else error.strerror


def notes(error: BaseException) -> str:
    """Returns what was added to an exception on its way up, as ' (in layer model/a)', or ''."""
    return ''.join(f' ({note})' for note in getattr(error, '__notes__', []))


@contextlib.contextmanager
def blaming(path: str) -> Iterator[None]:
    """Adds the path of a layer to what its code raises, unless the error already names it."""
    try:
        yield
    except Exception as error:
        if path not in f'{error} {getattr(error, "__notes__", "")}':
            error.add_note(f'in layer {path}{symbolic_remedy(error)}')
        raise


def symbolic_remedy(error: BaseException) -> str:
    """What to write if Python or NumPy was used on a tensor of a graph; '' for other errors."""
    return _SYMBOLIC_REMEDY if 'symbolic' in str(error).lower() else ''


def _without_keras(message: str) -> str:
    """The message without what Keras writes around what the call of a layer has raised."""
    match = _KERAS_FRAME.match(message)
    return match[1] if match else message


def _first_line(error: BaseException) -> str:
    """Returns the first line of the message that is more than a frame, with its place if any."""
    message = _without_keras(str(getattr(error, 'message', error)))
    lines = [line for line in message.splitlines() if not _TENSORFLOW_FRAME.match(line)]
    line = _WRAPPING.sub('', lines[0]).strip() if lines else ''
    node = _NODE.search(message)
    place = f' (at {node[1]})' if node and node[1] not in line else ''
    if len(line) > _MOST_CHARACTERS:
        line = f'{line[:_MOST_CHARACTERS]} ...'
    return line + place
