"""Searches for the largest model of a family whose training fits the devices.

    python -m lingpipe.tools.largest_model --family=transformer --devices=1,8 --device_gb=16
    python -m lingpipe.tools.largest_model --family=amoebanet_d --devices=1,2,4,8 --device_gb=8
    python -m lingpipe.tools.largest_model --family=transformer --devices=1,2 --device_gb=0.25 \\
        --measure

It makes Table 1 of arXiv:1811.06965v5 once more, under lingpipe's forecast of memory: no variable
is made. Naive-1 is one device without micro-batches and recomputation; its mini-batch is the one
for which the forecast gives the paper's Naive-1 the activations that the paper prints. Pipeline-K
has K devices, one example a micro-batch, and recomputes by --recompute. The Transformer grows in
depth; AmoebaNet-D has the paper's depth, and grows in filters.

With --measure, the models are small relatives of these, and each is trained for a few steps, too,
on devices that are processes held to the limit (held_devices.py). The largest model that fits there
is searched for around the one of the forecast. A size that does not train with the cuts that fill
the limit by the forecast is tried again with cuts for a little less.
"""
from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lingpipe.process import closed_pipe
from lingpipe.tools import parser
from lingpipe.tools.command_line import MAX_CELLS, command
from lingpipe.tools.model_families import Family, families, small_families

if TYPE_CHECKING:
    from lingpipe.tools.held_devices import Device
    from lingpipe.training.experiment import Experiment

MAX_SIZE = 1 << 16

# Of the limit, for which cuts are made: convolutions hold up to 3 % more than is forecast.
SHARES = (1., 0.97, 0.94)


@dataclass(frozen=True)
class Column:
    """A column of Table 1: a family in a setting, which grows.

    Attributes:
      family: the models.
      num_cells: K.
      device_bytes: of each device.
      recompute: PipelineParams.recompute of Pipeline-K.
      is_naive: whether this is Naive-1.
    """
    family: Family
    num_cells: int
    device_bytes: float
    recompute: str
    is_naive: bool = False

    @property
    def name(self) -> str:
        """What the paper calls it."""
        return 'Naive-1' if self.is_naive else f'Pipeline-{self.num_cells}'

    def params(self, size: int, share: float = 1.) -> Experiment.Params:
        """Returns the experiment of a size, whose cuts keep a share of the limit; 0: of none."""
        family = self.family
        params = family.experiment(size, self.num_cells)
        params.train_input.batch_size = family.naive_batch if self.is_naive else family.batch
        params.pipeline.set(
            num_cells=self.num_cells, num_micro_batches=1 if self.is_naive else family.batch,
            recompute='none' if self.is_naive else self.recompute, schedule='1f1b',
            device_bytes=share * self.device_bytes or None)
        return params

    def forecast(self, size: int, share: float = 1.) -> dict[str, Any] | None:
        """The row of a size; None if it does not fit. The arguments are those of `params`."""
        experiment = self.params(size, share).instantiate()
        if share and trained_bytes(experiment) > share * self.num_cells * self.device_bytes:
            return None   # A search for a partition would take much longer to find none.
        try:
            plan = experiment.make_plan()
        except ValueError as error:
            if 'device_bytes' in str(error) or 'num_cells' in str(error):
                return None
            raise
        cells = plan.rows()
        peaks = [cell['peak_mb'] / 1e3 for cell in cells]
        model_gb = sum(cell['state_mb'] for cell in cells) / 1e3
        return {'column': self.name, 'model': self.family.name(size, self.num_cells), 'size': size,
                'num_cells': self.num_cells,
                'parameters': sum(cell['num_weights'] for cell in cells), 'model_gb': model_gb,
                'activation_gb': sum(peaks) - model_gb, 'fullest_device_gb': max(peaks),
                'paper_parameters': self.family.printed.get(self.name, 0) * 1e6 or None}

    def row(self) -> dict[str, Any]:
        """Returns the row of the table: the largest model that fits, and its bytes."""
        largest = _largest(self.forecast, enough=4 * self.num_cells)
        return largest or {'column': self.name, 'model': None, 'num_cells': self.num_cells,
                           'parameters': 0}


