"""Plan: finds the best plans of an experiment on given devices, and prints them.

Nothing is trained. Unless --device_type says what the devices are, the layers are timed on those of
this machine. That takes up to a minute, and minutes if one pass over the layers takes many seconds.
"""
from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence

import tensorflow as tf

from lingpipe import cluster
from lingpipe.cluster import devices
from lingpipe.commands import device_setup
from lingpipe.commands.plan_freedom import Freedom, freedom
from lingpipe.commands.run_options import RunOptions
from lingpipe.pipeline.execution.measured_costs import cpu_devices
from lingpipe.pipeline.execution.measured_hardware import free_bytes, measured_hardware
from lingpipe.pipeline.execution.measured_layers import MeasuredLayers
from lingpipe.pipeline.planning.candidates import Candidates
from lingpipe.pipeline.planning.hardware import Hardware, device_type
from lingpipe.pipeline.planning.layout import num_devices_for
from lingpipe.pipeline.planning.moved_cuts import with_moved_cuts
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan_search import MOST_EFFORT, Found, best
from lingpipe.pipeline.planning.search_space import FREE, Choice, SearchSpace, keeps_statistics
from lingpipe.pipeline.planning.subject import SecondsOf, Subject
from lingpipe.training.experiment import Experiment
from lingpipe.training.reporting import candidate_table
from lingpipe.training.reporting.candidate_table import value_text
from lingpipe.wording.counts import counted

NUM_SHOWN = 12
MEASURING_S = 40.0   # for layers of all sizes together, without the time to trace them


def plan(params: Experiment.Params, options: RunOptions) -> str:
    """Returns the table of the best plans, or their JSON.

    Raises:
      ValueError: nothing fits, or devices are unknown.
    """
    names = all_devices(params, options)
    if not options.device_type:   # Layers are timed.
        device_setup.configure(_to_time_layers(params, names))
    search = make_search(params, options, freedom(options), names)
    _tell(f'comparing {counted(len(search.choices), "plan")}')
    found = best(search.candidates, search.choices, NUM_SHOWN)
    if not found.candidates:
        raise ValueError(_why_none(search, found))
    found = with_moved_cuts(search.candidates, found)
    report = candidate_table.Report(
        model=options.model, batch_size=params.train_input.batch_size, num_devices=len(set(names)),
        hardware=search.candidates.subject.hardware, limit=search.candidates.subject.limit,
        num_choices=len(search.choices), found=found,
        params_to_run=search.candidates.params_to_run,
        params=params.pipeline)
    return report.json() if options.is_json else report.text()


@dataclasses.dataclass(frozen=True)
class Search:
    """What there is to choose from."""
    candidates: Candidates
    choices: list[Choice]


def make_search(params: Experiment.Params, options: RunOptions, allowed: Freedom,
                names: Sequence[str]) -> Search:
    """Makes the search for the plans of an experiment on devices.

    Args:
      params: the experiment's.
      options: say what the devices are.
      allowed: what the planner may choose.
      names: tf.device strings.

    Raises:
      ValueError: values that are set exclude each other, or the device type is unknown.
    """
    pipeline = params.pipeline.copy()
    if 'layers_per_cell' not in allowed.given:
        pipeline.layers_per_cell = ()   # They are for one K.
    experiment: Experiment = params.instantiate()
    network, learner = experiment.task.network, experiment.task.learner
    space = SearchSpace(
        pipeline, params.train_input.batch_size, len(names), len(list(network.units())),
        allowed.held,
        keeps_micro_batches=keeps_statistics(network) and not options.may_change_statistics)
    choices = [choice for choice in space.choices()
               if not pipeline.layers_per_cell or choice.num_cells == len(pipeline.layers_per_cell)]
    if 'num_replicas' in allowed.free:
        choices = [choice for choice in choices if not _replicas_share(choice, names, pipeline)]
    if not choices:
        raise ValueError(_why_no_choice(space, allowed))

    hardware, seconds_of = _hardware_and_seconds(options, names, choices)
    subject = Subject(network, experiment.train_input.spec(), pipeline, names, hardware,
                      seconds_of, learner.is_frozen, learner.slot_bytes,
                      learner.update_bytes)
    return Search(Candidates(subject), choices)


def _replicas_share(choice: Choice, names: Sequence[str], pipeline: PipelineParams) -> bool:
    """Whether two replicas would be on one device, where the forecast of a step lets both run."""
    size = choice.num_cells
    if choice.num_replicas * size > len(names):
        size = num_devices_for(choice.schedule, size, pipeline.cells_per_device)
    places = [{cluster.place(name) for name in names[r * size:(r + 1) * size]}
              for r in range(choice.num_replicas)]
    return len(set().union(*places)) < sum(map(len, places))


