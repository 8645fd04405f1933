"""Problem: a network, its learner, and the metric that says which checkpoint is best.

A domain's problem extends it with what the domain needs: how to decode, what to show in
TensorBoard.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from lingpipe.checkpoint.facts import Metadata
from lingpipe.hyperparams import REQUIRED, Configurable, field
from lingpipe.input import Input
from lingpipe.layers.keras_layer import KerasLayer
from lingpipe.layers.keras_shapes import are_missing, with_shapes
from lingpipe.layers.nested import Nested
from lingpipe.layers.sequential import Sequential
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program

# The messages of a chat, such as {'role': 'user', 'content': 'Hello!'}.
Conversation: TypeAlias = Sequence[Mapping[str, Any]]


class Piece(NamedTuple):
    """A part of a text that is made for a line or a prompt, in the order in which it is written.

    Attributes:
      number: of the line, from 0.
      text: what comes next of its text.
      is_last: whether the text is whole with it.
    """
    number: int
    text: str
    is_last: bool = True


def joined(pieces: Iterable[Piece], num_texts: int) -> list[str]:
    """The whole texts of which these are the pieces."""
    texts = [''] * num_texts
    for number, text, _ in pieces:
        texts[number] += text
    return texts


class Review:
    """Sees every mini-batch of one evaluation and draws what a person should see of it.

    It keeps little, however long the evaluation is.

    Attributes:
      name: of the picture: LOGDIR/pictures/NAME-INPUT.png.
      fetch: names of the network's values that `see` is given.
    """
    name = 'review'
    fetch: Sequence[str] = ()

    def see(self, batch: Mapping[str, Nested], fetched: Mapping[str, Nested]) -> None:
        """Looks at a mini-batch, and at the values of `fetch` for all of its examples.

        The last mini-batch may end in padding, which has weight 0.
        """
        raise NotImplementedError(f'{type(self).__name__} has no see')

    def text(self) -> str:
        """What was seen, in a few words."""
        raise NotImplementedError(f'{type(self).__name__} has no text')

    def save_png(self, path: str, title: str) -> None:
        """Writes the picture.

        It is written even where there is nothing to show, so that no earlier one is left.
        """
        raise NotImplementedError(f'{type(self).__name__} has no save_png')


def is_accuracy(metric: str) -> bool:
    """Whether more of a metric is better, by its name."""
    return 'accuracy' in metric or metric.endswith('top5')


class Problem(Configurable):
    """A network that is declared, not yet on any device, and its learner.

    Attributes:
      network: the Sequential.
      learner: the Learner.
    """

    class Params(Configurable.Params):
        """What is learned, and by which measure it is judged."""
        model: Sequential.Params = field(
            REQUIRED, 'The network: layers in order, the loss the last.')
        learner: Learner.Params = field(
            Learner.Params(), 'Optimizer, learning rate, clipping, averages.')
        outputs: tuple[str, ...] = field(
            (), 'The names of the values that predictions and exports give; none: those that the '
                'model names itself or, if it names none, all that the last layer writes that is '
                'not a loss and depends on weights.')
        best_metric: str = field(
            'loss', 'The metric of the evaluation by which the best checkpoint is kept.')
        best_is_largest: bool = field(
            False, 'Whether more of best_metric is better, as of an accuracy.')

        def check(self) -> None:
            """Raises ValueError if the worst accuracy would be the best."""
            if is_accuracy(self.best_metric) and not self.best_is_largest:
                raise ValueError(f'best_metric={self.best_metric!r} with best_is_largest=False '
                                 'would keep the checkpoint with the lowest accuracy; set '
                                 'best_is_largest=True')

    params: Params

    def __init__(self, params: Params):
        super().__init__(params)
        p = self.params
        self.network: Sequential = p.model.instantiate(p.model.name or 'model')
        self.learner: Learner = p.learner.instantiate()
        weights = list(self.network.weights())
        trained = [weight.path for weight in weights
                   if weight.is_trainable and weight.shared_with is None]
        self.learner.check_paths(trained, [weight.path for weight in weights])

    def remarks(self) -> list[str]:
        """Sentences about what a user of Keras would not expect; shown with the plan."""
        paths = [layer.path for layer in self._trained_embeddings_of_keras()
                 if not layer.keeps_gradient_rows]
        if not paths or not self.learner.squares_rows() or self.learner.params.accumulate > 1:
            return []
        more = f' (and {len(paths) - 1} more)' if len(paths) > 1 else ''
        return [f'{paths[0]}{more}: if an id occurs several times in a mini-batch, its row learns '
                'from the sum of the gradients, as keeps_gradient_rows=False says; Keras squares '
                'each of them by itself, and gives other weights.']

    def _trained_embeddings_of_keras(self) -> list[KerasLayer]:
        return [layer for layer in self.network.elements()
                if isinstance(layer, KerasLayer) and layer.has_embedding and not all(
                    self.learner.is_frozen(weight.path) for weight in layer.own_weights.values())]

    def images(self, batch: dict[str, Nested]) -> dict[str, Nested]:
        """Returns pictures of a mini-batch for TensorBoard, by name; here none.

        Each is [n, height, width, 1, 3 or 4], of uint8 or of floats from 0 to 1.
        """
        return {}

    def check_input(self, source: Input) -> None:
        """Raises ValueError for an input that the network cannot learn from or be evaluated on.

        Here any input will do.
        """

    def facts(self, source: Input) -> dict[str, Any]:
        """Returns what a checkpoint keeps, as JSON, of what its weights were trained for.

        Here that is nothing.
        """
        return {}

    def check_facts(self, facts: Metadata, source: Input) -> None:
        """Raises ValueError if weights cannot learn from `source`, or be evaluated on it.

        Here any weights can.

        Args:
          facts: what `facts` gave when the weights were trained; {} in a new run.
          source: an input.
        """

    def check_taken(self, facts: Metadata, keys: Iterable[str], source: Input) -> None:
        """Raises ValueError if variables cannot start from another run's and learn from `source`.

        Here any can.

        Args:
          facts: those of the other run.
          keys: of the variables.
          source: the input to learn from.
        """

    def decode(self, program: Program, lines: Sequence[str],
               facts: Metadata) -> Sequence[str]:
        """What the network makes of lines of text, one line each, in order; for --mode=decode.

        Args:
          program: with the weights of a checkpoint.
          lines: without their ends.
          facts: what `facts` returned when the weights were trained; {} if the checkpoint has none.
        """
        raise ValueError(f'{type(self).__name__} has no decode(), so that it cannot answer lines '
                         'of text; use --mode=predict, or give the task a decode().')

    def decode_by_pieces(self, program: Program, lines: Sequence[str],
                         facts: Metadata) -> Iterator[Piece]:
        """Yields the results of `decode` in pieces, as they are written.

        By default each result is one piece.
        """
        for number, text in enumerate(self.decode(program, lines, facts)):
            yield Piece(number, text)

    def generate(self, program: Program, prompts: Sequence[str | Conversation], facts: Metadata,
                 **fields: Any) -> Iterator[Piece]:
        """Yields the continuations of texts piece by piece, as they are written; for Run.stream.

        Args:
          program, facts: those of `decode`.
          prompts: texts of any number of lines, or conversations that are to be answered.
          **fields: settings that are to differ from those of the Params.
        """
        raise ValueError(f'{type(self).__name__} continues no texts; run.generate is for tasks '
                         'that have generate(), as what language_problem of '
                         'lingpipe.tasks.text.task makes of any language model.')

    def continuations(self, program: Program, prompts: Sequence[str | Conversation],
                      facts: Metadata, **fields: Any) -> list[str]:
        """Returns the whole continuations of texts, in their order; for Run.generate.

        The arguments are those of `generate`, whose pieces are joined. A task may have a faster
        way, since nobody sees a text before it ends.
        """
        return joined(self.generate(program, prompts, facts, **fields), len(prompts))

    def translate(self, program: Program, lines: Sequence[str], facts: Metadata,
                  **fields: Any) -> Sequence[str]:
        """Returns the translations of lines, in their order; for Run.translate.

        Args:
          program, lines, facts: those of `decode`.
          **fields: settings that are to differ from those of the Params.
        """
        raise ValueError(f'{type(self).__name__} translates no lines; run.translate is for tasks '
                         'that have translate(), as Translation.')

    def derived_metrics(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Returns measures of a whole evaluation that are computed from its losses and metrics.

        They are reported beside these; by default there are none. A perplexity, which is not a mean
        over tokens, is such a measure.
        """
        return {}

    def why_not_measured(self, metric: str) -> str:
        """Why an evaluation does not give a metric that others of its kind give; '' if unknown.

        Errors quote it.
        """
        return ''

    def review(self, source: Input) -> Review | None:
        """A new review of an evaluation on `source`; by default there is none."""
        return None


def with_keras_shapes(params: Problem.Params, source: Input) -> Problem.Params:
    """Params whose KerasLayers all have the shapes of what they read of the input `source`.

    Raises:
      ValueError: a layer reads what nothing writes, or does not take what it reads.
    """
    if not are_missing(params.model):
        return params
    return params.copy().set(model=with_shapes(params.model, source.specs()))
