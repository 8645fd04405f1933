"""Pipeline Params: how a network is run on devices, as an experiment says it."""
from __future__ import annotations

from typing import Literal, TypeAlias

from lingpipe import cluster
from lingpipe.hyperparams import Params, field
from lingpipe.pipeline.planning.layout import Layout, layout_for, num_devices_for
from lingpipe.pipeline.planning.micro_batches import divisors
from lingpipe.pipeline.planning.schedule import Schedule
from lingpipe.pipeline.planning.schedule_text import layout_in, parse_schedule
from lingpipe.pipeline.planning.validation import validate
from lingpipe.wording.counts import counted

Mode: TypeAlias = Literal['none', 'cell', 'layer', 'fit']
"""What runs again in the backward pass of a cell; see PipelineParams.recompute."""

Modes: TypeAlias = Mode | tuple[Mode, ...]
"""One mode for all cells, or one for each."""


class PipelineParams(Params):
    """How a network is run on devices.

    num_micro_batches, num_replicas, sum_groups, cross_replica_batch_norm and wire_dtype change what
    is learned. jit_compile, use_graph_optimizer and replica_reduction change the last bits of
    results. Everything else, such as the number of cells, the schedule and recomputation, changes
    nothing on CPUs, nor on GPUs with TensorFlow's deterministic ops, unless wire_dtype, jit_compile
    or use_graph_optimizer is set.
    """
    num_cells: int = field(
        1, 'K: how many cells the layers are cut into; one a device, but see cells_per_device.',
        least=1, most=cluster.MAX_DEVICES)
    num_micro_batches: int = field(
        1, 'M: how many micro-batches a mini-batch is split into, in each replica.',
        least=1, most=10_000)
    num_replicas: int = field(
        1, 'R: pipelines that run side by side, each on its part of the mini-batch, with weights '
           'that stay equal to the last bit. R M must divide the size of a mini-batch.',
        least=1, most=cluster.MAX_DEVICES)
    cross_replica_batch_norm: bool = field(
        False, 'BatchNorm takes its moments over the micro-batches of the same index of all '
               'replicas, as if they were one; else each replica by itself.')
    sum_groups: int = field(
        1, 'Micro-batches are summed in so many groups, and then the groups: the result, to the '
           'last bit, of as many replicas. For one replica that accumulates no mini-batches; takes '
           '4 bytes more a weight.',
        least=1)
    replica_reduction: Literal['add', 'ring', 'nccl'] = field(
        'add', "Who sums the gradients of replicas: plain additions in the order of replicas; "
               "TensorFlow's ring of collectives, in an order that depends on the devices; NCCL, "
               "on GPUs only (written, but never run: one GPU cannot).")
    shard_slots: bool = field(
        False, 'Each replica keeps the optimizer slots and moving averages of its share of the '
               'weights, updates these and sends them to the others (ZeRO stage 1). The same '
               'results in less memory; R - 1 of R weights arrive at each device in every step.')
    schedule: Literal['gpipe', '1f1b', 'interleaved', 'zb_h1', 'zb_h2', 'zb_v', 'v_half', 'v_min',
                      'dual_pipe_v', 'auto', 'text'] = field(
        '1f1b', 'Order of the slots on each device: one that has a name; the fastest, found from '
                'the costs of cells and the memory limit (auto); or one that is written down '
                '(text). lingpipe.tools.show_schedule draws them.')
    schedule_text: str = field(
        '', 'With schedule=text: the order itself, as lingpipe.tools.show_schedule prints it, a '
            'row for each device of a replica. New lines or semicolons end rows.')
    schedule_path: str = field(
        '', 'With schedule=text: a file that holds it.')
    cells_per_device: int = field(
        0, 'How many cells share a device, where `devices` does not say it. 0: what the schedule '
           'wants, which is 2 for interleaved, zb_v, v_half, v_min and dual_pipe_v and 1 for '
           'others.',
        least=0)
    recompute: Mode | tuple[Mode, ...] = field(
        'cell', 'What runs again in the backward pass: nothing; the cell; the cell, and then every '
                'layer in turn; or (fit) as little as device_bytes allows, which is nothing '
                'without a limit. One word for all cells, or one a cell, as in cell,none.')
    partition: Literal['bottleneck', 'variance'] = field(
        'bottleneck', 'What the partitioner minimises: the slowest cell, or the variance.')
    layers_per_cell: tuple[int, ...] = field(
        (), 'A partition by hand: how many layers each cell has. Empty: the partitioner decides.',
        least=1)
    layer_seconds: tuple[float, ...] = field(
        (), 'Measured seconds of each layer (lingpipe.tools.show_partition --measure prints '
            'them), used as costs in place of FLOPs.',
        least=0)
    layer_backward_seconds: tuple[float, ...] = field(
        (), 'How many of layer_seconds are those of the backward (--measure prints them too). '
            'Empty: two thirds, or less of a layer with frozen weights.',
        least=0)
    link_bytes_per_s: float | None = field(
        None, 'Bytes/s that a link between two devices carries. The forecast of a step counts '
              'transfers, and schedule=auto orders slots for them. Only with layer_seconds. None: '
              'transfers are free.',
        above=0)
    memory_bytes_per_s: float | None = field(
        None, 'Bytes/s that a device reads and writes (lingpipe.tools.show_partition --measure '
              'prints them). The forecast of a step counts what the update moves, and what a split '
              'backward hands over. Only with layer_seconds. None: neither takes time.',
        above=0)
    device_bytes: float | None = field(
        None, 'Memory limit of a device, in bytes: no device is given cells that are predicted to '
              'hold more. See pipeline/planning/memory.py for what is counted.',
        above=0)
    devices: tuple[str, ...] = field(
        (), 'tf.device strings, replica after replica: one a cell or, where devices have several '
            'cells, one a device. Empty: the GPUs, or else the logical CPU devices.')
    shares_threads: bool | None = field(
        None, 'Whether a device that waits leaves its threads to the others, so that backwards are '
              'split, and forwards repeated early, only where that helps even so. None: the '
              'devices of a replica do if they are CPU devices of one process, without '
              'jit_compile.')
    read_on_workers: bool = field(
        False, 'Whether workers read the inputs themselves: each that has cells which read the '
               'mini-batch makes it, and the trainer sends positions only. The same results; needs '
               'the files of the inputs on these workers, at the same paths. Inputs of evaluations '
               'that workers cannot make come from the trainer.')
    cells_per_gpu: int = field(
        1, 'How many cells `devices` may put on one GPU; --devices=2*gpu sets it to 2.',
        least=1)
    wire_dtype: Literal['as_is', 'bfloat16'] = field(
        'as_is', "What float32 values and gradients are sent to other devices as; with 'bfloat16' "
                 "half the bytes, and results that depend on where cells end.")
    jit_compile: bool = field(
        False, 'XLA compiles every task, once for every shape; on TPUs it always does. If no cell '
               'is on a CPU, it compiles updates too. What it fuses depends on where cells end, '
               'and so do the last bits of results. It draws other random numbers in layers of '
               'Keras, such as Dropout.')
    use_graph_optimizer: bool = field(
        False, "TensorFlow's Grappler rewrites graphs for speed; its rewrites depend on where "
               'cells end, so that with it results differ in the last bits between partitions.')

    def check(self) -> None:
        """Checks what two or more fields say together.

        Raises:
          ValueError: a partition, modes or devices of another length than the numbers say, cells
            that would share a GPU, or groups that do not come out even.
        """
        self._check_schedule()
        self._check_groups()
        self._check_modes()
        self._check_layers()
        self._check_devices()

    @property
    def num_devices(self) -> int:
        """R D, of all replicas: R K if no device has several cells."""
        return self.num_replicas * (max(self.layout) + 1)

    @property
    def layout(self) -> Layout:
        """[K] the device of each cell in its replica, where `devices` does not say it."""
        if self.schedule == 'text':
            return layout_in(self.given_schedule)
        num_devices = num_devices_for(self.schedule, self.num_cells, self.cells_per_device)
        return layout_for(self.schedule, self.num_cells, num_devices)

    @property
    def given_schedule(self) -> Schedule:
        """The schedule that schedule_text or schedule_path gives, whose cells may lack a B."""
        text = self.schedule_text
        if self.schedule_path:
            with open(self.schedule_path, encoding='utf-8') as file:
                text = file.read()
        return parse_schedule(text)

    def recompute_of(self, cell: int) -> Mode:
        """What runs again in the backward pass of a cell."""
        return self.modes[cell]

    @property
    def modes(self) -> tuple[Mode, ...]:
        """[K] `recompute_of` every cell."""
        if isinstance(self.recompute, tuple):
            return self.recompute
        return (self.recompute,) * self.num_cells

    def _check_schedule(self) -> None:
        """Raises ValueError if a schedule is given as text but should not be, or does not fit."""
        num_given = bool(self.schedule_text) + bool(self.schedule_path)
        if num_given != (self.schedule == 'text'):
            raise ValueError(
                f'schedule={self.schedule}, schedule_text has {len(self.schedule_text)} characters '
                f'and schedule_path={self.schedule_path!r}; give one of the two with '
                'schedule=text, and none with another schedule.')
        if self.schedule != 'text':
            return

        if self.cells_per_device:
            raise ValueError(f'cells_per_device={self.cells_per_device}, but with schedule=text '
                             'the rows say which cells share a device; set it to 0.')
        try:
            schedule = self.given_schedule
        except OSError as error:
            raise ValueError(f'schedule_path={self.schedule_path!r} cannot be read, '
                             f'{error.strerror}; correct it.') from error
        except UnicodeDecodeError as error:
            raise ValueError(f'schedule_path={self.schedule_path!r} is no UTF-8 text; name a file '
                             'that holds a schedule.') from error
        for name, number in (('num_cells', schedule.num_cells),
                             ('num_micro_batches', schedule.num_micro_batches)):
            if number != getattr(self, name):
                raise ValueError(f'{name}={getattr(self, name)}, but the schedule that is given '
                                 f'has {number}; make them equal.')
        validate(schedule)

    def _check_groups(self) -> None:
        """Raises ValueError if the groups of sums or the number of devices cannot be."""
        if self.num_micro_batches % self.sum_groups:
            raise ValueError(
                f'sum_groups={self.sum_groups} does not divide '
                f'num_micro_batches={self.num_micro_batches}; use '
                f'{divisors(self.num_micro_batches)}.')
        if self.num_devices > cluster.MAX_DEVICES:
            raise ValueError(
                f'num_cells={self.num_cells} and num_replicas={self.num_replicas} need '
                f'{self.num_devices} devices; use at most {cluster.MAX_DEVICES} of both together.')
        if self.sum_groups > 1 and self.num_replicas > 1:
            raise ValueError(
                f'sum_groups={self.sum_groups} and num_replicas={self.num_replicas}; replicas are '
                'groups already: set one of the two to 1.')

    def _check_modes(self) -> None:
        if len(self.modes) != self.num_cells:
            raise ValueError(
                f'recompute={",".join(self.modes)} has {counted(len(self.modes), "mode")}, but '
                f'num_cells={self.num_cells}; give one mode a cell, or one word for all of them.')

    def _check_layers(self) -> None:
        if self.layers_per_cell and len(self.layers_per_cell) != self.num_cells:
            raise ValueError(
                f'layers_per_cell={list(self.layers_per_cell)} names '
                f'{counted(len(self.layers_per_cell), "cell")}, but num_cells={self.num_cells}; '
                'make them equal, or leave layers_per_cell empty.')
        for name in ('link_bytes_per_s', 'memory_bytes_per_s'):
            if self[name] is not None and not self.layer_seconds:
                raise ValueError(
                    f'{name}={self[name]:g}, but layer_seconds is empty, and without seconds of '
                    'layers transfers cannot be compared with them; measure these, or leave '
                    f'{name} out.')
        num_backward = len(self.layer_backward_seconds)
        if num_backward and num_backward != len(self.layer_seconds):
            raise ValueError(
                f'layer_backward_seconds has {counted(num_backward, "number")}, but layer_seconds '
                f'has {len(self.layer_seconds)}; give one a layer to both, or leave '
                'layer_backward_seconds empty.')
        both_passes = zip(self.layer_seconds, self.layer_backward_seconds, strict=False)
        for i, (both, backward) in enumerate(both_passes):
            if backward > both:
                raise ValueError(
                    f'layer_backward_seconds[{i}]={backward} is more than '
                    f'layer_seconds[{i}]={both}, of which it is a part; measure again.')

    def _check_devices(self) -> None:
        lengths = (self.num_devices, self.num_replicas * self.num_cells)
        if self.devices and len(self.devices) not in lengths:
            remedy = '; name one for each cell.'
            if self.num_devices < lengths[1]:
                remedy = (f', which share {counted(max(self.layout) + 1, "device")}; name '
                          f'{lengths[0]} of them.')
            if self.num_replicas > 1:
                remedy = (f' and num_replicas={self.num_replicas}; name one for each cell of each '
                          'replica.')
            raise ValueError(f'devices names {counted(len(self.devices), "device")}, but '
                             f'num_cells={self.num_cells}{remedy}')

        places = [cluster.place(device) for device in self.devices]
        for device, place in zip(self.devices, places, strict=True):
            _, _, kind, number = place
            if number >= cluster.MAX_DEVICES:
                raise ValueError(
                    f'devices names {device}; no process has so many devices: use numbers below '
                    f'{cluster.MAX_DEVICES}.')
            if kind == 'GPU' and places.count(place) > self.cells_per_gpu:
                cells = [i for i, other in enumerate(places) if other == place]
                raise ValueError(
                    f'devices puts {len(cells)} cells on {device}, {cells}; name another GPU, or '
                    f'set cells_per_gpu={len(cells)} if that is meant.')
