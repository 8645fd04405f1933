"""Step time: what a plan predicts for a step, beside what a timeline has measured."""
from __future__ import annotations

import glob
import json
import os
from typing import Any

from lingpipe.pipeline.planning.plan import Plan


def step_time(plan: Plan, logdir: str) -> str:
    """Returns one or two lines, or '' if nothing is known in seconds.

    Args:
      plan: predicts seconds if it was made from seconds.
      logdir: of a run of the same experiment, perhaps with a timeline; '' if there is none.
    """
    lines = []
    planned_s = plan.simulate().step_s if plan.params.layer_seconds else None
    if planned_s is not None:
        lines.append(f'predicted step: {planned_s * 1e3:,.1f} ms from layer_seconds')

    measured = _newest_breakdown(logdir) if logdir else None
    if measured is not None:
        step_s, replayed_s = measured['step_s'], measured['predicted']['replayed']['step_s']
        text = (f'measured step: {step_s * 1e3:,.1f} ms ({measured["title"]} of this logdir), '
                f'{replayed_s / step_s - 1:+.1%} if replayed')
        if planned_s is not None:
            text += f', {planned_s / step_s - 1:+.1%} if predicted'
        lines.append(text)
    return '\n'.join(lines)


def _newest_breakdown(logdir: str) -> Any:
    """What BreakdownReport.to_json has written last, or None if there is none to read."""
    pattern = os.path.join(glob.escape(logdir), 'timeline', 'step-*-breakdown.json')
    for path in sorted(glob.glob(pattern), reverse=True):
        try:
            with open(path, encoding='utf-8') as file:
                return json.load(file)
        except (OSError, ValueError):   # incomplete, as after a full disk
            continue
    return None
