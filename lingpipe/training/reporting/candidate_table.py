"""Candidate table: the best plans that a planner has found, and the flags that give them."""
from __future__ import annotations

import dataclasses
import json
import math
import shlex
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from lingpipe.hyperparams import diff
from lingpipe.pipeline.planning.candidate import Candidate
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan_search import Found
from lingpipe.pipeline.planning.search_space import FREE
from lingpipe.training.reporting.plan_table import rendered, table_of
from lingpipe.wording.counts import counted

WIDTH = 80


@dataclasses.dataclass(frozen=True)
class Report:
    """What a planner has found.

    Attributes:
      model: the experiment's name.
      batch_size: examples of a mini-batch.
      num_devices: how many devices there are.
      hardware: what they can do.
      limit: bytes of a device; None: nobody knows.
      num_choices: how many plans it chose among.
      found: the best candidates, the fastest first, and what is left.
      params_to_run: candidate -> the Params that give it.
      params: the experiment's, without the flags.
    """
    model: str
    batch_size: int
    num_devices: int
    hardware: Hardware
    limit: float | None
    num_choices: int
    found: Found
    params_to_run: Callable[[Candidate], PipelineParams]
    params: PipelineParams

    def text(self) -> str:
        """A table of at most 80 columns, and the flags of the best plan."""
        table = table_of(['', 'K', 'R', 'M', 'schedule', 'recompute', 'examples/s', 'speed-up',
                          'bubble', 'peak GB', 'share', 'limit'],
                         left={'schedule', 'recompute', 'limit'})
        for i, candidate in enumerate(self.found.candidates, 1):
            choice = candidate.choice
            share = f'{candidate.peak_bytes / self.limit:.0%}' if self.limit else '-'
            table.add_row(
                str(i), str(choice.num_cells), str(choice.num_replicas),
                str(choice.num_micro_batches), choice.schedule,
                value_text(choice.recompute).strip('[]'),   # Brackets would be markup.
                f'{self.batch_size / candidate.step_s:,.1f}', f'{candidate.speed_up:.2f}',
                f'{candidate.bubble_share:.1%}', f'{candidate.peak_bytes / 1e9:,.2f}', share,
                candidate.limited_by)

        limit = (f'{self.limit / 1e9:,.4g} GB each' if self.limit else 'memory without a limit')
        lines = [
            f'{self.model}: the best of {counted(self.num_choices, "plan")}',
            f'for {counted(self.num_devices, "device")}: {self.hardware.name}, {limit}.',
            'K cells, R replicas, M micro-batches of each; peak and its share: of the fullest',
            'device; limit: what keeps the plan from more; speed-up: over one device.',
            '',
            rendered(table).rstrip('\n'),
            '',
            *self._moved(),
            *self._left(),
            'The first, with --json all:',
            *_wrapped(self.flags(0)),
        ]
        return '\n'.join(lines) + '\n'

    def _moved(self) -> list[str]:
        """The lines that say which plans have moved cuts, and what that gains."""
        gains = [f'{i} by {candidate.moved_gain:.1%}' for i, candidate in
                 enumerate(self.found.candidates, 1) if candidate.moved_gain]
        if not gains:
            return []
        text = ('Cuts were moved away from equal cells, which makes the simulated steps of these '
                f'plans shorter: {", ".join(gains)}.')
        return [*textwrap.wrap(text, WIDTH), '']

    def _left(self) -> list[str]:
        """The lines that say what the search has left out, if it did not come to its end."""
        if not self.found.num_left:
            return []
        return [
            f'left out, since to work them all out takes long: '
            f'{counted(self.found.num_left, "plan")};',
            f'unless cuts are moved, none has more than '
            f'{self.batch_size / self.found.left_s:,.1f} examples/s.',
            'To choose among fewer, set what you know, as with --set pipeline.num_cells=8.', '']

    def json(self) -> str:
        """One JSON object with all that is known."""
        plans = []
        for i, candidate in enumerate(self.found.candidates):
            plans.append({
                **candidate.choice._asdict(),
                'layers_per_cell': candidate.plan.partition.layers_per_cell,
                'examples_per_s': self.batch_size / candidate.step_s,
                'step_s': candidate.step_s,
                'speed_up': candidate.speed_up,
                'bubble_share': candidate.bubble_share,
                'peak_bytes': candidate.peak_bytes,
                'peak_share': candidate.peak_bytes / self.limit if self.limit else None,
                'moved_gain': candidate.moved_gain,
                'limited_by': candidate.limited_by,
                'losses_s': candidate.losses,
                'flags': self.flags(i),
            })
        return json.dumps({
            'model': self.model, 'batch_size': self.batch_size, 'num_devices': self.num_devices,
            'hardware': self._hardware(), 'device_bytes': self.limit,
            'num_choices': self.num_choices, 'num_left': self.found.num_left,
            'most_examples_per_s_left': self.batch_size / self.found.left_s, 'plans': plans}) + '\n'

    def _hardware(self) -> dict[str, Any]:
        """What devices can do; null where it takes no time, which JSON has no number for."""
        return {name: None if value == math.inf else value
                for name, value in dataclasses.asdict(self.hardware).items()}

    def flags(self, place: int) -> list[str]:
        """The --set flags that give the plan at a place, not quoted for a shell."""
        params = self.params_to_run(self.found.candidates[place])
        changed = diff(self.params, params)
        names = dict.fromkeys([*FREE, *(
            path.partition('[')[0] for path, _, _ in changed)])
        return [f'--set=pipeline.{name}={value_text(getattr(params, name))}'
                for name in names]


def value_text(value: object) -> str:
    """The text of a value, as --set takes it."""
    if isinstance(value, (tuple, list)):
        return f'[{",".join(map(value_text, value))}]'
    return f'{value:.6g}' if isinstance(value, float) and abs(value) < 1e6 else str(
        'none' if value is None else value)


def _wrapped(flags: Sequence[str]) -> list[str]:
    """Flags for a shell, in lines that end with a backslash."""
    lines: list[str] = ['']
    for flag in map(shlex.quote, flags):
        if lines[-1] and len(lines[-1]) + len(flag) + 3 > WIDTH:
            lines[-1] += ' \\'
            lines.append('')
        lines[-1] += f'{" " if lines[-1] else "    "}{flag}'
    return lines
