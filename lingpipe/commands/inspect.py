"""Inspect: the plan of an experiment, without a variable, so that it is quick for any network.

The first lines answer what people ask before they train: whether it fits, how fast it is, and what
to change.
"""
from __future__ import annotations

from collections.abc import Sequence

from lingpipe import cluster
from lingpipe.cluster import devices
from lingpipe.commands.plan_freedom import freedom
from lingpipe.commands.run_options import RunOptions
from lingpipe.pipeline.planning.candidates import Candidates
from lingpipe.pipeline.planning.dataflow import Element, num_examples
from lingpipe.pipeline.planning.hardware import Hardware, device_type
from lingpipe.pipeline.planning.layer_times import layer_times
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan_search import best
from lingpipe.pipeline.planning.search_space import FREE, Choice, SearchSpace, keeps_statistics
from lingpipe.pipeline.planning.step_forecast import hardware_of
from lingpipe.pipeline.planning.subject import SecondsOf, Subject
from lingpipe.training.experiment import Experiment
from lingpipe.training.reporting.candidate_table import value_text
from lingpipe.training.reporting.plan_table import one_line, overview, short_device
from lingpipe.training.reporting.step_time import measured_text
from lingpipe.training.reporting.verdict import Verdict


def inspect(params: Experiment.Params, options: RunOptions) -> str:
    """Returns the verdict, with the time of a step as far as it is known, and the plan's table.

    Only workers that --devices names are looked for.

    Raises:
      ValueError: there is no plan, whatever the memory of a device.
    """
    experiment: Experiment = params.instantiate()
    pipeline, learner = params.pipeline, experiment.task.learner
    names = _devices(params, options)
    hardware = device_type(options.device_type) if options.device_type else hardware_of(pipeline)
    subject = Subject(
        experiment.task.network, experiment.train_input.spec(), pipeline, names, hardware,
        _seconds_of(pipeline, hardware, options, params.train_input.batch_size),
        learner.is_frozen, learner.slot_bytes, learner.update_bytes)
    candidates, choice = Candidates(subject), Choice.of(pipeline)

    current = candidates.of(choice, subject.limit)
    fits = current is not None
    if current is None:
        current = candidates.of(choice, None)
    if current is None:
        experiment.make_plan(subject.devices_for(pipeline))
        raise AssertionError('make_plan raises what is wrong')

    space = SearchSpace(
        pipeline, params.train_input.batch_size, len(names),
        len(list(experiment.task.network.units())), frozenset({'num_replicas'}),
        keeps_statistics(experiment.task.network))
    near = [other for other in space.choices() if other.is_one_step_from(choice)]
    source = _source(pipeline, options)
    measured = measured_text(current.step_s if source else None, options.logdir,
                             one_line(current.plan))
    neighbours = best(candidates, near, num_wanted=1).candidates
    verdict = Verdict(current, fits, subject.limit, neighbours[0] if neighbours else None,
                      _devices_text(names, options), source, measured,
                      _planned(pipeline, options, source))
    remarks = ''.join(f'{remark}\n' for remark in experiment.task.remarks())
    return (f'{verdict.text()}\n{overview(current.plan, params.train_input.batch_size)}'
            f'{remarks}')


def _devices(params: Experiment.Params, options: RunOptions) -> Sequence[str]:
    """The devices that there are, as far as anything is said of them."""
    pipeline = params.pipeline
    if options.devices:
        wait_s = params.train.worker_timeout_s
        devices.find(options.devices, pipeline.num_replicas * pipeline.num_cells, wait_s,
                     must_exist=False, num_devices=pipeline.num_devices)   # Are they enough?
        return devices.find_all(options.devices, wait_s, must_exist=False).names
    if options.device_type and not pipeline.devices:
        return [f'/device:GPU:{i}' for i in range(pipeline.num_devices)]   # All types are GPUs.
    return pipeline.devices or cluster.expected_devices(pipeline.num_devices)


def _devices_text(names: Sequence[str], options: RunOptions) -> str:
    """Says what the devices are."""
    if options.device_type:
        return (f'{len(set(names))} of type {options.device_type}, as --device_type says; they '
                'need not be here')
    kinds = dict.fromkeys(cluster.place(name)[2] for name in names)
    unique = list(dict.fromkeys(names))
    what = f'{len(unique)} ({", ".join(map(short_device, unique[:4]))}'
    what += ', ...)' if len(unique) > 4 else ')'
    what += f' with room for {len(names)} cells' if len(unique) < len(names) else ''
    is_here = not any(cluster.place(name)[0] == 'worker' for name in names)
    if 'CPU' in kinds and is_here:
        return f'{what}; logical CPU devices share the processors and the memory of this machine'
    return what


def _planned(pipeline: PipelineParams, options: RunOptions, source: str) -> str:
    """Says which values a planner has chosen, and by what; '' if none has."""
    allowed = freedom(options)
    if not allowed.free:
        return ''
    names = [name for name in FREE if name in allowed.free]
    if pipeline.layers_per_cell and 'layers_per_cell' not in allowed.given:
        names.append('layers_per_cell')
    chosen = [f'{name}={value_text(pipeline[name])}' for name in names]
    by_what = '' if source else ', by layers that it timed; all other lines compare by FLOPs'
    return f'chose {", ".join(chosen)}{by_what}'


def _source(pipeline: PipelineParams, options: RunOptions) -> str:
    """Says where the seconds of layers come from; '' if there are none."""
    if options.device_type:
        return (f'estimates of every layer from the data sheet of {options.device_type}: half of '
                'its peaks; nothing was measured')
    if pipeline.layer_seconds:
        return ('measured: those of every layer are in pipeline.layer_seconds; the sizes of '
                'other micro-batches are in proportion')
    return ''


def _seconds_of(pipeline: PipelineParams, hardware: Hardware, options: RunOptions,
                batch_size: int) -> SecondsOf | None:
    """How long layers take: as a named device, as measured for the Params, or as FLOPs say."""
    if options.device_type:
        return hardware.layer_seconds
    if not pipeline.layer_seconds:
        return None
    measured_size = batch_size / (pipeline.num_replicas * pipeline.num_micro_batches)

    def scaled(elements: Sequence[Element]) -> list[tuple[float, float]]:
        """In proportion to the size of a micro-batch."""
        share, times = num_examples(elements) / measured_size, layer_times(elements, pipeline)
        return [(share * forward_s, share * backward_s) for forward_s, backward_s in
                zip(times.forward, times.backward, strict=True)]

    return scaled
