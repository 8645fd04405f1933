"""Problem: what is learned and how: a network, its learner, and the metric that says which checkpoint is best.

A domain's task extends it with what the domain needs (how to decode, what to show in TensorBoard).
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lingpipe.hyperparams import REQUIRED, Configurable, field
from lingpipe.input import Input
from lingpipe.layers.sequential import Sequential
from lingpipe.learning.learner import Learner

if TYPE_CHECKING:
    from lingpipe.pipeline.execution.program import Program


class Review:
    """Sees every mini-batch of one evaluation and draws what a person should see of it; keeps little, however long that is.

    Attributes:
      name: of the picture: LOGDIR/pictures/NAME-INPUT.png.
      fetch: names of the network's values that `see` is given.
    """
    name = 'review'
    fetch: Sequence[str] = ()

    def see(self, batch: Mapping[str, Any], fetched: Mapping[str, Any]) -> None:
        """Looks at a mini-batch, and at the values of `fetch` for all of its examples.

        The last mini-batch may end in padding, which has weight 0.
        """
        raise NotImplementedError(f'{type(self).__name__} has no see')

    def text(self) -> str:
        """What was seen, in a few words."""
        raise NotImplementedError(f'{type(self).__name__} has no text')

    def save_png(self, path: str, title: str) -> None:
        """Writes the picture, also where there is nothing to show, so that none of an earlier evaluation is left."""
        raise NotImplementedError(f'{type(self).__name__} has no save_png')


class Task(Configurable):
    """A network that is declared, not yet on any device, and its learner.

    Attributes:
      network: the Sequential.
      learner: the Learner.
    """

    class Params(Configurable.Params):
        """What is learned, and by which measure it is judged."""
        model: Sequential.Params = field(REQUIRED, 'The network: layers in order, the loss the last.')
        learner: Learner.Params = field(Learner.Params(), 'Optimizer, learning rate, clipping, averages.')
        best_metric: str = field('loss', 'The metric of the evaluation by which the best checkpoint is kept.')
        best_is_largest: bool = field(False, 'Whether more of best_metric is better, as of an accuracy.')

    params: Params

    def __init__(self, params: Any):
        super().__init__(params)
        p = self.params
        self.network: Sequential = p.model.instantiate(p.model.name or 'model')
        self.learner: Learner = p.learner.instantiate()
        self.learner.check_paths([weight.path for weight in self.network.weights() if weight.is_trainable and weight.shared_with is None])

    def images(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Pictures of a mini-batch for TensorBoard: name -> [n, height, width, 1, 3 or 4], uint8 or floats from 0 to 1; none here."""
        return {}

    def check_input(self, source: Input) -> None:
        """Raises ValueError for an input that the network cannot learn from, or be evaluated on; anything goes here."""

    def facts(self, source: Input) -> dict[str, Any]:
        """What a checkpoint keeps, besides weights, of what they were trained for on `source`, as JSON; nothing here."""
        return {}

    def check_facts(self, facts: Mapping[str, Any], source: Input) -> None:
        """Raises ValueError if weights that were trained with these facts, of `facts`, cannot learn from `source` or be evaluated on it;
        {} are those of a new training. Anything goes here."""

    def check_taken(self, facts: Mapping[str, Any], keys: Iterable[str], source: Input) -> None:
        """Raises ValueError if the variables of these keys cannot start from another training's, which has these facts, and then learn
        from `source`; anything goes here."""

    def decode(self, program: Program, lines: Sequence[str], facts: Mapping[str, Any]) -> Sequence[str]:
        """What the network makes of lines of text, one line each, in their order; for --mode=decode.

        Args:
          program: with the weights of a checkpoint.
          lines: without their ends.
          facts: what `facts` gave when these were trained; {} of a checkpoint that has none.
        """
        raise ValueError(f'{type(self).__name__} makes no text of text; --mode=decode is for tasks that have decode(), as translation.')

    def review(self, source: Input) -> Review | None:
        """A new review of an evaluation on `source`; none here."""
        return None
