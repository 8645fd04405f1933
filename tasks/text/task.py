"""Text: the problem that a language model learns, with its vocabulary and its measures."""
from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lingpipe.hyperparams import field
from lingpipe.input import Input
from lingpipe.layers.losses import Loss
from lingpipe.layers.sequential import Sequential
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.execution.program import Program
from lingpipe.tasks.text.chat import conversation_of
from lingpipe.tasks.text.generation import (
    STEP,
    GenerationParams,
    Generator,
    as_line,
    from_line,
)
from lingpipe.tasks.text.hugging_face import check_config
from lingpipe.tasks.text.inputs import TextInput
from lingpipe.tasks.text.vocabulary import Vocabulary, open_vocabulary
from lingpipe.tasks.translation import vocabulary_facts
from lingpipe.training.problem import Conversation, Piece, Problem, joined


class Text(Problem):
    """Predicts the next token.

    An evaluation gives, besides the loss in nats a token, `perplexity`, which is exp(loss), and
    `bits_per_byte`, the loss in bits divided by the bytes that a token stands for. Only the last
    can be compared between vocabularies. Where the loss is more than the cross-entropy, as with
    label smoothing or a second loss, or that of a layer that is no Loss, there is neither.
    """

    class Params(Problem.Params):
        """Network, learner, and how prompts are continued."""
        vocabulary: str = field(
            '', 'The file of the vocabulary that prompts are read with; empty: that of the run.')
        decode: GenerationParams = field(GenerationParams(), 'How prompts are continued.')

    params: Params

    def __init__(self, params: Params):
        super().__init__(params)
        self._last_generator: Generator | None = None
        self._is_cross_entropy = _is_cross_entropy(
            [layer.params for layer in self.network.layers() if isinstance(layer, Loss)])

    def derived_metrics(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Perplexity and, if the mini-batch has bytes, bits per byte."""
        has_other_losses = any(name.startswith('loss/') for name in metrics)   # One stands alone.
        if not self._is_cross_entropy or has_other_losses:
            return {}
        loss = metrics['loss']
        derived = {'perplexity': math.exp(min(loss, 700.))}
        if 'bytes_per_token' in metrics:
            derived['bits_per_byte'] = loss / math.log(2) / metrics['bytes_per_token']
        return derived

    def why_not_measured(self, metric: str) -> str:
        """Explains why there is no perplexity, or why there are no bits per byte."""
        has_no_bytes = metric == 'bits_per_byte' and self._is_cross_entropy
        if metric not in ('perplexity', 'bits_per_byte') or has_no_bytes:
            return ''
        return (f'{metric} is measured only where the loss is the cross-entropy alone, without '
                'label smoothing, a scale, or a second loss')

    def check_input(self, source: Input) -> None:
        """Raises ValueError unless the input has as many ids as the network."""
        size = getattr(source.params, 'vocab_size', None)
        wanted = getattr(self.params.model, 'vocab_size', size)
        if size is not None and size != wanted:
            raise ValueError(f'the input has vocab_size={size:,}, but '
                             f'task.model.vocab_size={wanted:,}; they must be equal.')

    def decode(self, program: Program, lines: Sequence[str], facts: Mapping[str, Any]) -> list[str]:
        """Returns a continuation of each line. In both, a line break is written as \\n.

        Args:
          program: the program with the weights.
          lines: one prompt each, or one conversation as JSON, as Params.decode.lines says.
          facts: the facts of the run that the weights come from, as `facts` returned them.

        Raises:
          ValueError: the vocabulary is missing or is not that of the run, or a prompt is too long,
            or is not what Params.decode.lines says.
        """
        return joined(self._pieces(program, lines, facts, STEP), len(lines))

    def decode_by_pieces(self, program: Program, lines: Sequence[str],
                         facts: Mapping[str, Any]) -> Iterator[Piece]:
        """Yields the results of `decode`, id by id."""
        return self._pieces(program, lines, facts, 1)

    def _pieces(self, program: Program, lines: Sequence[str], facts: Mapping[str, Any],
                step: int) -> Iterator[Piece]:
        """Yields the results of `decode`, so many ids at a time."""
        is_chat = self.params.decode.lines == 'chats'
        prompts = [conversation_of(line) if is_chat else from_line(line) for line in lines]
        for number, text, is_last in self._generator(program, facts, self.params.decode).pieces(
                prompts, step):
            yield Piece(number, as_line(text), is_last)

    def generate(self, program: Program, prompts: Sequence[str | Conversation],
                 facts: Mapping[str, Any], **fields: Any) -> Iterator[Piece]:
        """Yields the continuations of prompts, id by id.

        Args:
          program, prompts, facts: those of Problem.generate.
          **fields: of `task.decode`, as temperature=0.8.

        Raises:
          ValueError: as `decode`, or there is no such field.
        """
        params = self.params.decode.copy().set(**fields)
        yield from self._generator(program, facts, params).pieces(prompts, 1)

    def continuations(self, program: Program, prompts: Sequence[str | Conversation],
                      facts: Mapping[str, Any], **fields: Any) -> list[str]:
        """Returns what `generate` yields, some ids at a time, which takes less time.

        Each look at what is written decodes all of it. A stop text is looked for behind every id,
        or more ids would be written behind it.
        """
        params = self.params.decode.copy().set(**fields)
        step = 1 if params.stop else STEP
        return joined(self._generator(program, facts, params).pieces(prompts, step), len(prompts))

    def _generator(self, program: Program, facts: Mapping[str, Any],
                   params: GenerationParams) -> Generator:
        """The last generator again, with other params if they have changed.

        Its graphs take long to build, and a large tokenizer most of a second to read.
        """
        self._vocabulary_path(facts)   # The file may have changed.
        last = self._last_generator
        if last is None or last.program is not program:
            last = self._last_generator = Generator(program, self.vocabulary(facts), params)
        elif last.params != params:
            last = self._last_generator = last.with_params(params)
        return last

    def vocabulary(self, facts: Mapping[str, Any]) -> Vocabulary:
        """Returns the vocabulary of the run with these facts, or Params.vocabulary, a copy of it.

        Raises:
          ValueError: no file of the vocabulary is known, or it is another one or has more ids than
            the network.
        """
        path = self._vocabulary_path(facts)
        vocabulary = open_vocabulary(path, facts)
        vocab_size = getattr(self.params.model, 'vocab_size', vocabulary.size)
        if vocabulary.size > vocab_size:
            raise ValueError(f'{path} has {vocabulary.size:,} ids, but '
                             f'task.model.vocab_size={vocab_size:,}; set task.vocabulary to that '
                             'of this model.')
        return vocabulary

    def _vocabulary_path(self, facts: Mapping[str, Any]) -> str:
        """The file of the vocabulary. Raises ValueError if none is known, or if it is another."""
        path = vocabulary_facts.path_of_run(self.params.vocabulary, facts)
        if not os.path.exists(path):
            raise ValueError(f'the vocabulary {path} is no file; set task.vocabulary to a copy of '
                             'the one that the run used.')
        vocabulary_facts.check_is_of_run(path, facts)
        return path

    def facts(self, source: Input) -> dict[str, Any]:
        """Returns the file of the input's vocabulary, its checksum and its ends, if it has one."""
        return source.tokens.vocabulary_facts if isinstance(source, TextInput) else {}

    def check_facts(self, facts: Mapping[str, Any], source: Input) -> None:
        """Raises ValueError if the input's vocabulary is not that of the weights."""
        now = self.facts(source)
        if facts and now and facts['sha256'] != now['sha256']:
            raise ValueError(
                f'{vocabulary_facts.text_of_another(now, facts)}; make the tokens with theirs '
                f'(vocabulary={facts["vocabulary"]}), or choose another logdir.')
        if facts and now and facts.get('ends') != now.get('ends'):
            raise ValueError(
                f'texts of the input end with the ids {now["ends"]}, and those that the weights '
                f'were trained with, with {facts["ends"]}; make the tokens with the same files '
                'beside the tokenizer, or choose another logdir.')

    def check_taken(self, facts: Mapping[str, Any], keys: Iterable[str], source: Input) -> None:
        """Raises ValueError if weights are those of another vocabulary or of another network."""
        check_config(self.params.model, facts)
        text = vocabulary_facts.text_of_taken(self.facts(source), facts, keys, self.network)
        if text:
            raise ValueError(f'{text}, or make the tokens with that vocabulary (vocabulary=).')


def _is_cross_entropy(losses: Sequence[Loss.Params]) -> bool:
    """Whether the sum of a network's losses is the cross-entropy, as far as their Params say.

    A loss of another layer, of which nothing is known, has no Params here.
    """
    return len(losses) == 1 and all(
        p.scale == 1 and not getattr(p, 'label_smoothing', 0) for p in losses)


def language_problem(model: Sequential.Params, learner: Learner.Params) -> Text.Params:
    """The problem of a language model; the best checkpoint has the smallest loss.

    The model is a LanguageModel, or any network that reads `target` and writes logits.
    """
    return Text.Params(model=model.copy().set(name='model'), learner=learner)


def language_learner(rate: float, num_steps: int, warmup_steps: int,
                     weight_decay: float = 0.1) -> Learner.Params:
    """AdamW with betas 0.9 and 0.95, a cosine to nearly 0, and gradients clipped at norm 1."""
    return Learner.Params(
        optimizer=optimizers.AdamW.Params(beta_1=0.9, beta_2=0.95), weight_decay=weight_decay,
        learning_rate=learning_rates.Cosine.Params(
            rate=rate, warmup_steps=warmup_steps, decay_steps=num_steps - warmup_steps),
        clip_norm=1.)