def all_devices(params: Experiment.Params, options: RunOptions) -> tuple[str, ...]:
    """The devices that a plan may use, as tf.device strings.

    Without --devices they are those of the experiment, or all GPUs, or as many logical CPU devices
    as this process may use processors.

    Raises:
      ValueError: --device_type stands alone, or --devices are wrong.
    """
    if options.devices:
        must_exist = not options.device_type
        return devices.find_all(options.devices, params.train.worker_timeout_s, must_exist).names
    if options.device_type:
        device_type(options.device_type)   # An unknown one is told first.
        raise ValueError(f'--device_type={options.device_type} says what the devices can do, but '
                         'not how many there are; name them, as --devices=gpu:0-7.')
    if params.pipeline.devices:
        return params.pipeline.devices
    gpus = tf.config.list_physical_devices('GPU')
    number = len(gpus) or len(os.sched_getaffinity(0))
    return tuple(f'/device:{"GPU" if gpus else "CPU"}:{i}' for i in range(number))


def _hardware_and_seconds(options: RunOptions, names: Sequence[str], choices: Sequence[Choice],
                          ) -> tuple[Hardware, SecondsOf]:
    """What the devices can do, and how long layers take there."""
    if options.device_type:
        hardware = device_type(options.device_type)
        return hardware, hardware.layer_seconds

    place = cluster.place(names[0])
    device = f'/device:{place[2]}:0' if place[0] == 'worker' else names[0]
    if place[2] != 'CPU' and not tf.config.list_physical_devices(place[2]):
        raise ValueError(f'the {place[2]}s of --devices are on other machines, where no layer can '
                         'be timed from here; say what they are, as --device_type=h100.')
    hardware = measured_hardware([device, *names[1:]] if place[0] != 'worker' else [device])
    sizes = sorted({choice.num_parts for choice in choices}, reverse=True)
    timed = cpu_devices(len(names)) if place[2] == 'CPU' else [device]
    layers = MeasuredLayers(timed, MEASURING_S / len(sizes), free_bytes(device) / len(timed),
                            _tell_size)
    _tell(f'timing the layers for up to {counted(len(sizes), "size")} of micro-batches, '
          f'{MEASURING_S:.0f} s in all and what it takes to trace them')
    return hardware, layers


def _tell_size(size: int) -> None:
    _tell(f'timing the layers for micro-batches of {counted(size, "example")}')


def _tell(text: str) -> None:
    """Says what is done, while nothing else is to be seen; the standard output has the result."""
    print(f'plan: {text}', file=sys.stderr, flush=True)


def _to_time_layers(params: Experiment.Params, names: Sequence[str]) -> Experiment.Params:
    """The experiment, to set TensorFlow up so that layers can be timed.

    Layers run on as many CPU devices at once as a plan may use.
    """
    num_devices = 1
    if cluster.place(names[0])[2] == 'CPU':
        num_devices = min(len(names), len(os.sched_getaffinity(0)))
    params = params.copy()
    params.pipeline = PipelineParams(num_cells=num_devices)
    return params


def _why_no_choice(space: SearchSpace, allowed: Freedom) -> str:
    """The sentence of the error if the values that are set leave nothing to choose from."""
    p = space.params
    held = ', '.join(f'{name}={getattr(p, name)}' for name in FREE if name in allowed.held)
    for name in ('num_replicas', 'num_micro_batches'):
        if name in allowed.held and space.batch_size % getattr(p, name):
            return (f'pipeline.{name}={getattr(p, name)} does not divide the batch of '
                    f'{counted(space.batch_size, "example")}; use a divisor, or leave it to the '
                    'planner.')
    if 'num_cells' in allowed.held and p.num_cells > space.num_units:
        return (f'pipeline.num_cells={p.num_cells} is more than the '
                f'{counted(space.num_units, "part")} that the network can be cut into; use fewer '
                'cells, or leave it to the planner.')
    return (f'no plan has {held or "these values"} on {counted(space.num_devices, "device")} with '
            f'a batch of {counted(space.batch_size, "example")}'
            f'{" whose micro-batches stay as they are" if space.keeps_micro_batches else ""}; '
            'leave one of them to the planner, or name more devices.')


def _why_none(search: Search, found: Found) -> str:
    """The sentence of the error if no plan fits: the smallest limit that would, with its flags."""
    limit = search.candidates.subject.limit
    _tell('none fits; looking for the smallest limit that any does')
    smallest = search.candidates.least_limit(search.choices, MOST_EFFORT)
    if limit is None or smallest is None:
        raise AssertionError('without a limit, every choice fits')
    least, choice, num_left = smallest
    looked_at = f' that were looked at, of {len(search.choices)},' if found.num_left else ''
    that_any_fits = 'found' if num_left else 'that any fits'
    flags = ' '.join(f'--set pipeline.{name}={value_text(value)}'
                     for name, value in choice._asdict().items())
    return (f'none of {counted(len(search.choices) - found.num_left, "plan")}{looked_at} fits '
            f'devices of {limit:,.0f} bytes: the smallest limit {that_any_fits} is '
            f'pipeline.device_bytes={least:.0f}, with {flags}; name larger devices or more of '
            'them.')
