"""Step time: the forecast of a step, and what a timeline has measured, as lines of text."""
from __future__ import annotations

import glob
import json
import os
from typing import Any

from lingpipe.pipeline.planning.step_forecast import StepForecast


def predicted_text(forecast: StepForecast) -> str:
    """Says how long a step should take, and which of its parts take a thousandth of it or more."""
    parts = [f'{part} {ms_text(seconds)}' for part, seconds in forecast.parts.items()
             if seconds >= 1e-3 * forecast.step_s]
    of_parts = f' ({", ".join(parts)})' if len(parts) > 1 else ''
    return f'{ms_text(forecast.step_s)} ms predicted{of_parts}'


def measured_text(predicted_s: float | None, logdir: str, plan: str = '') -> str:
    """Says how long a step took, and how far predictions of it were off; '' if nobody knows.

    Args:
      predicted_s: the forecast of a step; None if nothing is known in seconds.
      logdir: of a run of the same experiment, perhaps with a timeline; '' if there is none.
      plan: `one_line` of the plan whose step that is. The forecast says nothing of a step that was
        measured with another one. '': it is not compared.
    """
    measured = _newest_breakdown(logdir) if logdir else None
    if measured is None:
        return ''
    step_s, replayed_s = measured['step_s'], measured['predicted']['replayed']['step_s']
    measured_plan = measured.get('plan') or plan   # Older files name none.
    is_other = bool(plan) and measured_plan != plan
    errors = [f'replayed {replayed_s / step_s - 1:+.1%}']
    if predicted_s is not None and not is_other:
        errors.insert(0, f'predicted {predicted_s / step_s - 1:+.1%}')
    of_plan = f' with another plan ({measured_plan})' if is_other else ''
    return (f'{ms_text(step_s)} ms measured ({measured["title"]} of this logdir){of_plan}: '
            f'{", ".join(errors)}')


def ms_text(seconds: float) -> str:
    """Milliseconds, for people: '12,345', '123.4' or '0.012'."""
    ms = seconds * 1e3
    return f'{ms:,.0f}' if ms >= 1e4 else f'{ms:,.1f}' if ms >= 1 else f'{ms:.2g}'


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
