"""Verdict: whether a plan fits, how fast it is, and the one change that would help most."""
from __future__ import annotations

import dataclasses
import textwrap

from lingpipe.pipeline.planning.candidate import Candidate
from lingpipe.training.reporting.candidate_table import value_text
from lingpipe.training.reporting.step_time import predicted_text

LEAST_GAIN = 1.01     # A change that helps less is not worth a line,
WORTH_A_LINE = 0.01   # nor are bytes that are a smaller part of the peak.


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What people ask of a plan first.

    Attributes:
      current: the plan.
      fits: whether its devices hold no more than the limit.
      limit: bytes of a device; None: nobody has said.
      other: the fastest plan that fits and is one change away, if there is one.
      devices: what they are, for people.
      source: where the seconds come from, for people; '' if there are none, but FLOPs.
      measured: what `measured_text` says.
      planned: which values a planner has chosen, for people; '' if none has.
    """
    current: Candidate
    fits: bool
    limit: float | None
    other: Candidate | None
    devices: str
    source: str
    measured: str = ''
    planned: str = ''

    def text(self) -> str:
        """A few lines of at most 80 columns, each with the name of what it says first."""
        num_devices = self.current.num_devices
        lost = self.current.limited_by
        lines = [
            f'fits      {self._fits()}',
            f'temporary {_size(self.current.temporary_bytes)} more while a layer runs, which no '
            'limit counts',
            *self._waiting(),
            f'speed-up  {self.current.speed_up:.2f} times one device with memory enough, of '
            f'{num_devices} at most',
            f'bubble    {self.current.bubble_share:.1%}'
            + (f'; most is lost to {lost}' if lost not in ('work', 'bubble') else ''),
            f'to change {self._change()}',
            *self._step(),
            *(_wrapped(f'planner   {self.planned}') if self.planned else []),
            *_wrapped(f'devices   {self.devices}'),
        ]
        return '\n'.join(lines) + '\n'

    def _waiting(self) -> list[str]:
        """A line on what was sent and is not yet read, if it is a hundredth of the peak or more."""
        num_bytes = self.current.waiting_bytes
        if num_bytes < WORTH_A_LINE * self.current.peak_bytes:
            return []
        return [f'waiting   {_size(num_bytes)} more that was sent and is not yet read, which no '
                'limit counts']

    def _step(self) -> list[str]:
        """Lines on the time of a step, and where it is known from."""
        if not self.source:
            return [*(_wrapped(f'step      {self.measured}') if self.measured else []),
                    *_wrapped('seconds   unknown, all is compared by FLOPs; say what the devices '
                              'are, as --device_type=h100, or measure the layers with '
                              'lingpipe.tools.show_partition --measure')]
        return [*_wrapped(f'step      {predicted_text(self.current.step)}'),
                *(_wrapped(f'          {self.measured}') if self.measured else []),
                *_wrapped(f'seconds   {self.source}')]

    def _fits(self) -> str:
        peak_bytes = self.current.peak_bytes
        if self.limit is None:
            return f'if a device has {_size(peak_bytes)} (--device_type says what one has)'
        of_limit = f'{_size(peak_bytes)} of {_size(self.limit)} on the fullest device'
        if self.fits:
            return f'yes: {of_limit}, {peak_bytes / self.limit:.0%}'
        return f'no: {of_limit}, {_size(peak_bytes - self.limit)} too many'

    def _change(self) -> str:
        """The change, as a flag, and what comes of it."""
        other = self.other
        is_worth_it = other is not None and (
            not self.fits or other.step_s * LEAST_GAIN < self.current.step_s)
        if other is None or not is_worth_it:
            what = 'makes it fit' if not self.fits else 'is faster'
            return f'nothing: no single change {what}; --mode=plan tries all'

        flag = next(f'--set pipeline.{name}={value_text(value)}'
                    for name, value in other.choice._asdict().items()
                    if value != getattr(self.current.choice, name))
        ratio = self.current.step_s / other.step_s
        gain = f'{ratio:.2f} times as fast' if ratio >= 1 else f'{1 / ratio:.2f} times the time'
        return f'{flag}: {gain}, {_size(other.peak_bytes)}'


def _wrapped(line: str) -> list[str]:
    """The line, in lines of at most 80 columns."""
    return textwrap.wrap(line, 80, subsequent_indent=' ' * 10, drop_whitespace=True,
                         break_on_hyphens=False)


def _size(num_bytes: float) -> str:
    """Bytes, for people."""
    for unit, name in ((1e12, 'TB'), (1e9, 'GB'), (1e6, 'MB')):
        if num_bytes >= unit:
            return f'{num_bytes / unit:.3g} {name}'
    return f'{num_bytes / 1e3:.3g} kB'
