"""Arguments: checks of what the methods of a run are given, with a word for users of Keras."""
from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lingpipe.wording.keras_words import are_examples, place_of
from lingpipe.wording.values import show


def refuse_unknown(method: str, unknown: Mapping[str, object], known: str) -> None:
    """Raises TypeError if a method was given arguments that it does not have.

    Args:
      method: its name.
      unknown: the arguments that it does not have, by name.
      known: the names of those that it has, as the error lists them.
    """
    for name in unknown:
        raise TypeError(f'{method}() has no argument {name!r}: '
                        f'{place_of(name) or f"it has {known}"}')


def refuse_examples(*values: object) -> None:
    """Raises TypeError if `train` was given examples, as Keras' fit is."""
    if are_examples(*values):
        raise TypeError('train() takes no examples: they come from train_input of the '
                        "experiment, as lp.ArrayInput.of({'x': x, 'labels': y}, "
                        'batch_size=32).')


def check_steps(steps: object) -> None:
    """Raises ValueError unless this is a number of steps to train, or None."""
    if steps is not None and not (isinstance(steps, (int, np.integer)) and steps >= 0):
        raise ValueError(f'steps={show(steps)} is no number of steps; use a whole number of 0 '
                         'or more.')


def check_outputs(outputs: object) -> None:
    """Raises TypeError for one name, of which Python would make a list of letters."""
    if isinstance(outputs, str):
        raise TypeError(f'outputs is {show(outputs)}, but must be a list of names; write '
                        f'outputs=[{show(outputs)}].')
