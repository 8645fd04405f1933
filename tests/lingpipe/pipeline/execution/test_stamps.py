"""Stamps: every piece of work of a timed step gets three moments, in their order."""
from __future__ import annotations

import numpy as np
import tensorflow as tf

from lingpipe.pipeline.execution.stamps import Stamps, UpdatePart, stamped_work, step_times
from lingpipe.pipeline.execution.step_graph import add_tasks
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning.breakdown import UpdateSpan
from lingpipe.pipeline.planning.schedule import Slot
from lingpipe.pipeline.planning.schedules import make_schedule
from tests.support.two_cells import given, sums

SLOTS_OF_CELL_0 = [Slot('F', 0, 0), Slot('F', 0, 1), Slot('B', 0, 0), Slot('B', 0, 1)]
SLOTS_OF_CELL_1 = [Slot('B', 1, 0), Slot('B', 1, 1)]


def test_work_is_in_the_order_of_devices(pipeline):
    assert stamped_work(pipeline, has_replicas=False) == [
        *SLOTS_OF_CELL_0, UpdatePart('norms', 0), UpdatePart('update', 0),
        *SLOTS_OF_CELL_1, UpdatePart('norms', 1), UpdatePart('update', 1)]
    assert stamped_work(pipeline, has_replicas=True)[4] == UpdatePart('sums', 0)


def test_stamps_of_tasks_are_in_their_order(pipeline):
    def body() -> tf.Tensor:
        batch = given()
        stamps = Stamps(batch.step)
        add_tasks(pipeline, batch, Wire(None), stamps)
        return stamps.stacked(pipeline)

    stamps = tf.compat.v1.wrap_function(body, [])().numpy()
    sums(pipeline)
    by_slot = dict(zip(SLOTS_OF_CELL_0 + SLOTS_OF_CELL_1, stamps.tolist(), strict=True))
    assert all(arrival <= start <= end for arrival, start, end in by_slot.values())
    # A value arrives after its maker has started; the maker's end may be stamped late.
    assert by_slot[Slot('F', 0, 0)][1] <= by_slot[Slot('B', 1, 0)][0]
    assert by_slot[Slot('B', 1, 0)][1] <= by_slot[Slot('B', 0, 0)][0]


def test_the_last_stamp_of_a_gpu_waits_for_a_number_that_it_computes():
    """An op of a GPU is done once its kernels are in the queue, and a copy when they have run."""
    gpu, host = '/job:worker/task:1/device:GPU:3', '/job:worker/task:1/device:CPU:0'

    def body(number: tf.Tensor) -> tf.Tensor:
        stamps = Stamps(number)
        stamps.start(SLOTS_OF_CELL_0[0], gpu, [], [number])
        with tf.device(gpu):
            result = tf.constant(1.0, name='result')
        stamps.end(SLOTS_OF_CELL_0[0], gpu, [result])
        return number

    spec = tf.TensorSpec([], tf.int64)
    graph = tf.compat.v1.wrap_function(body, [spec]).graph
    end = [op for op in graph.get_operations() if op.type == 'Timestamp'][-1]
    copy, = end.control_inputs
    number = copy.inputs[0].op
    assert (end.device, copy.device, number.device) == (host, host, gpu)
    assert (copy.type, number.type) == ('Identity', 'Cast')
    assert [op.name for op in number.control_inputs] == ['result']


def test_times_of_a_step_start_at_the_first_stamp():
    schedule = make_schedule('1f1b', 2, 1)
    works = [Slot('F', 0, 0), Slot('B', 0, 0), UpdatePart('norms', 0), UpdatePart('update', 0),
             Slot('B', 1, 0), UpdatePart('norms', 1), UpdatePart('update', 1)]
    stamps = np.array([
        [100, 101, 103], [108, 109, 112], [112, 112, 113], [114, 115, 116],
        [104, 104, 107], [107, 107, 108], [113, 114, 117]])
    times = step_times(stamps, works, schedule, call_s=20.0)
    assert times.timeline.spans == {Slot('F', 0, 0): (1, 3), Slot('B', 0, 0): (9, 12),
                                    Slot('B', 1, 0): (4, 7)}
    assert times.arrivals == {Slot('F', 0, 0): 0, Slot('B', 0, 0): 8, Slot('B', 1, 0): 4}
    assert times.updates == {
        0: [UpdateSpan('norms', (12, 13), 12, 12), UpdateSpan('update', (15, 16), 13, 14)],
        1: [UpdateSpan('norms', (7, 8), 12, 7), UpdateSpan('update', (14, 17), 13, 13)]}
    assert (times.call_s, times.input_s, times.end_s, times.step_s) == (20, 0, 17, 20)
