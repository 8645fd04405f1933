"""Collectives: sums over replicas, the same bits on every device and each time."""
from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.pipeline.replication.collectives import Group, check_devices

CPUS = [f'/device:CPU:{i}' for i in range(4)]


def test_moments_are_gathered_in_the_order_of_replicas_whatever_that_of_devices():
    @functools.partial(tf.compat.v1.wrap_function, signature=[])
    def run():
        made = []
        devices = (CPUS[3], CPUS[0], CPUS[2])
        for replica, device in enumerate(devices):
            with tf.device(device):
                made.append(Group(0, devices).gatherer(replica)(
                    tf.constant([replica + 1., np.nan if replica == 1 else np.inf])))
        return made

    for found in run():
        np.testing.assert_array_equal(found, [[1, np.inf], [2, np.nan], [3, np.inf]])


def test_a_ring_gives_every_device_the_same_bits_each_time():
    values = np.random.default_rng(0).standard_normal((4, 1003, 7)).astype(np.float32)
    specs = [tf.TensorSpec([5]), tf.TensorSpec([1003, 7])]

    def run() -> list[np.ndarray]:
        made = []
        for replica, device in enumerate(CPUS):
            with tf.device(device):
                made.append(Group(0, tuple(CPUS)).sum(
                    tf.constant(values[replica]), specs, 1, 'ring'))
        return made

    step = tf.compat.v1.wrap_function(run, [])
    first, *others = [tensor.numpy() for tensor in (*step(), *step())]
    np.testing.assert_allclose(first, values.sum(0), rtol=1e-5, atol=1e-5)
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize('dtype', ['float32', 'float64'])   # one after the other
def test_a_group_of_two_devices_adds_two_values(dtype):
    devices = tuple(CPUS[1:3])

    def run() -> list[tf.Tensor]:
        made = []
        for value, device in zip(([1., 2., 3.], [10., 20., 30.]), devices, strict=True):
            with tf.device(device):
                made.append(Group(0, devices).sum(
                    tf.constant(value, dtype), [tf.TensorSpec([3], dtype)], 0, 'ring'))
        return made

    found = tf.compat.v1.wrap_function(run, [])()
    assert [tensor.numpy().tolist() for tensor in found] == [[11., 22., 33.]] * 2


def test_two_replicas_of_a_cell_need_two_devices():
    with pytest.raises(ValueError, match=r"reduction='ring', but cell 1 of replicas 0 and 2 is on "
                                         r'one device, CPU:1, and a device can be in a sum once'):
        check_devices(['CPU:0', '/device:CPU:1', 'CPU:2', 'CPU:3', 'CPU:4', 'CPU:1'], 2,
                      "reduction='ring'", 'ring')


def test_cells_of_different_index_may_be_on_one_device():
    check_devices(['CPU:0', 'CPU:1', 'CPU:1', 'CPU:0'], 2, "reduction='ring'", 'ring')


def test_nccl_adds_up_on_gpus_only():
    with pytest.raises(ValueError, match=r"reduction='nccl', but cell 0 of replica 1 is on CPU:0, "
                                         r'and NCCL adds up on GPUs only'):
        check_devices(['GPU:0', 'CPU:0'], 1, "reduction='nccl'", 'nccl')
