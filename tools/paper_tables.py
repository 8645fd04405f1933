"""Prints the GPipe paper's tables of memory and throughput beside lingpipe's predictions.

    python -m lingpipe.tools.paper_tables
    python -m lingpipe.tools.paper_tables --tables=3 --device_tflops=9.3 --links_gb_s=inf,12,1.25

lingpipe's planner and simulator predict the same networks. Nothing is trained and no variable is
made. Parameters are counted from Params. Time is FLOPs alone: a backward takes twice as long as a
forward, and in all cells but the last it runs the forward again. Memory is what cells keep. The
paper's numbers are those printed in arXiv:1811.06965v5.
"""
from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lingpipe.tools import parser
from lingpipe.tools.command_line import command

if TYPE_CHECKING:
    from lingpipe.pipeline.planning.plan import Plan
    from lingpipe.pipeline.planning.simulator import Simulation

# Weight, moving average and momentum of RMSProp. lingpipe holds the gradient too.
PAPER_BYTES_A_PARAMETER = 12

# Table 1: column, experiment, GB of an accelerator, and as printed: parameters, GB of model memory
# and GB of peak activation memory.
TABLE_1 = (
    ('Naive-1', 'image.imagenet.AmoebaNetD18x208', 8, '82M', 1.05, 6.26),
    ('Pipeline-1', 'image.imagenet.AmoebaNetD18x416', 8, '318M', 3.8, 3.46),
    ('Pipeline-2', 'image.imagenet.AmoebaNetD18x544', 8, '542M', 6.45, 8.11),
    ('Pipeline-4', 'image.imagenet.AmoebaNetD36x544', 8, '1.05B', 12.53, 15.21),
    ('Pipeline-8', 'image.imagenet.AmoebaNetD72x512', 8, '1.8B', 24.62, 26.24),
    ('Naive-1', 'translation.table1.Transformer3', 16, '282.2M', 11.7, 3.15),
    ('Pipeline-1', 'translation.table1.Transformer13', 16, '785.8M', 8.8, 6.4),
    ('Pipeline-8', 'translation.table1.Transformer103', 16, '5.3B', 59.5, 50.9),
    ('Pipeline-32', 'translation.table1.Transformer415', 16, '21.0B', 235.1, 199.9),
    ('Pipeline-128', 'translation.table1.Transformer1663', 16, '83.9B', 937.9, 796.1),
)

# Table 2: (K, M) -> throughput, relative to K = 2, M = 1.
TABLE_2: dict[str, dict[tuple[int, int], float]] = {
    'image.imagenet.AmoebaNetD18x256': {
        (2, 1): 1, (4, 1): 1.13, (8, 1): 1.38,
        (2, 4): 1.07, (4, 4): 1.26, (8, 4): 1.72,
        (2, 32): 1.21, (4, 32): 1.84, (8, 32): 3.48},
    'translation.table1.Transformer48': {
        (2, 1): 1, (4, 1): 1.07, (8, 1): 1.3,
        (2, 4): 1.7, (4, 4): 3.2, (8, 4): 4.8,
        (2, 32): 1.8, (4, 32): 3.4, (8, 32): 6.3},
}

# Sizes (K, M) that the paper does not have. Transformer-48 has too few layers for 128 cells, so two
# Transformers of Table 1 follow.
BEYOND_TABLE_2: dict[str, tuple[tuple[int, int], ...]] = {
    'image.imagenet.AmoebaNetD18x256':
        ((32, 1), (32, 32), (32, 128), (128, 1), (128, 32), (128, 512)),
    'translation.table1.Transformer48': ((32, 1), (32, 32), (32, 128)),
    'translation.table1.Transformer415': ((32, 1), (32, 32), (32, 128)),
    'translation.table1.Transformer1663': ((128, 1), (128, 32), (128, 512)),
}

# Table 3: K -> throughput at M = 32, relative to K = 2, on NVIDIA P100s joined by PCI-E.
TABLE_3: dict[str, dict[int, float]] = {
    'image.imagenet.AmoebaNetD18x128': {2: 1, 4: 1.7, 8: 2.7},
    'translation.table1.Transformer24': {2: 1, 4: 1.8, 8: 3.3},
}
TABLE_3_MICRO_BATCHES = 32


def table_1(columns: Sequence[Any] = TABLE_1) -> list[dict[str, Any]]:
    """Returns a row for every column of Table 1.

    GB (10^9 bytes) are sums over the devices, except `fullest_device_gb`. The M of the paper's runs
    is not known; ours is that of the experiment.
    """
    from lingpipe.training import registry
    rows = []
    for column, name, device_gb, *printed in columns:
        plan = registry.get(name).instantiate().make_plan()
        cells = plan.rows()
        model_gb = sum(cell['state_mb'] for cell in cells) / 1e3
        peaks_gb = [cell['peak_mb'] / 1e3 for cell in cells]   # one cell a device in all of these
        paper = dict(zip(('parameters', 'model_gb', 'activation_gb'), printed, strict=True))
        simulated = {'parameters': sum(cell['num_weights'] for cell in cells),
                     'model_gb': model_gb,
                     'activation_gb': sum(peaks_gb) - model_gb,
                     'fullest_device_gb': max(peaks_gb)}
        rows.append({'column': column, 'model': _short(name), 'num_cells': len(plan.cells),
                     'num_micro_batches': plan.params.num_micro_batches,
                     'paper': paper, 'simulated': simulated, 'device_gb': device_gb})
    return rows


