"""Measured models: the largest Transformers that train under a real limit, by forecast and in fact.

A device of a CPU is this process: its memory is what the process holds above a baseline. The
baseline is what the same step takes with 4 channels, whose tensors are next to nothing. For
each column the forecast names the largest width that fits; then processes that Linux holds to the
baseline and the limit train three steps, and find the largest width that survives.
"""
from __future__ import annotations

import dataclasses
import functools
import json
import sys
from typing import Any

from lingpipe.tools.held_process import HeldRun, run_held

LAYERS, HEADS, LENGTH, BATCH, NUM_MICRO_BATCHES = 6, 2, 64, 16, 8
STEP = 8             # channels from one width to the next
MIN_WIDTH = 4        # of the baseline
SPREAD = 0.2         # widths are searched that hold so much less and more than the limit


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of Table 1, at a small scale.

    Attributes:
      name: as the paper has it.
      num_cells: K.
      num_micro_batches: M.
      recompute: PipelineParams.recompute.
    """
    name: str
    num_cells: int
    num_micro_batches: int
    recompute: str

    def flags(self, width: int) -> list[str]:
        """The flags with which bench_pipeline trains a network of that width."""
        return [f'--layers={LAYERS}', f'--dim={width}', f'--heads={HEADS}', f'--seq={LENGTH}',
                f'--batch={BATCH}', f'--num_cells={self.num_cells}',
                f'--num_micro_batches={self.num_micro_batches}', f'--recompute={self.recompute}',
                '--optimizer=RMSProp', '--steps=1', '--no_baseline', '--json']

    def forecast_bytes(self, width: int) -> float:
        """What all devices are predicted to hold together."""
        import tensorflow as tf

        from lingpipe.learning.learner import Learner
        from lingpipe.learning.learning_rates import Constant
        from lingpipe.learning.optimizers import RMSProp
        from lingpipe.pipeline.planning.pipeline_params import PipelineParams
        from lingpipe.pipeline.planning.plan import make_plan
        from lingpipe.tools import stacks

        learner = Learner.Params(optimizer=RMSProp.Params(momentum=0.9),
                                 learning_rate=Constant.Params(rate=0.003)).instantiate()
        spec = {name: tf.TensorSpec([BATCH, LENGTH, width]) for name in ('x', 'target')}
        params = PipelineParams(
            num_cells=self.num_cells, num_micro_batches=self.num_micro_batches,
            recompute=self.recompute, schedule='1f1b')
        network = stacks.transformer(LAYERS, width, HEADS).instantiate('model')
        plan = make_plan(network, spec, params, [f'CPU:{k}' for k in range(self.num_cells)],
                         slot_bytes=learner.slot_bytes)
        return sum(plan.peak_bytes().values())


COLUMNS = (
    Column('Naive-1', 1, 1, 'none'),
    Column('Pipeline-1', 1, NUM_MICRO_BATCHES, 'layer'),
    Column('Pipeline-2', 2, NUM_MICRO_BATCHES, 'layer'))


def row(column: Column, device_bytes: float) -> dict[str, Any]:
    """Returns a row of the table: what fits by forecast and in fact, in bytes and channels."""
    limit = device_bytes * column.num_cells
    forecast_bytes = functools.cache(column.forecast_bytes)
    baseline = _run(column, MIN_WIDTH, None).peak_bytes

    def survives(width: int) -> bool:
        return not _run(column, width, int(baseline + limit)).is_killed

    by_forecast = _largest_below(limit, forecast_bytes)
    free = _run(column, by_forecast, None)
    lowest = _largest_below(limit * (1 - SPREAD), forecast_bytes)
    too_wide = _largest_below(limit * (1 + SPREAD), forecast_bytes) + STEP
    if not survives(lowest):
        raise ValueError(f'{column.name}: not even {lowest} channels train in {limit:,.0f} bytes, '
                         f'which are predicted to hold {forecast_bytes(lowest):,.0f}; name a '
                         'larger --device_gb, beside which what is not predicted counts less.')
    in_fact = lowest
    while too_wide - in_fact > STEP:
        middle = (in_fact + too_wide) // (2 * STEP) * STEP
        if survives(middle):
            in_fact = middle
        else:
            too_wide = middle

    measured_bytes = free.peak_bytes - baseline
    return {'column': column.name, 'limit_mb': limit / 1e6, 'baseline_mb': baseline / 1e6,
            'forecast_width': by_forecast, 'forecast_mb': forecast_bytes(by_forecast) / 1e6,
            'measured_mb': measured_bytes / 1e6,
            'measured_to_forecast': measured_bytes / forecast_bytes(by_forecast),
            'num_weights': json.loads(free.output)['num_weights'],
            'largest_width': in_fact, 'largest_mb': forecast_bytes(in_fact) / 1e6,
            'killed_width': too_wide, 'killed_mb': forecast_bytes(too_wide) / 1e6}


def _run(column: Column, width: int, limit_bytes: int | None) -> HeldRun:
    """Trains three steps in a process of its own."""
    return run_held([sys.executable, '-m', 'lingpipe.tools.bench_pipeline', *column.flags(width)],
                    limit_bytes)


def _largest_below(limit: float, forecast_bytes: Any) -> int:
    """The largest width that is predicted to hold no more than the limit."""
    width = STEP
    while forecast_bytes(2 * width) <= limit:
        width *= 2
    step = width
    while step >= STEP:
        if forecast_bytes(width + step) <= limit:
            width += step
        step //= 2
    return width


def text(rows: list[dict[str, Any]]) -> str:
    """Returns the table for people."""
    lines = [f'Transformers of {LAYERS} layers, {BATCH} sequences of {LENGTH} vectors, RMSProp '
             'with momentum.',
             'largest by forecast: its width, its forecast, and what it really holds; largest in',
             'fact: the widest that trains under the limit, by its forecast; the next is killed.',
             '',
             f'{"column":12}{"limit":>8}{"width":>8}{"forecast":>10}{"measured":>10}{"ratio":>7}'
             f'{"in fact":>9}{"forecast":>10}']
    for one in rows:
        lines.append(
            f'{one["column"]:12}{one["limit_mb"]:8,.0f}{one["forecast_width"]:8}'
            f'{one["forecast_mb"]:10,.0f}{one["measured_mb"]:10,.0f}'
            f'{one["measured_to_forecast"]:7.2f}{one["largest_width"]:9}{one["largest_mb"]:10,.0f}')
    return '\n'.join(lines)
