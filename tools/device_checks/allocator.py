"""Allocator: the bytes that TensorFlow's allocator of a device has given out.

TensorFlow tells them of GPUs. Of CPUs it tells nothing, but its profiler sees every allocation if
the allocator is the one that GPUs have. The environment of running.SEEN_ALLOCATOR makes it so.
"""
from __future__ import annotations

import glob
import tempfile
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

_ALL_EVENTS = 3   # a host_tracer_level of the profiler


def bytes_in_use(device: str) -> float:
    """Returns the bytes that are in use on a device, a tf.device string."""
    if 'GPU' in device:
        info = tf.config.experimental.get_memory_info(device.removeprefix('/device:'))
        return float(info['current'])

    def run() -> None:
        with tf.device(device):
            tf.zeros([1]).numpy()
    return most_bytes(run, device)


def most_bytes(run: Callable[[], object], device: str) -> float:
    """Runs something, and returns the most bytes that are in use on its device meanwhile.

    Args:
      run: uses only this device, or other devices too if it is a GPU.
      device: a tf.device string; all CPUs of a process have one allocator.
    """
    if 'GPU' in device:
        name = device.removeprefix('/device:')
        tf.config.experimental.reset_memory_stats(name)
        run()
        return float(tf.config.experimental.get_memory_info(name)['peak'])

    with tempfile.TemporaryDirectory(prefix='check_devices_') as directory:
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=_ALL_EVENTS)
        tf.profiler.experimental.start(directory, options)
        run()
        tf.profiler.experimental.stop()
        path, = glob.glob(f'{directory}/**/*.xplane.pb', recursive=True)
        space = xplane_pb2.XSpace()
        with open(path, 'rb') as file:
            space.ParseFromString(file.read())
    return max(_bytes_in_use(space), default=0.)


def _bytes_in_use(space: xplane_pb2.XSpace) -> Iterator[float]:
    """Yields the bytes in use after each allocation, as they were asked for.

    Memory that was given out before the profile counts with the bytes that the allocator took.
    """
    given: dict[int, int] = {}   # address -> bytes that were asked for in the time of the profile
    now = 0
    for i, (is_allocation, stats) in enumerate(_sorted_events(space)):
        if i == 0:
            now = stats['bytes_allocated']
            now += -stats['allocation_bytes'] if is_allocation else stats['allocation_bytes']
        if is_allocation:
            given[stats['addr']] = stats['requested_bytes']
            now += stats['requested_bytes']
            yield now
        else:
            now -= given.pop(stats['addr'], stats['allocation_bytes'])


def _sorted_events(space: xplane_pb2.XSpace) -> list[tuple[bool, Mapping[str, int]]]:
    """Returns the events of allocators by time: whether it is an allocation, and its numbers."""
    events = []
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                kind = plane.event_metadata[event.metadata_id].name
                if kind in ('MemoryAllocation', 'MemoryDeallocation'):
                    stats = {plane.stat_metadata[stat.metadata_id].name:
                             stat.int64_value or stat.uint64_value for stat in event.stats}
                    start_ps = line.timestamp_ns * 1000 + event.offset_ps
                    events.append((start_ps, kind == 'MemoryAllocation', stats))
    return [(is_allocation, stats) for _, is_allocation, stats
            in sorted(events, key=lambda event: event[0])]
