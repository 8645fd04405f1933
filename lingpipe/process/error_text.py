"""Error text: what an exception says, as the one sentence that a command prints of it."""
from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

# What TensorFlow writes around the sentence that matters.
_TENSORFLOW_FRAME = re.compile(
    r'\s*$|Graph execution error:|Detected at node|<stack traces unavailable>|\s*File "|Node: |\s*\[\[|'
    r'\d+ root error|\s*\(\d+\) \w+:\s*$|\s+\[Op:')
_NODE = re.compile(r'\{\{node ([^}]+)\}\}')
_WRAPPING = re.compile(r'\{\{function_node [^}]*\}\} | ?\[Op:\w+\].*')
_MOST_CHARACTERS = 400


def sentence(error: BaseException) -> str:
    """One line that says what happened.

    Errors that are raised with a sentence for people (ValueError and the like) speak for themselves. Any
    other exception is introduced by its type, and only the first line that says something is kept.
    """
    says_enough = isinstance(error, ValueError | ArithmeticError | OSError | ImportError)
    text = ' '.join(str(error).split('\n')) if says_enough else _first_line(error)
    is_introduced = not says_enough or isinstance(error, UnicodeError) or not text
    return (f'{type(error).__name__}: {text}' if is_introduced else text).removesuffix(': ') + notes(error)


def notes(error: BaseException) -> str:
    """What was added to an exception on its way up, as ' (in layer model/a)', or '' if nothing was."""
    return ''.join(f' ({note})' for note in getattr(error, '__notes__', []))


@contextlib.contextmanager
def blaming(path: str) -> Iterator[None]:
    """Adds the path of a layer to what its code raises, unless the error names it already."""
    try:
        yield
    except Exception as error:
        if path not in f'{error} {getattr(error, "__notes__", "")}':
            error.add_note(f'in layer {path}')
        raise


def _first_line(error: BaseException) -> str:
    """The first line of the message that is more than a frame, and the place in the graph if there is one."""
    message = str(getattr(error, 'message', error))
    lines = [line for line in message.splitlines() if not _TENSORFLOW_FRAME.match(line)]
    line = _WRAPPING.sub('', lines[0]).strip() if lines else ''
    node = _NODE.search(message)
    place = f' (at {node[1]})' if node and node[1] not in line else ''
    return (line if len(line) <= _MOST_CHARACTERS else f'{line[:_MOST_CHARACTERS]} ...') + place
