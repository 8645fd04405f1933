"""Emulation: cells that sleep for as long as those of a real network compute.

A machine with fewer cores than cells cannot show how fast a pipeline of a network would be on as
many devices. Sleeping cells can: they use no core. Their times are the measured ones of the
network's layers, so that they are as uneven as real cells, and the schedule, the machinery and the
transfers of small tensors are real.
"""
from __future__ import annotations

import json
import os
from collections.abc import Mapping

import tensorflow as tf

from lingpipe.layers.sequential import Sequential
from lingpipe.pipeline.execution.measured_costs import cpu_devices, layer_seconds
from lingpipe.pipeline.execution.measured_hardware import memory_bytes_per_s
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.planner import make_plan
from lingpipe.tools import stacks
from lingpipe.wording.counts import counted


def with_layer_seconds(path: str, network: Sequential.Params, spec: Mapping[str, tf.TensorSpec],
                       params: PipelineParams) -> PipelineParams:
    """Returns the Params with measured seconds of each layer as costs.

    Args:
      path: of a JSON file: layer_seconds, the [forward, backward] seconds of each layer for
        micro-batches of this size, and memory_bytes_per_s, as PipelineParams says it, or null. If
        it does not exist, both are measured on the CPU devices of the cells, and it is written.
      network: its layers.
      spec: of a mini-batch.
      params: how the network is cut.

    Raises:
      ValueError: the file is of another network.
    """
    elements = make_plan(network.instantiate('model'), spec, params,
                         [''] * params.num_devices).elements
    if os.path.exists(path):
        with open(path, encoding='utf-8') as file:
            measured = json.load(file)
    else:
        devices = cpu_devices(params.num_devices)
        measured = {'layer_seconds': layer_seconds(elements, devices),
                    'memory_bytes_per_s': memory_bytes_per_s(devices)}
        with open(path, 'w', encoding='utf-8') as file:
            json.dump(measured, file)

    seconds = measured['layer_seconds']
    if len(seconds) != len(elements):
        raise ValueError(f'{path} has the seconds of {counted(len(seconds), "layer")}, but the '
                         f'network has {len(elements)}; name another file, or none that exists to '
                         'measure.')
    return params.copy().set(
        layer_seconds=tuple(forward + backward for forward, backward in seconds),
        layer_backward_seconds=tuple(backward for _, backward in seconds),
        memory_bytes_per_s=measured['memory_bytes_per_s'])


def sleeping_cells(network: Sequential.Params, spec: Mapping[str, tf.TensorSpec],
                   params: PipelineParams, scale: float
                   ) -> tuple[Sequential.Params, PipelineParams]:
    """Returns a network of one sleeping layer for each cell of the network, and how it is cut.

    Args:
      network: its layers.
      spec: of a mini-batch.
      params: how the network is cut, with the seconds of its layers.
      scale: how much longer the cells sleep than they would compute.
    """
    plan = make_plan(network.instantiate('model'), spec, params, [''] * params.num_devices)
    times_s = [(forward * scale, backward * scale) for forward, backward in
               zip(plan.forecast.forward_costs, plan.forecast.backward_costs, strict=True)]
    times_ms = [(forward * 1e3, backward * 1e3) for forward, backward in times_s]
    sleeping = stacks.sleeping(times_ms, params.layout)
    return sleeping, with_cell_seconds(params, times_s)


def with_cell_seconds(params: PipelineParams, times_s: list[tuple[float, float]]
                      ) -> PipelineParams:
    """Returns the Params for a network of one layer a cell, and the loss in the last cell.

    Args:
      params: how many cells there are, and the rest.
      times_s: [K] forward and backward of each cell, in seconds.
    """
    seconds = [*times_s, (0.0, 0.0)]
    return params.copy().set(
        layers_per_cell=(*[1] * (params.num_cells - 1), 2),
        layer_seconds=tuple(forward + backward for forward, backward in seconds),
        layer_backward_seconds=tuple(backward for _, backward in seconds))