def table_2(models: Mapping[str, Sequence[tuple[int, int]]] = BEYOND_TABLE_2
            ) -> list[dict[str, Any]]:
    """Returns a row for every model and size, those of the paper first.

    It holds the paper's throughput, or None, the predicted one, and the devices' idle share.

    Args:
      models: experiment -> (K, M) of the sizes that the paper does not have.
    """
    from lingpipe.pipeline.planning.simulator import bound
    rows = []
    for name, beyond in models.items():
        plan_of = _plans(name)
        unit = 1 / _step(plan_of(2), 1).step_s   # the throughput of K = 2, M = 1
        printed = TABLE_2.get(name, {})
        for k, m in (*printed, *beyond):
            simulation = _step(plan_of(k), m)
            rows.append({'model': _short(name), 'num_cells': k, 'num_micro_batches': m,
                         'paper': printed.get((k, m)),
                         'simulated': m / simulation.step_s / unit,
                         'bound': bound(k, m),
                         'idle_share': simulation.bubble_share,
                         'balance': plan_of(k).forecast.balance})
    return rows


def table_3(device_flops: float, links: Sequence[float],
            models: Mapping[str, dict[int, float]] = TABLE_3) -> list[dict[str, Any]]:
    """Returns a row for every model and link, with the throughput at M = 32 by K.

    Throughput is relative to K = 2. A second number is its share of the throughput with a link that
    takes no time.

    Args:
      device_flops: floating point operations of a device in a second.
      links: bytes in a second of the link between two devices, each way; inf is a link that takes
        no time. The mini-batch is not sent over it.
      models: experiment -> the paper's throughput by K.
    """
    m = TABLE_3_MICRO_BATCHES
    rows = []
    for name, printed in models.items():
        plan_of = _plans(name)
        free_s = {k: _step(plan_of(k), m).step_s for k in printed}
        for link in links:
            step_s = {}
            for k in printed:
                plan = plan_of(k)
                step_s[k] = _step(plan, m, _occupied(plan, device_flops / link)).step_s
            rows.append({'model': _short(name), 'num_micro_batches': m, 'link_gb_s': link / 1e9,
                         'paper': printed,
                         'simulated': {k: step_s[2] / step_s[k] for k in step_s},
                         'share_of_free_link': {k: free_s[k] / step_s[k] for k in step_s}})
    return rows


def _plans(name: str) -> Callable[[int], Plan]:
    """Returns a function from K to the plan of an experiment, for micro-batches of one example.

    FLOPs and bytes of larger micro-batches are multiples.
    """
    from lingpipe.pipeline.planning.pipeline_params import PipelineParams
    from lingpipe.pipeline.planning.planner import make_plan
    from lingpipe.training import registry
    params = registry.get(name)
    params.train_input.batch_size = 1
    experiment = params.instantiate()

    @functools.cache
    def plan_of(num_cells: int) -> Plan:
        pipeline = PipelineParams(num_cells=num_cells, schedule='gpipe')
        return make_plan(experiment.task.network, experiment.train_input.spec(), pipeline,
                         [''] * num_cells)

    return plan_of


def _step(plan: Plan, num_micro_batches: int, link: Callable[[int, int], float] | float = 0.0
          ) -> Simulation:
    """Simulates the step of M micro-batches of one example. The unit of time is that of a FLOP."""
    from lingpipe.pipeline.planning.schedules import make_schedule
    from lingpipe.pipeline.planning.simulator import simulate
    cells = range(len(plan.cells))
    forward_costs = plan.forecast.forward_costs
    backward_costs = plan.forecast.backward_costs
    schedule = make_schedule('gpipe', len(cells), num_micro_batches, plan.schedule.backward_cells)
    return simulate(schedule, forward_costs, backward_costs, edges=plan.edges, recompute=True,
                    link_s=link)


def _occupied(plan: Plan, flops_a_byte: float) -> Callable[[int, int], float]:
    """Returns a function from (sending cell, receiving cell) to how long their link is occupied.

    The time is that of a micro-batch of one example, in the unit of `_step`.
    """
    from lingpipe.pipeline.planning.cell import bytes_between

    @functools.cache
    def occupied(sender: int, receiver: int) -> float:
        return bytes_between(plan.cells, sender, receiver) * flops_a_byte

    return occupied


def _short(name: str) -> str:
    return name.rsplit('.', 1)[1]


