"""Elements: the examples of data sets by name, in the forms that Keras takes too."""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lingpipe.layers.nested import Nested

NAMES = ('x', 'labels', 'weight')   # what x, y and sample_weight of Keras are called here


def named(parts: Sequence[Nested], names: Sequence[str]) -> dict[str, Nested]:
    """Returns the parts of a tuple by name.

    What Keras takes in place of one array has names of its own: a dict x is spread, and a dict y
    has the labels of several outputs. With other names than NAMES, a dict stays one nested value.

    Args:
      parts: as (x, y, sample_weight), perhaps without the last ones.
      names: a name for each of them, or for more.

    Raises:
      ValueError: there are weights for each output, or two values have one name.
    """
    values: dict[str, Nested] = {}
    for name, default, part in zip(names, [*NAMES, *names], parts, strict=False):
        own = {name: part}
        if name == default and isinstance(part, Mapping):
            if name == 'weight':
                check_weight(part)
            own = dict(part) if name == 'x' else {
                of_output(output): value for output, value in part.items()}
        if twice := sorted(values.keys() & own):
            raise ValueError(f'an element has {twice[0]!r} in x and as another part of the tuple; '
                             'give one of them another name, or leave it out.')
        values |= own
    return values


def of_output(output: str, known: Collection[str] | None = None) -> str:
    """Returns the name of the labels of an output of several.

    Args:
      output: the name of the output, as in Keras, or that of its labels.
      known: the names of all labels, if they are known.
    """
    name = f'labels_{output}'
    is_name = output.startswith('labels') if known is None else name not in known
    return output if is_name else name


def check_weight(sample_weight: Nested | None) -> None:
    """Raises ValueError if each output has weights of its own, as Keras may be given."""
    if isinstance(sample_weight, Mapping):
        raise ValueError(f'sample_weight is a dict ({", ".join(sample_weight)}), but an example '
                         'has one weight for all outputs; give an array [N], and what an output '
                         'counts as loss_weights of model.compile.')
