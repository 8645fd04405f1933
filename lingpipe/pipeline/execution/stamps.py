"""Stamps: when each piece of work of a timed step began and ended, added to the step's graph.

The clock is an op of the host (clock.py). On a CPU, an op is done when its results exist, so a
stamp behind the results of a task is the end of that task. On a GPU, an op is done as soon as its
kernels are in the queue. There, the stamp waits for a copy to the host of one number that is
computed after the results. The copy waits for all kernels that are in the queue before it, so that
the stamp is that of the device. The next task is launched after the stamp: a timed step on a GPU is
longer than others by the launch of one kernel a task.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from lingpipe import cluster
from lingpipe.pipeline.execution import clock
from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline
from lingpipe.pipeline.execution.task_values import order_of_calls
from lingpipe.pipeline.planning.breakdown import StepTimes, UpdateSpan
from lingpipe.pipeline.planning.drawing import Timeline
from lingpipe.pipeline.planning.schedule import Schedule, Slot


class UpdatePart(NamedTuple):
    """A part of a cell's update: what comes after the tasks of a step.

    Sums are those over replicas, and norms those of the gradients.
    """
    kind: Literal['sums', 'norms', 'update']
    cell: int


Work: TypeAlias = Slot | UpdatePart


class Stamps:
    """The stamps of the graph that is being traced, in seconds since the epoch.

    For each piece of work there are three: when all that it takes was on its device, when it began,
    and when it ended.
    """

    def __init__(self, number: tf.Tensor):
        """
        Args:
          number: any scalar that TensorFlow does not know while it builds the graph.
        """
        self._number = number
        self._stamps: dict[Work, list[tf.Tensor]] = {}

    def start(self, work: Work, device: str, before: Sequence[tf.Operation],
              taken: Sequence[tf.Tensor]) -> tf.Operation:
        """Adds the first two stamps, and returns the op after which the work may begin.

        Args:
          work: has not been stamped yet.
          device: of the work.
          before: what comes before it.
          taken: what it takes, from any device.
        """
        with tf.device(device):
            # A control dependency on a tensor of another device does not wait for its value.
            arrived = [value if cluster.place(value.device) == cluster.place(device)
                       else tf.identity(value) for value in taken]
        with tf.control_dependencies(arrived):
            arrival = clock.now(_host_of(device))
        with tf.control_dependencies([*before, arrival]):
            start = clock.now(_host_of(device))
        self._stamps[work] = [arrival, start]
        return start.op

    def end(self, work: Work, device: str, results: Sequence[tf.Tensor | tf.Operation]
            ) -> tf.Operation:
        """Adds the last stamp, and returns the op after which what follows may begin."""
        end = stamp(device, results, self._number)
        self._stamps[work].append(end)
        return end.op

    def stacked(self, pipeline: CompiledPipeline) -> tf.Tensor:
        """Returns [number of pieces of work, 3] seconds, in the order of `stamped_work`.

        Each device sends all of its stamps in one tensor.
        """
        of_devices = []
        for device, works in _work_by_device(pipeline, self._stamps).items():
            with tf.device(_host_of(device)):
                of_devices.append(tf.stack([tf.stack(self._stamps[work]) for work in works]))
        return tf.concat(of_devices, 0)


def stamp(device: str, results: Sequence[tf.Tensor | tf.Operation], number: tf.Tensor
          ) -> tf.Tensor:
    """Adds a timestamp that a device passes when it has the results.

    Args:
      device: a tf.device string.
      results: made on it.
      number: any scalar that TensorFlow does not know while it builds the graph.
    """
    if _host_of(device) != device:
        with tf.device(device), tf.control_dependencies(results):
            last = tf.cast(number, tf.float32)
        with tf.device(_host_of(device)):
            results = [tf.identity(last)]
    with tf.control_dependencies(results):
        return clock.now(_host_of(device))


def call_stamped(function: Callable[..., Any], args: Sequence[Any], work: Work, device: str,
                 before: Sequence[tf.Operation | tf.Tensor], stamps: Stamps | None) -> tf.Tensor:
    """Calls function(*args), which returns one tensor, on a device, with stamps if there are any.

    Args:
      function: all ops that it makes without a device are on this one.
      args: nested tensors.
      work: what the call is.
      device: a tf.device string.
      before: what comes before it.
      stamps: None if the step is not timed.
    """
    if stamps is not None:
        inputs = tf.nest.flatten(list(args), expand_composites=True)
        before = [stamps.start(work, device, before, inputs)]
    with tf.device(device), tf.control_dependencies(before):
        result = function(*args)
    if stamps is not None:
        stamps.end(work, device, [result])
    return result


def stamped_work(pipeline: CompiledPipeline, has_replicas: bool) -> list[Work]:
    """Returns the work of a timed step in the order of `Stamps.stacked`: device after device."""
    kinds: tuple[Literal['sums', 'norms', 'update'], ...] = ('norms', 'update')
    if has_replicas:
        kinds = ('sums', *kinds)
    work: list[Work] = [*order_of_calls(pipeline),
                        *(UpdatePart(kind, cell.index) for kind in kinds
                          for cell in pipeline.cells)]
    return [one for works in _work_by_device(pipeline, dict.fromkeys(work)).values()
            for one in works]


def step_times(stamps: np.ndarray, works: Sequence[Work], schedule: Schedule,
               call_s: float) -> StepTimes:
    """Returns when everything in a timed step ran; the first stamp is 0 s.

    The norms need the slots and the sums of all devices, since all is divided by the weight of the
    mini-batch. The updates need all norms.

    Args:
      stamps: [number of pieces of work, 3] seconds.
      works: as of `stamped_work`.
      schedule: of the step.
      call_s: see StepTimes.
    """
    device_of = schedule.device_of
    device_of_cell = {slot.cell: device for slot, device in device_of.items()}
    by_work = {work: [float(moment) for moment in moments]
               for work, moments in zip(works, stamps - stamps.min(), strict=True)}
    spans = {work: (start, end) for work, (_, start, end) in by_work.items()
             if isinstance(work, Slot)}

    def last_end(*kinds: str) -> float:
        return max((by_work[work][2] for work in works if work.kind in kinds), default=0.0)

    tasks_end = max(end for _, end in spans.values())
    needs_of = {'norms': max(tasks_end, last_end('sums')), 'update': last_end('norms')}
    updates: dict[int, list[UpdateSpan]] = {}
    for work, (arrival, start, end) in by_work.items():
        if isinstance(work, UpdatePart):
            needs_s = needs_of.get(work.kind, start)
            updates.setdefault(device_of_cell[work.cell], []).append(
                UpdateSpan(work.kind, (start, end), needs_s, arrival))
    arrivals = {work: by_work[work][0] for work in spans}
    return StepTimes(Timeline(spans, device_of), arrivals, updates, call_s)


def _work_by_device(pipeline: CompiledPipeline, stamps: Mapping[Work, Any]
                    ) -> dict[str, list[Work]]:
    """Returns device -> its work, in the order in which it was stamped."""
    by_device: dict[str, list[Work]] = {cell.device: [] for cell in pipeline.cells}
    for work in stamps:
        by_device[pipeline.cells[work.cell].device].append(work)
    return by_device


def _host_of(device: str) -> str:
    """Returns the CPU that runs the host's ops for a device; a CPU is its own host."""
    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type in (None, 'CPU'):
        return device
    host: str = spec.replace(device_type='CPU', device_index=0).to_string()
    return host
