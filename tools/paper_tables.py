"""Prints the GPipe paper's tables of memory and throughput beside what lingpipe's planner and simulator predict for the same networks.

    python -m lingpipe.tools.paper_tables
    python -m lingpipe.tools.paper_tables --tables=3 --device_tflops=9.3 --links_gb_s=inf,12,1.25

Nothing is trained and no variable made: parameters are counted from Params, time is FLOPs alone (a backward takes twice a forward, and
runs the forward again but in the last cell), memory what cells keep. The paper's numbers are those printed in arXiv:1811.06965v5.
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

PAPER_BYTES_A_PARAMETER = 12   # Weight, moving average and momentum of RMSProp; lingpipe holds the gradient too.

# Table 1: column, experiment, GB of an accelerator; parameters, GB of model memory and of peak activation memory, as printed.
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

# Table 2: (K, M) -> throughput, that of K = 2, M = 1 being 1.
TABLE_2: dict[str, dict[tuple[int, int], float]] = {
    'image.imagenet.AmoebaNetD18x256': {(2, 1): 1, (4, 1): 1.13, (8, 1): 1.38, (2, 4): 1.07, (4, 4): 1.26, (8, 4): 1.72,
                                        (2, 32): 1.21, (4, 32): 1.84, (8, 32): 3.48},
    'translation.table1.Transformer48': {(2, 1): 1, (4, 1): 1.07, (8, 1): 1.3, (2, 4): 1.7, (4, 4): 3.2, (8, 4): 4.8,
                                         (2, 32): 1.8, (4, 32): 3.4, (8, 32): 6.3},
}
# What the paper does not have: experiment -> (K, M) beyond its table. Transformer-48 has too few layers for 128 cells; Table 1's follow.
BEYOND_TABLE_2: dict[str, tuple[tuple[int, int], ...]] = {
    'image.imagenet.AmoebaNetD18x256': ((32, 1), (32, 32), (32, 128), (128, 1), (128, 32), (128, 512)),
    'translation.table1.Transformer48': ((32, 1), (32, 32), (32, 128)),
    'translation.table1.Transformer415': ((32, 1), (32, 32), (32, 128)),
    'translation.table1.Transformer1663': ((128, 1), (128, 32), (128, 512)),
}

# Table 3: K -> throughput at M = 32, that of K = 2 being 1, on NVIDIA P100s joined by PCI-E.
TABLE_3: dict[str, dict[int, float]] = {
    'image.imagenet.AmoebaNetD18x128': {2: 1, 4: 1.7, 8: 2.7},
    'translation.table1.Transformer24': {2: 1, 4: 1.8, 8: 3.3},
}
TABLE_3_MICRO_BATCHES = 32


def table_1(columns: Sequence[Any] = TABLE_1) -> list[dict[str, Any]]:
    """A row for every column of Table 1; GB (10^9 bytes) are sums over the devices but for `fullest_device_gb`.

    The M of the paper's runs is not known; ours is that of the experiment.
    """
    from lingpipe.training import registry
    rows = []
    for column, name, device_gb, *printed in columns:
        plan = registry.get(name).instantiate().make_plan()
        rows_of_cells = plan.rows()
        num_weights = sum(row['num_weights'] for row in rows_of_cells)
        model_gb = sum(row['state_mb'] for row in rows_of_cells) / 1e3
        peaks_gb = [row['peak_mb'] / 1e3 for row in rows_of_cells]   # One cell a device in all of these.
        rows.append({'column': column, 'model': _short(name), 'num_cells': len(plan.cells),
                     'num_micro_batches': plan.params.num_micro_batches,
                     'paper': dict(zip(('parameters', 'model_gb', 'activation_gb'), printed, strict=True)),
                     'simulated': {'parameters': num_weights, 'model_gb': model_gb,
                                   'activation_gb': sum(peaks_gb) - model_gb,
                                   'fullest_device_gb': max(peaks_gb)},
                     'device_gb': device_gb})
    return rows


def table_2(models: Mapping[str, Sequence[tuple[int, int]]] = BEYOND_TABLE_2) -> list[dict[str, Any]]:
    """A row for every (model, K, M), first the paper's: its throughput, or None, and the predicted one, with the devices' idle share.

    Args:
      models: experiment -> (K, M) beyond the paper's.
    """
    from lingpipe.pipeline.planning.simulator import bound
    rows = []
    for name, beyond in models.items():
        plan_of = _plans(name)
        one = 1 / _step(plan_of(2), 1).step_s
        for k, m in (*TABLE_2.get(name, {}), *beyond):
            simulation = _step(plan_of(k), m)
            rows.append({'model': _short(name), 'num_cells': k, 'num_micro_batches': m, 'paper': TABLE_2.get(name, {}).get((k, m)),
                         'simulated': m / simulation.step_s / one, 'bound': bound(k, m), 'idle_share': simulation.bubble_share,
                         'balance': plan_of(k).balance})
    return rows


def table_3(device_flops: float, links: Sequence[float], models: Mapping[str, dict[int, float]] = TABLE_3) -> list[dict[str, Any]]:
    """A row for every (model, link): throughput at M = 32 by K, that of K = 2 being 1; and as a share of that with a free link.

    Args:
      device_flops: floating point operations of a device in a second.
      links: bytes in a second of the link between two devices, each way; inf is a free one. The mini-batch is not sent over it.
      models: experiment -> the paper's throughput by K.
    """
    rows = []
    for name, printed in models.items():
        plan_of, m = _plans(name), TABLE_3_MICRO_BATCHES
        free = {k: _step(plan_of(k), m).step_s for k in printed}
        for link in links:
            found = {k: _step(plan_of(k), m, _occupied(plan_of(k), device_flops / link)).step_s for k in printed}
            rows.append({'model': _short(name), 'num_micro_batches': m, 'link_gb_s': link / 1e9, 'paper': printed,
                         'simulated': {k: found[2] / found[k] for k in found},
                         'share_of_free_link': {k: free[k] / found[k] for k in found}})
    return rows


def _plans(name: str) -> Callable[[int], Plan]:
    """K -> the plan of an experiment for micro-batches of one example: FLOPs and bytes of larger ones are multiples."""
    from lingpipe.pipeline.planning import plan as plan_lib
    from lingpipe.training import registry
    params = registry.get(name)
    params.train_input.batch_size = 1
    experiment = params.instantiate()

    @functools.cache
    def plan_of(num_cells: int) -> Plan:
        pipeline = plan_lib.PipelineParams(num_cells=num_cells, schedule='gpipe')
        return plan_lib.make_plan(experiment.task.network, experiment.train_input.spec(), pipeline, [''] * num_cells)

    return plan_of


def _step(plan: Plan, num_micro_batches: int, link: Callable[[int, int], float] | float = 0.0) -> Any:
    """The simulated step of M micro-batches of one example, in the time of a FLOP."""
    from lingpipe.pipeline.planning.schedules import make_schedule
    from lingpipe.pipeline.planning.simulator import simulate
    cells = range(len(plan.cells))
    schedule = make_schedule('gpipe', len(cells), num_micro_batches, plan.schedule.backward_cells)
    return simulate(schedule, [plan.forward_cost(k) for k in cells], [plan.backward_cost(k) for k in cells], edges=plan.edges,
                    recompute=True, link_s=link)


def _occupied(plan: Plan, flops_a_byte: float) -> Callable[[int, int], float]:
    """(sending cell, receiving cell) -> how long a micro-batch of one example occupies their link, in the time of a FLOP."""
    from lingpipe.pipeline.execution.traffic import bytes_between
    return functools.cache(lambda sender, receiver: bytes_between(plan.cells, sender, receiver) * flops_a_byte)


def _short(name: str) -> str:
    return name.rsplit('.', 1)[1]


def text_1(rows: list[dict[str, Any]]) -> str:
    """Table 1 for people."""
    bytes_a_parameter = sorted({round(1e9 * row['simulated']['model_gb'] / row['simulated']['parameters']) for row in rows})
    lines = ['Table 1. The largest models of the paper: GB of all devices together. Model memory is '
             f'{PAPER_BYTES_A_PARAMETER} bytes a parameter in the paper',
             f'and {", ".join(map(str, bytes_a_parameter))} in lingpipe (weight, gradient and slots); '
             'the fullest device is what --mode=inspect predicts.',
             f'{"":30}{"":10}{"parameters":>18}   {"model GB":>17}   {"activations GB":>17}   fullest device',
             f'{"column":13}{"model":17}{"K":>4}{"M":>6}' + f'{"paper":>9}{"simulated":>11}' * 3 + f'{"simulated":>11} of']
    for row in rows:
        paper, ours = row['paper'], row['simulated']
        lines.append(f'{row["column"]:13}{row["model"]:17}{row["num_cells"]:4}{row["num_micro_batches"]:6}'
                     f'{paper["parameters"]:>9}{ours["parameters"] / 1e6:10,.0f}M{paper["model_gb"]:9.2f}{ours["model_gb"]:11.2f}'
                     f'{paper["activation_gb"]:9.2f}{ours["activation_gb"]:11.2f}{ours["fullest_device_gb"]:11.2f} {row["device_gb"]} GB')
    return '\n'.join(lines)


def text_2(rows: list[dict[str, Any]]) -> str:
    """Table 2 for people."""
    lines = ['Table 2. Throughput, K = 2, M = 1 of each model being 1 (the paper has no K of 32 and 128).',
             'Bound: K M / (M + K - 1), of equal cells in a chain and one batch size; the paper changed batch sizes to fit memory.',
             f'{"model":17}{"K":>5}{"M":>5}{"paper":>9}{"simulated":>11}{"bound":>8}{"idle":>8}{"balance":>9}']
    for row in rows:
        paper = '-' if row['paper'] is None else f'{row["paper"]:.2f}'
        lines.append(f'{row["model"]:17}{row["num_cells"]:5}{row["num_micro_batches"]:5}{paper:>9}{row["simulated"]:11.2f}'
                     f'{row["bound"]:8.2f}{row["idle_share"]:8.1%}{row["balance"]:9.3f}')
    return '\n'.join(lines)


def text_3(rows: list[dict[str, Any]], device_flops: float) -> str:
    """Table 3 for people."""
    lines = [f'Table 3. Throughput at M = {TABLE_3_MICRO_BATCHES} with slow links, K = 2 of the same link being 1; simulated with '
             f'devices of {device_flops / 1e12:g} TFLOP/s.', f'{"":43}{"throughput":20}share of that with a free link',
             f'{"model":17}{"link":>23}' + ''.join(f'{f"K={k}":>6}' for k in rows[0]['simulated']) * 2]
    for i, row in enumerate(rows):
        if i == 0 or row['model'] != rows[i - 1]['model']:
            lines.append(f'{row["model"]:17}{"paper, PCI-E":>23}' + ''.join(f'{value:6.2f}' for value in row['paper'].values()))
        link = f'{row["link_gb_s"]:g} GB/s' if row['link_gb_s'] != float('inf') else 'free'
        lines.append(f'{"":17}{"simulated, " + link:>23}' + ''.join(f'{value:6.2f}' for value in row['simulated'].values()) +
                     ''.join(f'{value:6.2f}' for value in row['share_of_free_link'].values()))
    return '\n'.join(lines)


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags and prints."""
    p = parser('paper_tables', __doc__)
    p.add_numbers('--tables', '1,2,3', 'which', least=1, most=3)
    p.add_number('--device_tflops', 2.3, "of Table 3's devices; default: a quarter of a P100's peak of 9.3 in float32. Faster ones wait "
                 'more for links', least=1e-6, most=1e6)
    p.add_numbers('--links_gb_s', 'inf,12,1.25,0.125', 'of Table 3: about PCI-E 3, and 10 and 1 gigabit Ethernet',
                  least=1e-6, is_finite=False)
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    wanted, links = set(args.tables), [gb * 1e9 for gb in args.links_gb_s]
    if not wanted or not wanted <= {1, 2, 3} or not links:
        p.error('--tables are some of 1, 2 and 3, and --links_gb_s some rates; write them with commas between, or leave the flags out')
    device_flops = args.device_tflops * 1e12
    made: dict[str, list[dict[str, Any]]] = {}
    texts = []
    if 1 in wanted:
        made['table_1'] = table_1()
        texts.append(text_1(made['table_1']))
    if 2 in wanted:
        made['table_2'] = table_2()
        texts.append(text_2(made['table_2']))
    if 3 in wanted:
        made['table_3'] = table_3(device_flops, links)
        texts.append(text_3(made['table_3'], device_flops))
    print(json.dumps(made) if args.json else '\n\n'.join(
        ['"paper" is what arXiv:1811.06965v5 prints; "simulated" is lingpipe\'s prediction: nothing was trained here.', *texts]))


if __name__ == '__main__':
    main()
