"""Plan freedom: which values of a pipeline a planner may choose, and which a person has set."""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from lingpipe.commands.run_options import RunOptions
from lingpipe.pipeline.planning.search_space import FREE, words_of

_OF_PIPELINE = re.compile(r'\s*pipeline\.(\w+)\s*=\s*(.*?)\s*', re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Freedom:
    """What a planner may do.

    Attributes:
      free: the fields of PipelineParams that it chooses; none if it is not asked.
      given: the fields of PipelineParams that a person has set.
    """
    free: frozenset[str]
    given: frozenset[str]

    @property
    def held(self) -> frozenset[str]:
        """The fields that stay, of those that a planner could choose."""
        return frozenset(FREE) - self.free


def freedom(options: RunOptions) -> Freedom:
    """What the flags leave to a planner.

    It chooses the fields that are 'auto'; with --plan=auto, or in --mode=plan without any 'auto',
    all that no --set sets.
    """
    texts = _texts(options.overrides)
    auto = frozenset(name for name, text in texts.items() if is_auto(name, text))
    held = frozenset(texts) - auto
    if options.has_auto_plan or options.mode == 'plan' and not auto:
        return Freedom(frozenset(FREE) - held, held)
    return Freedom(auto, held)


def values_in(overrides: Sequence[str]) -> list[str]:
    """The overrides without those that leave a value to the planner."""
    return [override for override in overrides
            if not (match := _OF_PIPELINE.fullmatch(override)) or not is_auto(match[1], match[2])]


def is_auto(name: str, text: str) -> bool:
    """Whether a text leaves the field of that name to the planner.

    A schedule may have the name 'auto' itself.
    """
    return name in FREE and text.strip('\'"') == 'auto' and 'auto' not in words_of(name)


def remedy(path: str) -> str:
    """What else may stand in a flag for the value at a path of an experiment's Params, or ''."""
    section, _, name = path.rpartition('.')
    may_be_auto = section == 'pipeline' and is_auto(name, 'auto')
    return 'auto leaves it to the planner' if may_be_auto else ''


def _texts(overrides: Sequence[str]) -> dict[str, str]:
    """Field of the pipeline -> the last text that an override gives it."""
    matches = map(_OF_PIPELINE.fullmatch, overrides)
    return {match[1]: match[2] for match in matches if match}
