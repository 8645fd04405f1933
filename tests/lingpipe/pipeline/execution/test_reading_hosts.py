"""Reading hosts: a process makes the mini-batches of the cells on its own devices."""
from __future__ import annotations

import tensorflow as tf

from lingpipe import cluster
from lingpipe.pipeline.execution.reading_hosts import reading_hosts, source_of
from lingpipe.pipeline.execution.traffic import forward_traffic
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.dataflow import wire
from tests.support.tiny_experiment import DIM, Tiny


def test_a_mini_batch_is_read_by_the_process_of_each_device_that_reads_a_part():
    places = [f'/job:worker/replica:0/task:{task}/device:CPU:{index}'
              for task, index in ((0, 1), (1, 0), (2, 1))]
    network = Tiny.params().instantiate().task.network
    spec = {'x': tf.TensorSpec([4, DIM]), 'y': tf.TensorSpec([4, DIM]),
            'weight': tf.TensorSpec([4])}
    elements = wire(network, spec)
    cells = [Cell(k, elements[2 * k:2 * k + 2], place) for k, place in enumerate(places)]
    hosts = reading_hosts([cells])
    assert hosts == [f'/job:worker/replica:0/task:{task}/device:CPU:0' for task in (0, 2)]
    assert [source_of(place, hosts) for place in places] == [hosts[0], cluster.HOME, hosts[1]]

    # They are sent from the first CPU of a worker to its second, and otherwise from the trainer.
    x, y, weight = 4 * DIM * 4, 4 * DIM * 4, 4 * 4
    for one_hosts in (hosts, ()):
        assert forward_traffic(cells, 2, cluster.HOME, hosts=one_hosts).batch == 2 * (
            x + y + weight)
    on_first = [Cell(k, cell.elements, place.replace('CPU:1', 'CPU:0'))
                for k, (cell, place) in enumerate(zip(cells, places, strict=True))]
    assert forward_traffic(on_first, 2, cluster.HOME, hosts=hosts).batch == 0
