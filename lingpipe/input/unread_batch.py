"""UnreadBatch: a mini-batch that the processes of the cells make, which is only a position here."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from lingpipe.input.base import Input
from lingpipe.input.dataset_input import DatasetInput
from lingpipe.input.given import GivenParams
from lingpipe.layers.nested import Nested


class UnreadBatch(Mapping[str, Nested]):
    """A mini-batch by name, which this process makes only if somebody looks at its values.

    Attributes:
      source: its input.
      position: the number of examples consumed before.
      shape: the index of its spec among source.specs().
      waited_s: seconds that a step has waited for it; 0 before it has run.
    """

    def __init__(self, source: Input, position: int, shape: int = 0,
                 made: Mapping[str, Nested] | None = None):
        """
        Args:
          source: see above.
          position: see above.
          shape: see above.
          made: the mini-batch, if this process has made it already.
        """
        self.source, self.position, self.shape = source, position, shape
        self.waited_s = 0.
        self._made = made

    @property
    def made(self) -> Mapping[str, Nested]:
        """The mini-batch itself, made in this process."""
        if self._made is None:
            self._made = next(self.source.batches(self.position))
        return self._made

    def __getitem__(self, name: str) -> Nested:
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.made)

    def __len__(self) -> int:
        return len(self.made)


def waited_s(batch: Mapping[str, Nested]) -> float:
    """Returns the seconds that a step has waited for its mini-batch, if others made it."""
    return batch.waited_s if isinstance(batch, UnreadBatch) else 0.


def can_be_sent(source: Input) -> bool:
    """Whether another process can make an input from the text of its Params."""
    try:
        check_sendable(source)
    except ValueError:
        return False
    return True


def has_end(source: Input) -> bool:
    """Whether an input says how many mini-batches it has, which may count its examples.

    A class that makes its own dataset does only if it counts them itself.
    """
    kind = type(source)
    counts = (source.is_indexed or kind.dataset is DatasetInput.dataset
              or kind.num_batches is not Input.num_batches)
    return counts and source.num_batches() is not None


def check_sendable(source: Input) -> None:
    """Raises ValueError if another process cannot make train_input from the text of its Params."""
    name, remedy = type(source).__name__, 'or set pipeline.read_on_workers=False.'
    if isinstance(source.params, GivenParams):
        raise ValueError(
            f'train_input is {name}, whose object ({source.params.contents}) only this process '
            'has, and pipeline.read_on_workers has workers make the input from the text of its '
            f'Params; write a class of Input that finds its data itself, {remedy}')
    if type(source).__module__ == '__main__' or '<locals>' in type(source).__qualname__:
        raise ValueError(
            f'train_input is {name}, a class that workers cannot import, as '
            'pipeline.read_on_workers has them do; define it at the top of a module of its own, '
            f'{remedy}')
    if source.saves_iterator:
        raise ValueError(
            f"train_input is {name} with resume='saved_iterator', whose state only this process "
            "has, and pipeline.read_on_workers has workers begin at a position; set resume='skip', "
            f'give its function an argument `position`, {remedy}')
