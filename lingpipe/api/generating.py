"""Generating: continues prompts and translates lines with the weights of a run's checkpoint."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from lingpipe.api.open_run import OpenRun
from lingpipe.training.problem import Conversation, Piece
from lingpipe.training.site import Site
from lingpipe.wording.values import show

_T = TypeVar('_T')


class GeneratingRun(OpenRun):
    """A run that continues prompts and translates lines, if its task can."""

    def generate(self, prompts: Iterable[str | Conversation],
                 checkpoint: str | int | None = None, **fields: Any) -> list[str]:
        """Returns the texts with which a language model continues prompts.

        Args:
          prompts: texts, each of which begins a document; an empty one leaves all to the model. A
            conversation, as [{'role': 'user', 'content': 'Hello!'}], is answered: the chat template
            of the model makes the text of it.
          checkpoint: 'newest', 'best' or a step; default: as --checkpoint says, or else the newest.
          **fields: of task.decode, where they are to differ: temperature=0.8, stop=('\\n\\n',).

        Raises:
          ValueError: the task is no language model, there is no checkpoint or no such field, a
            prompt is too long, the model has no chat template or one that refuses a conversation,
            or the vocabulary is not that of the weights.
          OSError: a worker is lost.
        """
        prompts = _prompts(prompts)
        return self.at_site(lambda site: _continuations(self, site, prompts, checkpoint, fields))

    def stream(self, prompt: str | Conversation, checkpoint: str | int | None = None,
               **fields: Any) -> Iterator[str]:
        """Yields the continuation of one prompt in pieces, as they are written.

        The arguments and errors are those of `generate`. The pieces of a beam are one.
        """
        if not _is_conversation(prompt):
            _check_text(prompt, 'prompt is {}, but must be one text')
        for _, text, _ in _pieces(self, [prompt], checkpoint, fields):
            if text:
                yield text

    def translate(self, lines: Sequence[str], checkpoint: str | int | None = None,
                  **fields: Any) -> list[str]:
        """Returns the translations of lines, in their order, as --mode=decode does.

        Args:
          lines: one sentence each, with the tag of its language before it if the model was trained
            with tags: '<de> Guten Tag'. An empty line stays empty.
          checkpoint: 'newest', 'best' or a step; default: as --checkpoint says, or else the newest.
          **fields: of task.decode, where they are to differ: beam_size=1, language='de'; of a model
            of Hugging Face also target_language='fra_Latn'.

        Raises:
          ValueError: the task does not translate, there is no checkpoint or no such field, the
            vocabulary is not that of the weights or lacks the tag of a line, or no target language
            is named to a model of many.
          OSError: a worker is lost.
        """
        lines = _listed('lines', lines, 'run.translate([line])')
        for line in lines:
            _check_text(line, 'lines has {}, but must be a list of texts')
        return self.at_site(lambda site: _translations(self, site, lines, checkpoint, fields))


def _continuations(run: OpenRun, site: Site, prompts: Sequence[str | Conversation],
                   checkpoint: str | int | None, fields: Mapping[str, Any]) -> list[str]:
    network, metadata = run.restored(site, checkpoint)
    return run.experiment.task.continuations(
        network.program, prompts, metadata.get('task', {}), **fields)


def _translations(run: OpenRun, site: Site, lines: Sequence[str], checkpoint: str | int | None,
                  fields: Mapping[str, Any]) -> list[str]:
    network, metadata = run.restored(site, checkpoint)
    site.begin(f'translations with the checkpoint of step {metadata["step"]}')
    return list(run.experiment.task.translate(
        network.program, lines, metadata.get('task', {}), **fields))


def _pieces(run: OpenRun, prompts: Sequence[str | Conversation], checkpoint: str | int | None,
            fields: Mapping[str, Any]) -> Iterator[Piece]:
    def begin(site: Site) -> Iterator[Piece]:
        network, metadata = run.restored(site, checkpoint)
        return run.experiment.task.generate(
            network.program, prompts, metadata.get('task', {}), **fields)

    pieces = run.at_site(begin)
    has_same_weights = run.weights_check()
    while (piece := run.at_site(lambda site: next(pieces, None))) is not None:
        if not has_same_weights():
            raise ValueError('the run holds other weights than those that began this text, since '
                             'it has trained or read another checkpoint; begin the text again, or '
                             'finish a stream before that.')
        yield piece


def _prompts(prompts: Iterable[str | Conversation]) -> list[str | Conversation]:
    """The texts and conversations of a list. Raises ValueError if it is another thing."""
    given = _listed('prompts', prompts, 'run.stream(prompt)')   # They may come one by one.
    if _is_conversation(given):
        raise ValueError('prompts is one conversation; give a list of them, or use '
                         'run.stream(conversation).')
    for prompt in given:
        if not _is_conversation(prompt):
            _check_text(prompt, 'prompts has {}, but must be a list of texts')
    return given


def _is_conversation(prompt: object) -> bool:
    """Whether it is a list of messages, whatever they say."""
    return (isinstance(prompt, (list, tuple)) and len(prompt) > 0
            and all(isinstance(message, Mapping) for message in prompt))


def _listed(name: str, given: Iterable[_T], remedy: str) -> list[_T]:
    """What the caller gave, as a list.

    Args:
      name: of the argument.
      given: what the caller gave.
      remedy: how to write what was wanted, if the caller gave one text.

    Raises:
      ValueError: it is one text, or nothing that has elements.
    """
    if isinstance(given, str):
        raise ValueError(f'{name} is one text; give a list of them, or use {remedy}.')
    if not isinstance(given, Iterable):
        raise ValueError(f'{name} is {show(given)}; give a list of texts.')
    return list(given)


def _check_text(text: object, rule: str) -> None:
    """Raises ValueError unless this is a text that a file could hold.

    Args:
      text: what the caller gave.
      rule: the beginning of the error, in which {} stands for the text.
    """
    if not isinstance(text, str):
        raise ValueError(f'{rule.format(show(text))}; give strings.')
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f'the text {show(text)} has half a character; correct it.') from error
