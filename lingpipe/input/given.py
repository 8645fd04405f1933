"""Given: inputs of Python objects, as a notebook has them, without a class of one's own.

    lp.ArrayInput.of({'image': images, 'labels': labels}, batch_size=32)
    lp.DatasetInput.of(make_dataset, batch_size=32)
    lp.SourceInput.of(source, batch_size=32)

Each returns Params, which hold the object besides their fields. Their text cannot: it has a line
that tells one object from another, so that a run that is resumed notices that it is given another.
"""
from __future__ import annotations

from typing import Any, Self

from lingpipe.hyperparams import field
from lingpipe.input.example_source import ExampleSource

_OBJECT = '_given'   # Of Params: what is no field, since no text holds it.


class GivenParams(ExampleSource.Params):
    """Params that hold an object; a base for those of inputs."""
    contents: str = field('', 'What was given, in a few words, by which it is recognised.')

    @property
    def given(self) -> Any:
        """The object.

        Raises:
          ValueError: these Params were read from text.
        """
        if _OBJECT not in vars(self):
            raise ValueError(f'the Params of this input were read from text, which does not hold '
                             f'what was given ({self.contents}); give it again.')
        return vars(self)[_OBJECT]

    def giving(self, given: Any) -> Self:
        """Sets the object; returns the Params."""
        vars(self)[_OBJECT] = given
        return self

    def copy(self) -> Self:
        """A deep copy, not frozen, with no parent, that holds the same object."""
        copied = super().copy()
        return copied.giving(self.given) if _OBJECT in vars(self) else copied

    __copy__ = copy
