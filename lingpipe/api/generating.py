"""Generating: texts that continue prompts, with the weights of a run's checkpoint."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lingpipe.api.open_run import OpenRun
from lingpipe.training.problem import Piece
from lingpipe.training.site import Site
from lingpipe.wording.values import show


def texts(run: OpenRun, prompts: Sequence[str], checkpoint: str | int | None,
          fields: Mapping[str, Any]) -> list[str]:
    """Returns the texts that continue prompts; see Run.generate."""
    if isinstance(prompts, str):
        raise ValueError('prompts is one text; give a list of them, or use run.stream(prompt).')
    prompts = list(prompts)
    for prompt in prompts:
        _check_prompt(prompt, 'prompts has {}, but must be a list of texts')

    continuations = [''] * len(prompts)
    for number, text, _ in _pieces(run, prompts, checkpoint, fields):
        continuations[number] += text
    return continuations


def stream(run: OpenRun, prompt: str, checkpoint: str | int | None,
           fields: Mapping[str, Any]) -> Iterator[str]:
    """Yields the text that continues one prompt, piece by piece; see Run.stream."""
    _check_prompt(prompt, 'prompt is {}, but must be one text')
    for _, text, _ in _pieces(run, [prompt], checkpoint, fields):
        if text:
            yield text


def _pieces(run: OpenRun, prompts: Sequence[str], checkpoint: str | int | None,
            fields: Mapping[str, Any]) -> Iterator[Piece]:
    def begin(site: Site) -> Iterator[Piece]:
        network, metadata = run.restored(site, checkpoint)
        return run.experiment.task.generate(
            network.program, prompts, metadata.get('task', {}), **fields)

    pieces = run.at_site(begin)
    while (piece := run.at_site(lambda site: next(pieces, None))) is not None:
        yield piece


def _check_prompt(prompt: object, rule: str) -> None:
    """Raises ValueError unless a prompt is a text that a file could hold.

    Args:
      prompt: what the caller gave.
      rule: the beginning of the error, in which {} stands for the prompt.
    """
    if not isinstance(prompt, str):
        raise ValueError(f'{rule.format(show(prompt))}; give strings.')
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f'the prompt {show(prompt)} has half a character; correct it.') from error