def trained_bytes(experiment: Experiment) -> int:
    """Returns the bytes of the weights that train, their gradients and optimizer slots.

    The devices together hold no less, whatever the plan.
    """
    learner = experiment.task.learner
    return sum(
        weight.size * (weight.dtype.size + max(4, weight.dtype.size)) + learner.slot_bytes(weight)
        for weight in experiment.task.network.weights()
        if weight.shared_with is None and weight.is_trainable
        and not learner.is_frozen(weight.path))


def check_room(columns: Sequence[Column]) -> None:
    """Raises ValueError if this machine has not the memory of all devices of a column."""
    most = max(columns, key=lambda column: column.num_cells)
    room = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    wanted = most.num_cells * most.device_bytes
    if wanted > room / 2:
        raise ValueError(f'--measure trains on {most.num_cells} devices of '
                         f'{most.device_bytes / 1e9:g} GB, which is more than half of the '
                         f'{room / 1e9:.1f} GB of this machine; give --device_gb at most '
                         f'{room / 2 / most.num_cells / 1e9:.2f}, or fewer --devices.')


def _largest(planned: Callable[[int], dict[str, Any] | None],
             enough: int) -> dict[str, Any] | None:
    """The row of the largest size that has one, by doubling and bisection.

    A network may need more layers than its smallest size has, so sizes without a row may come
    before the first that has one: some size up to `enough`, if any.
    """
    largest_row, size = None, 1
    while size <= MAX_SIZE:
        row_of_size = planned(size)
        if row_of_size is None and (largest_row is not None or size >= enough):
            break
        if row_of_size is not None:
            largest_row, fits = row_of_size, size
        size *= 2
    if largest_row is None:
        return None

    too_large = size
    while too_large - fits > max(1, fits // 100):
        middle = (fits + too_large) // 2
        row_of_size = planned(middle)
        if row_of_size is None:
            too_large = middle
        else:
            largest_row, fits = row_of_size, middle
    return largest_row


def measured_row(column: Column, devices: Sequence[Device]) -> dict[str, Any]:
    """Returns the row of a column: the forecast's largest model, and the largest that trains.

    Args:
      column: of small models.
      devices: one for each cell.
    """
    from lingpipe.tools import held_devices
    row = column.row()
    if row['model'] is None:
        return row
    trained: dict[int, tuple[float, float]] = {}   # size -> share of the limit, most bytes held

    def fits(size: int) -> bool:
        """Whether a size trains, with the cuts of the forecast if it has some."""
        shares = SHARES if column.num_cells > 1 else SHARES[:1]
        for share in [share for share in shares if column.forecast(size, share)] or [0.]:
            trial = held_devices.train(column.params(size, share), devices, column.device_bytes)
            outcome = 'trains' if trial.fits else f'does not fit: {trial.why_not}'
            cuts = f'cut for {share:.0%} of the limit' if share else 'cut for no limit'
            name = column.family.name(size, column.num_cells)
            closed_pipe.say(f'{column.name}, {name}, {cuts}: {outcome}', sys.stderr)
            if trial.fits:
                trained[size] = share, max(trial.peak_bytes)
                return True
        return False

    largest = largest_near(fits, row['size'])
    if largest == 0:
        return {**row, 'measured_model': None, 'measured_parameters': 0}
    share, peak_bytes = trained[largest]
    measured = column.forecast(largest, share)
    assert measured is not None
    return {**row, 'measured_model': measured['model'],
            'measured_parameters': measured['parameters'],
            'measured_peak_gb': peak_bytes / 1e9,
            'forecast_of_measured_gb': measured['fullest_device_gb']}


def largest_near(fits: Callable[[int], bool], first: int) -> int:
    """The largest size that fits, which is near `first`; 0 if none does."""
    step = max(1, first // 32)
    if fits(first):
        low = first
        while fits(low + step):
            low, step = low + step, 2 * step
        too_large = low + step
    else:
        too_large = first
        while too_large - step > 0 and not fits(too_large - step):
            too_large, step = too_large - step, 2 * step
        low = max(0, too_large - step)

    while too_large - low > max(1, first // 32):
        middle = (low + too_large) // 2
        if fits(middle):
            low = middle
        else:
            too_large = middle
    return low


def text(rows: list[dict[str, Any]]) -> str:
    """Returns the table for people."""
    naive = rows[0]['parameters']
    lines = [f'{"column":14}{"model":>14}{"parameters":>13}{"times naive":>13}{"paper":>10}'
             f'{"times naive":>13}{"model GB":>10}{"activations GB":>16}']
    paper_naive = rows[0].get('paper_parameters')
    for one in rows:
        if one['model'] is None:
            lines.append(f'{one["column"]:14}{"none fits":>14}')
            continue
        paper, times_paper = one['paper_parameters'], ''
        if paper and paper_naive:
            times_paper = f'{paper / paper_naive:.1f}'
        times = f'{one["parameters"] / naive:.1f}' if naive else '-'
        paper_text = f'{paper / 1e6:,.0f}M' if paper else '-'
        lines.append(f'{one["column"]:14}{one["model"]:>14}{one["parameters"] / 1e6:12,.0f}M'
                     f'{times:>13}{paper_text:>10}{times_paper:>13}{one["model_gb"]:10.1f}'
                     f'{one["activation_gb"]:16.1f}')
    return '\n'.join(lines)


def measured_text(rows: list[dict[str, Any]]) -> str:
    """Returns the table of forecast and measurement for people."""
    lines = [f'{"column":12}{"forecast":>10}{"weights":>9}{"trains":>10}{"weights":>9}'
             f'{"ratio":>7}{"forecast MB":>13}{"peak MB":>9}']
    for one in rows:
        if one['model'] is None:
            lines.append(f'{one["column"]:12}{"none fits":>10}')
            continue
        line = f'{one["column"]:12}{one["model"]:>10}{one["parameters"] / 1e6:8.2f}M'
        if one['measured_model'] is None:
            lines.append(f'{line}{"none":>10}')
            continue
        lines.append(f'{line}{one["measured_model"]:>10}{one["measured_parameters"] / 1e6:8.2f}M'
                     f'{one["measured_parameters"] / one["parameters"]:7.2f}'
                     f'{one["forecast_of_measured_gb"] * 1e3:13.1f}'
                     f'{one["measured_peak_gb"] * 1e3:9.1f}')
    return '\n'.join(lines)


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags and prints."""
    p = parser('largest_model', __doc__)
    p.add_argument('--family', choices=['amoebanet_d', 'transformer'], required=True,
                   help='which models')
    p.add_numbers('--devices', '1,2,4,8', 'K of each row', is_whole=True, least=1,
                  most=MAX_CELLS)
    p.add_number('--device_gb', 16.0, 'memory of a device, in 10^9 bytes', least=1e-3, most=1e6)
    p.add_argument('--recompute', choices=['none', 'cell', 'layer', 'fit'], default='layer',
                   help='PipelineParams.recompute of Pipeline-K')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    p.add_argument('--measure', action='store_true',
                   help='train small models, too, on devices that are held to the limit')
    args = p.parse_args(argv)

    family = (small_families() if args.measure else families())[args.family]
    device_bytes = args.device_gb * 1e9
    columns = [Column(family, 1, device_bytes, args.recompute, is_naive=True)]
    columns += [Column(family, int(k), device_bytes, args.recompute) for k in args.devices]
    if args.measure:
        from lingpipe.tools.held_devices import held_devices
        check_room(columns)
        with held_devices(max(column.num_cells for column in columns)) as devices:
            rows = [measured_row(column, devices[:column.num_cells]) for column in columns]
    else:
        rows = [column.row() for column in columns]

    if args.json:
        print(json.dumps({'family': args.family, 'device_gb': args.device_gb, 'rows': rows}))
    else:
        print(measured_text(rows) if args.measure else text(rows))


if __name__ == '__main__':
    main()
