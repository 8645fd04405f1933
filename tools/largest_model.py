"""Searches for the largest model of a family whose training fits the devices.

    python -m lingpipe.tools.largest_model --family=transformer --devices=1,8 --device_gb=16
    python -m lingpipe.tools.largest_model --family=amoebanet_d --devices=1,2,4,8 --device_gb=8

It makes Table 1 of arXiv:1811.06965v5 once more, under lingpipe's forecast of memory: no variable
is made. Naive-1 is one device without micro-batches and recomputation; its mini-batch is the one
for which the forecast gives the paper's Naive-1 the activations that the paper prints. Pipeline-K
has K devices, one example a micro-batch, and recomputes by --recompute. The Transformer grows in
depth; AmoebaNet-D has the paper's depth, and grows in filters.
"""
from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lingpipe.tools import parser
from lingpipe.tools.command_line import MAX_CELLS, command

if TYPE_CHECKING:
    from lingpipe.training.experiment import Experiment

MAX_SIZE = 1 << 16


@dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes:
      experiment: of (size, K), an experiment; sizes are 1, 2 and so on.
      naive_batch, batch: the examples of a mini-batch of Naive-1, and of Pipeline-K.
      name: of (size, K), what the paper calls the model.
      printed: column -> the parameters that the paper prints, in millions.
    """
    experiment: Callable[[int, int], Experiment.Params]
    naive_batch: int
    batch: int
    name: Callable[[int, int], str]
    printed: dict[str, float]


def families() -> dict[str, Family]:
    """Name -> family."""
    from lingpipe.params.image import imagenet
    from lingpipe.params.translation import table1

    def depth(num_cells: int) -> int:
        return max(18, 9 * num_cells)

    return {
        'transformer': Family(
            lambda size, k: table1.experiment(size, k), 4, 32, lambda size, k: f'L={size}',
            {'Naive-1': 282.2, 'Pipeline-1': 785.8, 'Pipeline-8': 5300, 'Pipeline-32': 21_000,
             'Pipeline-128': 83_900}),
        'amoebanet_d': Family(
            lambda size, k: imagenet.amoebanet_d(depth(k), 16 * size, k, 1), 25, 128,
            lambda size, k: f'({depth(k)}, {16 * size})',
            {'Naive-1': 82, 'Pipeline-1': 318, 'Pipeline-2': 542, 'Pipeline-4': 1050,
             'Pipeline-8': 1800}),
    }


def row(family: Family, num_cells: int, device_bytes: float, recompute: str, is_naive: bool = False
        ) -> dict[str, Any]:
    """Returns a row of the table: the largest model that fits, and its bytes."""
    column = 'Naive-1' if is_naive else f'Pipeline-{num_cells}'

    def planned(size: int) -> dict[str, Any] | None:
        """The row of a size; None if it does not fit."""
        params = family.experiment(size, num_cells)
        params.train_input.batch_size = family.naive_batch if is_naive else family.batch
        params.pipeline.set(
            num_cells=num_cells, num_micro_batches=1 if is_naive else family.batch,
            recompute='none' if is_naive else recompute, schedule='1f1b',
            device_bytes=device_bytes)
        experiment = params.instantiate()
        if trained_bytes(experiment) > num_cells * device_bytes:
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
        return {'column': column, 'model': family.name(size, num_cells), 'num_cells': num_cells,
                'parameters': sum(cell['num_weights'] for cell in cells), 'model_gb': model_gb,
                'activation_gb': sum(peaks) - model_gb, 'fullest_device_gb': max(peaks),
                'paper_parameters': family.printed.get(column, 0) * 1e6 or None}

    largest = _largest(planned, enough=4 * num_cells)
    return largest or {'column': column, 'model': None, 'num_cells': num_cells, 'parameters': 0}


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


def _largest(planned: Callable[[int], dict[str, Any] | None],
             enough: int) -> dict[str, Any] | None:
    """The row of the largest size that has one, by doubling and bisection.

    A network may need more layers than its smallest size has, so sizes without a row may come
    before the first that has one: some size up to `enough`, if any.
    """
    found, size = None, 1
    while size <= MAX_SIZE:
        row_of_size = planned(size)
        if row_of_size is None and (found is not None or size >= enough):
            break
        if row_of_size is not None:
            found, fits = row_of_size, size
        size *= 2
    if found is None:
        return None

    too_large = size
    while too_large - fits > max(1, fits // 100):
        middle = (fits + too_large) // 2
        row_of_size = planned(middle)
        if row_of_size is None:
            too_large = middle
        else:
            found, fits = row_of_size, middle
    return found


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


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags and prints."""
    p = parser('largest_model', __doc__)
    p.add_argument('--family', choices=['amoebanet_d', 'transformer'], required=True,
                   help='which models')
    p.add_numbers('--devices', '1,2,4,8', 'K of each row', least=1, most=MAX_CELLS)
    p.add_number('--device_gb', 16.0, 'memory of a device, in 10^9 bytes', least=1e-3, most=1e6)
    p.add_argument('--recompute', choices=['none', 'cell', 'layer', 'fit'], default='layer',
                   help='PipelineParams.recompute of Pipeline-K')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)

    family, device_bytes = families()[args.family], args.device_gb * 1e9
    rows = [row(family, 1, device_bytes, args.recompute, is_naive=True)]
    rows += [row(family, int(k), device_bytes, args.recompute) for k in args.devices]
    print(json.dumps({'family': args.family, 'device_gb': args.device_gb, 'rows': rows})
          if args.json else text(rows))


if __name__ == '__main__':
    main()
