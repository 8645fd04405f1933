"""Outcome: how a run ended, and what a person is told about it."""
from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from lingpipe.training.evaluation import Metrics, Picture, metrics_text
from lingpipe.training.reporting.timeline import TimelineReport
from lingpipe.wording.counts import counted


@dataclasses.dataclass(frozen=True, repr=False)
class Outcome:
    """How a run ended.

    Attributes:
      step: number of steps made, those before it was resumed included.
      num_nonfinite: how many of them were skipped, since their loss or gradient was not finite.
      signal: name of the signal that stopped it, or ''.
      stop_reason: why a hook stopped it, or ''.
      metrics: of the evaluation at the end, by eval input.
      best: (step, value) of the best checkpoint, if any.
      timeline: of the measured step, if asked for.
      pictures: of the evaluation at the end, if it was made now, by eval input.
    """
    step: int
    num_nonfinite: int = 0
    signal: str = ''
    metrics: Mapping[str, Metrics] = dataclasses.field(default_factory=dict)
    best: tuple[int, float] | None = None
    timeline: TimelineReport | None = None
    pictures: Mapping[str, Picture] = dataclasses.field(default_factory=dict)
    stop_reason: str = ''

    def __repr__(self) -> str:
        how = (f'stopped by {self.signal}' if self.signal
               else 'stopped by a hook' if self.stop_reason else 'done')
        metrics = ''.join(f'; {name}: {metrics_text(one)}' for name, one in self.metrics.items())
        return f'Outcome({how} after {counted(self.step, "step")}{metrics})'

    def text(self, logdir: str) -> str:
        """Results, and where everything is."""
        rows = [('  reason', self.stop_reason)] if self.stop_reason else []
        rows += [(f'  {name}', metrics_text(metrics)) for name, metrics in self.metrics.items()]
        if self.best:
            step, value = self.best
            rows.append(('  best', f'{value:.4g} at step {step}'))
        if self.timeline:
            rows.append(('  timeline', self.timeline.text()))
            rows.append(('  step time', self.timeline.step_text()))
            rows.append(('  pictures', f'{self.timeline.png}, {self.timeline.trace}, '
                                       f'{self.timeline.breakdown_png}'))
        for picture in self.pictures.values():
            rows.append(('  picture', f'{picture.text}: {picture.path}'))
        rows.append(('  checkpoints', os.path.join(logdir, 'checkpoints')))
        tensorboard = os.path.join(logdir, 'tensorboard')
        rows.append(('  TensorBoard', f'tensorboard --logdir={tensorboard}'))

        width = max(len(name) for name, _ in rows)
        skipped = (f', {self.num_nonfinite} of which were skipped: their loss or gradient was not '
                   f'finite' if self.num_nonfinite else '')
        how = 'stopped by a hook' if self.stop_reason else 'done'
        return f'\n{how} after {counted(self.step, "step")}{skipped}\n' + ''.join(
            f'{name.ljust(width)}  {text}\n' for name, text in rows)
