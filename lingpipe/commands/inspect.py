"""Inspect: the plan of an experiment, without a variable, so that it is quick for any network.

The first lines answer what people ask before they train: whether it fits, how fast it is, and what
to change.
"""
from __future__ import annotations

from collections.abc import Sequence

from lingpipe import cluster
from lingpipe.cluster import devices
from lingpipe.commands.run_options import RunOptions
from lingpipe.pipeline.planning.candidates import Candidates, SecondsOf, Subject
from lingpipe.pipeline.planning.dataflow import Element, num_examples
from lingpipe.pipeline.planning.hardware import Hardware, device_type
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.search_space import Choice, SearchSpace, keeps_statistics
from lingpipe.training.experiment import Experiment
from lingpipe.training.reporting.plan_table import overview
from lingpipe.training.reporting.step_time import step_time
from lingpipe.training.reporting.verdict import Verdict


def inspect(params: Experiment.Params, options: RunOptions) -> str:
    """Returns the verdict, the table of the plan, and the time of a step as far as it is known.

    Only workers that --devices names are looked for.

    Raises:
      ValueError: there is no plan, whatever the memory of a device.
    """
    experiment: Experiment = params.instantiate()
    pipeline = params.pipeline
    names = _devices(params, options)
    hardware = device_type(options.device_type) if options.device_type else Hardware(
        'unknown', slot_s=0.0)
    subject = Subject(
        experiment.task.network, experiment.train_input.spec(), pipeline, names, hardware,
        _seconds_of(pipeline, hardware, options, params.train_input.batch_size),
        experiment.task.learner.is_frozen, experiment.task.learner.slot_bytes)
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
    verdict = Verdict(current, fits, subject.limit, next(candidates.fastest(near), None))
    table = overview(current.plan, params.train_input.batch_size)
    times = step_time(current.plan, options.logdir)
    return f'{verdict.text()}\n{table}' + (f'\n{times}\n' if times else '')


def _devices(params: Experiment.Params, options: RunOptions) -> Sequence[str]:
    """The devices that there are, as far as anything is said of them."""
    pipeline = params.pipeline
    if options.devices:
        wait_s = params.train.worker_timeout_s
        devices.find(options.devices, pipeline.num_replicas * pipeline.num_cells, wait_s,
                     must_exist=False, num_devices=pipeline.num_devices)   # Are they enough?
        return devices.find_all(options.devices, wait_s, must_exist=False).names
    return pipeline.devices or cluster.expected_devices(pipeline.num_devices)


def _seconds_of(pipeline: PipelineParams, hardware: Hardware, options: RunOptions,
                batch_size: int) -> SecondsOf | None:
    """How long layers take: as a named device, as measured for the Params, or as FLOPs say."""
    if options.device_type:
        return hardware.layer_seconds
    if not pipeline.layer_seconds:
        return None
    both, backward = pipeline.layer_seconds, pipeline.layer_backward_seconds
    if not backward:
        backward = tuple(2 / 3 * seconds for seconds in both)
    passes = [(all_s - backward_s, backward_s)
              for all_s, backward_s in zip(both, backward, strict=True)]
    measured_size = batch_size / (pipeline.num_replicas * pipeline.num_micro_batches)

    def scaled(elements: Sequence[Element]) -> list[tuple[float, float]]:
        """In proportion to the size of a micro-batch."""
        share = num_examples(elements) / measured_size
        return [(share * forward_s, share * backward_s) for forward_s, backward_s in passes]

    return scaled
