"""Views: weights, the plan and the timeline of a run, as a terminal and a notebook show them."""
from __future__ import annotations

import glob
import html
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.pipeline.planning.plan import Plan
from lingpipe.training.reporting.plan_table import (
    rendered,
    short_device,
    short_number,
    table_of,
)
from lingpipe.wording.counts import counted
from lingpipe.wording.values import nearest

_MAX_WEIGHTS_SHOWN = 40


class Weights(Mapping[str, np.ndarray]):
    """path -> NumPy array, which is copied when it is read, while the run has these weights."""

    def __init__(self, variables: Mapping[str, tf.Variable], is_current: Callable[[], bool]):
        """
        Args:
          variables: by path.
          is_current: whether they still hold what they held when this was made.
        """
        self._variables, self._is_current = variables, is_current

    def __getitem__(self, path: str) -> np.ndarray:
        if path not in self._variables:
            raise KeyError(f'there is no weight {path!r}: {nearest(path, self._variables)}')
        value: np.ndarray = self._variables[path].numpy()
        if not self._is_current():   # Another thread may just have changed it.
            raise ValueError('the run holds other weights by now, since it has trained or read '
                             'another checkpoint; take run.weights again, or keep a copy before, '
                             'as weights = dict(run.weights).')
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __repr__(self) -> str:
        return _text(_WEIGHT_COLUMNS, self._rows()) + self._total()

    def _repr_html_(self) -> str:
        return _html(_WEIGHT_COLUMNS, self._rows()) + f'<p>{html.escape(self._total())}</p>'

    def _rows(self) -> list[Sequence[str]]:
        rows = [(path, str(variable.shape.as_list()), variable.dtype.name)
                for path, variable in self._variables.items()]
        return [*rows[:_MAX_WEIGHTS_SHOWN], *([('...', '', '')] if self._has_more else [])]

    @property
    def _has_more(self) -> bool:
        return len(self._variables) > _MAX_WEIGHTS_SHOWN

    def _total(self) -> str:
        number = sum(variable.shape.num_elements() for variable in self._variables.values())
        return f'{counted(len(self._variables), "weight")} with {counted(number, "number")}'


_WEIGHT_COLUMNS = ('weight', 'shape', 'dtype')


class PlanTable:
    """The cells of a plan, a row each.

    Attributes:
      plan: the plan.
    """

    def __init__(self, plan: Plan, batch_size: int, remarks: Sequence[str] = ()):
        self.plan = plan
        self._batch_size, self._remarks = batch_size, remarks

    def __repr__(self) -> str:
        return _text(_PLAN_COLUMNS, self._rows()) + '\n'.join([self._total(), *self._remarks])

    def _repr_html_(self) -> str:
        lines = (f'<p>{html.escape(line)}</p>' for line in (self._total(), *self._remarks))
        return _html(_PLAN_COLUMNS, self._rows()) + ''.join(lines)

    def _rows(self) -> list[Sequence[str]]:
        return [(str(row['cell']), short_device(row['device']), row['layers'],
                 str(row['num_layers']), f'{row["gflops_per_micro_batch"]:,.4g}',
                 short_number(row['num_weights']), f'{row["peak_mb"]:,.1f}',
                 f'{row["step_share"]:.1%}') for row in self.plan.rows()]

    def _total(self) -> str:
        p = self.plan.params
        size = self._batch_size // (p.num_micro_batches * p.num_replicas)
        replicas = f', {p.num_replicas} replicas' if p.num_replicas > 1 else ''
        return (f'{counted(p.num_micro_batches, "micro-batch")} of {counted(size, "example")}; '
                f'schedule {p.schedule}{replicas}; predicted bubble '
                f'{self.plan.simulate().bubble_share:.1%}')


_PLAN_COLUMNS = ('cell', 'device', 'from .. to', 'layers', 'GFLOPs', 'params', 'peak MB', 'share')


class TimelinePicture:
    """The slots of a step on their devices, as a picture.

    Attributes:
      source: where it is from: a path, or 'predicted'.
      png: the picture, as the bytes of a PNG file.
    """

    def __init__(self, source: str, png: bytes):
        self.source, self.png = source, png

    @classmethod
    def of_plan(cls, plan: Plan) -> TimelinePicture:
        """The step that a plan predicts."""
        file: Any = io.BytesIO()
        plan.simulate().timeline.save_png(file, 'predicted')
        return cls('predicted', file.getvalue())

    def __repr__(self) -> str:
        return f'TimelinePicture({self.source})'

    def _repr_png_(self) -> bytes:
        return self.png


def newest_timeline(logdir: str) -> TimelinePicture | None:
    """The picture of the newest timed step of a logdir; None if there is none."""
    pattern = os.path.join(glob.escape(logdir), 'timeline', 'step-*[0-9].png')
    paths = sorted(glob.glob(pattern))
    if not paths:
        return None
    with open(paths[-1], 'rb') as file:
        return TimelinePicture(paths[-1], file.read())


def _text(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a terminal; the text columns stand at the left."""
    table = table_of(columns, left=_LEFT)
    for row in rows:
        table.add_row(*row)
    return rendered(table)


def _html(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a notebook."""
    def line(cells: Sequence[str], tag: str) -> str:
        return ''.join(
            f'<{tag} style="text-align:{"left" if column in _LEFT else "right"}">'
            f'{html.escape(cell)}</{tag}>' for column, cell in zip(columns, cells, strict=True))

    body = ''.join(f'<tr>{line(row, "td")}</tr>' for row in rows)
    return f'<table><thead><tr>{line(columns, "th")}</tr></thead><tbody>{body}</tbody></table>'


_LEFT = {'weight', 'shape', 'dtype', 'device', 'from .. to'}