def text_1(rows: list[dict[str, Any]]) -> str:
    """Returns Table 1 for people."""
    bytes_a_parameter = sorted({
        round(1e9 * row['simulated']['model_gb'] / row['simulated']['parameters']) for row in rows})
    lines = ['Table 1. The largest models of the paper: GB of all devices together. Model memory '
             f'is {PAPER_BYTES_A_PARAMETER} bytes a parameter in the paper',
             f'and {", ".join(map(str, bytes_a_parameter))} in lingpipe (weight, gradient and '
             'slots); the fullest device is what --mode=inspect predicts.',
             f'{"":40}{"parameters":>18}   {"model GB":>17}   {"activations GB":>17}   '
             'fullest device',
             f'{"column":13}{"model":17}{"K":>4}{"M":>6}' + f'{"paper":>9}{"simulated":>11}' * 3
             + f'{"simulated":>11} of']
    for row in rows:
        paper = row['paper']
        ours = row['simulated']
        size = f'{row["num_cells"]:4}{row["num_micro_batches"]:6}'
        parameters = f'{paper["parameters"]:>9}{ours["parameters"] / 1e6:10,.0f}M'
        model = f'{paper["model_gb"]:9.2f}{ours["model_gb"]:11.2f}'
        activations = f'{paper["activation_gb"]:9.2f}{ours["activation_gb"]:11.2f}'
        device = f'{ours["fullest_device_gb"]:11.2f} {row["device_gb"]} GB'
        lines.append(f'{row["column"]:13}{row["model"]:17}{size}{parameters}{model}{activations}'
                     f'{device}')
    return '\n'.join(lines)


def text_2(rows: list[dict[str, Any]]) -> str:
    """Returns Table 2 for people."""
    lines = ['Table 2. Throughput, K = 2, M = 1 of each model being 1 (the paper has no K of 32 '
             'and 128).',
             'Bound: K M / (M + K - 1), of equal cells in a chain and one batch size; the paper '
             'changed batch sizes to fit memory.',
             f'{"model":17}{"K":>5}{"M":>5}{"paper":>9}{"simulated":>11}{"bound":>8}{"idle":>8}'
             f'{"balance":>9}']
    for row in rows:
        paper = '-' if row['paper'] is None else f'{row["paper"]:.2f}'
        lines.append(f'{row["model"]:17}{row["num_cells"]:5}{row["num_micro_batches"]:5}{paper:>9}'
                     f'{row["simulated"]:11.2f}{row["bound"]:8.2f}{row["idle_share"]:8.1%}'
                     f'{row["balance"]:9.3f}')
    return '\n'.join(lines)


def text_3(rows: list[dict[str, Any]], device_flops: float) -> str:
    """Returns Table 3 for people."""
    lines = [f'Table 3. Throughput at M = {TABLE_3_MICRO_BATCHES} with slow links, K = 2 of the '
             'same link being 1; simulated with devices of '
             f'{device_flops / 1e12:g} TFLOP/s.',
             f'{"":43}{"throughput":20}share of that with a free link',
             f'{"model":17}{"link":>23}' + ''.join(f'{f"K={k}":>6}'
                                                   for k in rows[0]['simulated']) * 2]
    for i, row in enumerate(rows):
        if i == 0 or row['model'] != rows[i - 1]['model']:
            lines.append(f'{row["model"]:17}{"paper, PCI-E":>23}{_columns(row["paper"])}')
        link = f'{row["link_gb_s"]:g} GB/s' if row['link_gb_s'] != float('inf') else 'free'
        lines.append(f'{"":17}{"simulated, " + link:>23}{_columns(row["simulated"])}'
                     f'{_columns(row["share_of_free_link"])}')
    return '\n'.join(lines)


def _columns(value_of_k: Mapping[int, float]) -> str:
    return ''.join(f'{value:6.2f}' for value in value_of_k.values())


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags and prints."""
    p = parser('paper_tables', __doc__)
    p.add_numbers('--tables', '1,2,3', 'which', least=1, most=3)
    p.add_number('--device_tflops', 2.3,
                 "of Table 3's devices; default: a quarter of a P100's peak of 9.3 in float32. "
                 'Faster ones wait more for links', least=1e-6, most=1e6)
    p.add_numbers('--links_gb_s', 'inf,12,1.25,0.125',
                  'of Table 3: about PCI-E 3, and 10 and 1 gigabit Ethernet', least=1e-6,
                  is_finite=False)
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    numbers = set(args.tables)
    links = [gb * 1e9 for gb in args.links_gb_s]
    if not numbers or not numbers <= {1, 2, 3} or not links:
        p.error('--tables are some of 1, 2 and 3, and --links_gb_s some rates; write them with '
                'commas between, or leave the flags out')

    device_flops = args.device_tflops * 1e12
    tables: dict[str, list[dict[str, Any]]] = {}
    texts = ['"paper" is what arXiv:1811.06965v5 prints; "simulated" is lingpipe\'s prediction: '
             'nothing was trained here.']
    if 1 in numbers:
        tables['table_1'] = table_1()
        texts.append(text_1(tables['table_1']))
    if 2 in numbers:
        tables['table_2'] = table_2()
        texts.append(text_2(tables['table_2']))
    if 3 in numbers:
        tables['table_3'] = table_3(device_flops, links)
        texts.append(text_3(tables['table_3'], device_flops))
    print(json.dumps(tables) if args.json else '\n\n'.join(texts))


if __name__ == '__main__':
    main()
