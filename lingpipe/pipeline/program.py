"""Program: a network on its devices: variables, the training step and the evaluation step.

    program = Program(network, batch_spec, pipeline_params, learner)
    program.train_step(batch, step)     -> {'loss': ..., 'gradient_norm': ..., ...}
    program.evaluator(batch_spec).step(batch) -> {'loss': (sum, weight), ...}

A training step in the graph:

    tasks of all micro-batches -> total weight W, losses  -> sum of squares of every gradient / W  -> global norm, finite?
                                  (to the first device)      (on each device)                         (to the first device)
                               -> on each device, layer by layer: gradient x clip / W -> optimizer; moving averages; reset

Everything that is added up is added in an order that does not depend on K.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe import cluster, nested
from lingpipe.layers.sequential import Sequential
from lingpipe.learner import Learner
from lingpipe.pipeline import plan as plan_lib
from lingpipe.pipeline.accumulators import Accumulators, Merged
from lingpipe.pipeline.cell import Cell, CellTracer, Leaf, leaves_of
from lingpipe.pipeline.cell import Task as TracedTask
from lingpipe.pipeline.plan import PipelineParams
from lingpipe.pipeline.schedule import forward_only
from lingpipe.pipeline.step import run_tasks
from lingpipe.pipeline.timeline import Timeline
from lingpipe.pipeline.wiring import owner

# What a training step returns besides metrics.
_RESULTS = ('loss', 'weight', 'gradient_norm', 'learning_rate', 'is_finite', 'stamps')


class Program:
    """A network on its devices."""

    def __init__(self, network: Sequential, batch_spec: dict[str, Any], params: PipelineParams, learner: Learner,
                 seed: int = 0, devices: Sequence[str] = ()):
        """Plans, and makes all variables; nothing is traced yet.

        Args:
          network: the layers.
          batch_spec: name -> nested tf.TensorSpec of a training mini-batch, its size known.
          params: K, M, schedule, recomputation.
          learner: optimizer and all that goes with it.
          seed: of the experiment: initial weights and all randomness in layers follow from it.
          devices: [K] tf.device strings; default: params.devices, or else cluster.default_devices.
        """
        cluster.set_graph_optimizer(params.use_graph_optimizer)
        devices = list(devices or params.devices or cluster.default_devices(params.num_cells))
        cluster.check_devices(devices)
        self.network, self.learner, self.seed = network, learner, seed
        self.batch_spec = batch_spec
        self.plan = plan_lib.make_plan(network, batch_spec, params, devices, learner.is_frozen, 8.0 + learner.slot_bytes)
        self.weights: dict[str, tf.Variable] = {}
        self._cell_of_weight: dict[str, Cell] = {}
        self._learners: dict[str, Any] = {}
        by_path = {w.path: w for w in network.weights()}
        for cell in self.plan.cells:
            with tf.device(cell.device):
                for element in cell.elements:
                    for weight in element.layer.weights():
                        if owner(weight, by_path) is weight:
                            self.weights[weight.path] = tf.Variable(weight.initial_value(seed), trainable=weight.is_trainable,
                                                                    name='weight')
                            self._cell_of_weight[weight.path] = cell
                    own = {w.path: self.weights[w.path] for w in element.trained if w.shared_with is None}
                    if own:
                        self._learners[element.layer.path] = learner.for_layer(element.layer.path, own)
        self._accumulators = [Accumulators(cell.device, {w.path: w.shape for e in cell.elements for w in e.trained})
                              for cell in self.plan.cells]
        self._tasks: dict[tuple[str, int], TracedTask] = {}
        self._steps: dict[str, Any] = {}
        self._is_broken = False
        self.timed_tasks: list[Any] = []

    # What a checkpoint holds.

    def variables(self) -> dict[str, tf.Variable]:
        """All that a checkpoint keeps, by keys that do not depend on the partition."""
        made = {f'weights/{path}': variable for path, variable in self.weights.items()}
        for layer_learner in self._learners.values():
            made.update(layer_learner.variables())
        return made

    # Training.

    def train_step(self, batch: dict[str, Any], step: int, index: int = 0) -> dict[str, tf.Tensor]:
        """Runs a mini-batch and updates the weights.

        Args:
          batch: nested tensors of batch_spec.
          step: number of updates made before; seeds and schedules follow from it.
          index: how many mini-batches were accumulated before this one for the same update.

        Returns:
          Scalars by name: 'loss', every emitted loss and metric, 'weight' (the mini-batch's total weight),
          'gradient_norm', 'learning_rate', 'is_finite' (False: nothing was updated).
        """
        return self._call('train', batch, step, index)

    def accumulate(self, batch: dict[str, Any], step: int, index: int) -> None:
        """Runs mini-batch `index` of an update and only adds to the accumulators; train_step takes the last one."""
        self._call('accumulate', batch, step, index)

    def timed_step(self, batch: dict[str, Any], step: int, index: int = 0) -> tuple[dict[str, tf.Tensor], Timeline]:
        """A train_step that also measures when every task ran."""
        results = dict(self._call('timed', batch, step, index))
        stamps = results.pop('stamps').numpy()
        order = self.timed_tasks
        spans = {task: (float(a), float(b)) for task, (a, b) in zip(order, stamps - stamps.min(), strict=True)}
        return results, Timeline(spans, self.plan.schedule.device_of)

    def check_batch(self, batch: dict[str, Any]) -> None:
        """Raises ValueError for a mini-batch that is not of batch_spec."""
        _check_batch(batch, self.batch_spec)

    def _call(self, kind: str, batch: dict[str, Any], step: int, index: int) -> Any:
        batch = {name: batch[name] for name in self.batch_spec if name in batch}
        _check_batch(batch, self.batch_spec)
        if kind not in self._steps:
            self._steps[kind] = self._build(kind)
        if self._is_broken:
            for accumulators in self._accumulators:
                accumulators.reset()
        position = (tf.constant(step, tf.int64), tf.constant(index * self.plan.params.num_micro_batches, tf.int32))
        self._is_broken = True  # unless it comes to its end, its tasks have added what the next step must not see
        try:
            results = self._steps[kind](*nested.leaves(batch), *position)
        except tf.errors.CancelledError:  # what devices say that were cut off when another failed, and often all that is said
            if all(tf.DeviceSpec.from_string(cell.device).job in (None, 'localhost') for cell in self.plan.cells):
                run_tasks(self.plan.schedule, self.plan.cells, self._tasks, nested.map_leaves(tf.convert_to_tensor, batch), *position,
                          self._read_shared)  # one by one, up to the one that fails
            raise
        self._is_broken = False
        return results

    def _build(self, kind: str) -> Any:
        if not self._tasks:
            self._trace_tasks()
        updates = None if kind == 'accumulate' else _Update(self, self.plan.cells, self._accumulators)
        specs = [*nested.leaves(self.batch_spec), tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int32)]

        def body(*args: tf.Tensor) -> Any:
            *flat, step, first = args
            ran = run_tasks(self.plan.schedule, self.plan.cells, self._tasks, nested.pack_like(self.batch_spec, flat), step, first,
                            self._read_shared, is_timed=kind == 'timed')
            if updates is None:
                with tf.control_dependencies(ran.last):
                    return {'done': tf.constant(True)}
            results = updates.run(ran.last, step)
            if kind == 'timed':
                results['stamps'] = ran.stamps
                self.timed_tasks = ran.tasks
            return results

        return tf.compat.v1.wrap_function(body, specs)

    def _trace_tasks(self) -> None:
        available: set[Leaf] = set()
        tasks: dict[tuple[str, int], TracedTask] = {}
        for cell in reversed(self.plan.cells):
            tracer = CellTracer(cell, self._reader(cell, self.weights), self._accumulators[cell.index], self.seed,
                                self.plan.params.recompute, training=True)
            gradients_in = [leaf for leaf in leaves_of([*cell.inputs, *cell.outputs]) if leaf in available]
            forward, backward = tracer.trace(gradients_in, is_fused=cell is self.plan.cells[-1])
            if forward is not None:
                tasks['F', cell.index] = forward
            if backward is not None:
                tasks['B', cell.index] = backward
                available.update(backward.gradients_out)
        self._tasks = tasks  # all or none: a layer that fails is asked again by the next step

    def _reader(self, cell: Cell, variables: dict[str, tf.Variable]) -> Any:
        def read(path: str) -> tf.Tensor | None:
            if self._cell_of_weight[path] is not cell:
                return None
            variable = variables[path]
            return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
        return read

    def _read_shared(self, path: str) -> tf.Tensor:
        cell = self._cell_of_weight[path]
        with tf.device(cell.device):
            return self._reader(cell, self.weights)(path)

    # Evaluation.

    def evaluator(self, batch_spec: dict[str, Any], num_micro_batches: int = 0, fetch: Sequence[str] = ()) -> Evaluator:
        """Forward only, pipelined, with the moving averages of the weights where the learner keeps them.

        Args:
          batch_spec: of an evaluation mini-batch; its size may differ from training's.
          num_micro_batches: default: training's if it divides the batch, or else 1.
          fetch: names of values to return for every example (the last value of that name).
        """
        return Evaluator(self, batch_spec, num_micro_batches, fetch)


class Evaluator:
    """The evaluation step of a Program."""

    def __init__(self, program: Program, batch_spec: dict[str, Any], num_micro_batches: int, fetch: Sequence[str]):
        size = nested.leaves(batch_spec)[0].shape[0]
        m = program.plan.params.num_micro_batches
        m = num_micro_batches or (m if size and size % m == 0 else 1)
        params = program.plan.params.copy()
        params.num_micro_batches, params.recompute = m, 'none'
        params.layers_per_cell = tuple(len(cell.elements) for cell in program.plan.cells)
        plan = plan_lib.make_plan(program.network, batch_spec, params, [c.device for c in program.plan.cells])
        self._batch_spec, self._m, self._is_broken = batch_spec, m, False
        self._fetched = {name: value for element in plan.elements for name, value in element.writes.items() if name in fetch}
        for name in fetch:
            if name not in self._fetched:
                raise ValueError(f'no layer writes {name!r}; there are {", ".join(sorted({n for e in plan.elements for n in e.writes}))}.')
            self._fetched[name].readers.append(len(plan.elements))
        cells = [Cell(c.index, c.elements, c.device) for c in plan.cells]
        variables = {**program.weights, **{p: v for one in program._learners.values() for p, v in one.ema().items()}}
        self._accumulators = [Accumulators(cell.device, {}) for cell in cells]
        same = {id(cell): program.plan.cells[cell.index] for cell in cells}
        tasks: dict[tuple[str, int], TracedTask] = {}
        for cell, accumulators in zip(cells, self._accumulators, strict=True):
            tracer = CellTracer(cell, program._reader(same[id(cell)], variables), accumulators, program.seed, 'none', training=False)
            forward, _ = tracer.trace([], is_fused=False)
            assert forward is not None
            tasks['F', cell.index] = forward

        def read_shared(path: str) -> tf.Tensor:
            with tf.device(program._cell_of_weight[path].device):
                return tf.raw_ops.ReadVariableOp(resource=variables[path].handle, dtype=variables[path].dtype)

        def body(*flat: tf.Tensor) -> Any:
            ran = run_tasks(forward_only(len(cells), m), cells, tasks, nested.pack_like(batch_spec, list(flat)), tf.constant(0, tf.int64),
                            tf.constant(0), read_shared)
            outputs = {name: nested.pack_like(value.spec, [tf.concat([ran.values[(value, i), j] for j in range(m)], 0)
                                                           for i in range(len(value.specs))]) for name, value in self._fetched.items()}
            sums = {}
            for cell, accumulators, last in zip(cells, self._accumulators, ran.last, strict=True):
                with tf.device(cell.device), tf.control_dependencies([last]):
                    read = tf.function(lambda a=accumulators: _read_and_reset(a), autograph=False)
                    sums[cell.index] = read()
            merged = _joined([sums[k] for k in range(len(cells))])
            return {'sums': _named_sums(merged), 'outputs': outputs}

        self._step = tf.compat.v1.wrap_function(body, nested.leaves(batch_spec))

    def step(self, batch: dict[str, Any]) -> tuple[dict[str, tuple[tf.Tensor, tf.Tensor]], dict[str, Any]]:
        """Returns ({name: (sum, weight)} of losses and metrics, {name: value} of what is fetched, for the whole mini-batch)."""
        batch = {name: batch[name] for name in self._batch_spec if name in batch}
        _check_batch(batch, self._batch_spec)
        if self._is_broken:
            for accumulators in self._accumulators:
                accumulators.reset()
        self._is_broken = True  # until it comes to its end
        results = self._step(*nested.leaves(batch))
        self._is_broken = False
        return results['sums'], results['outputs']


class _Update:
    """The end of a training step: normalise, clip, update, reset."""

    def __init__(self, program: Program, cells: Sequence[Cell], accumulators: Sequence[Accumulators]):
        self._program, self._cells, self._accumulators = program, cells, accumulators
        # owned weight path -> uses in other cells or layers: (cell, path as used), in the order of the network.
        self._uses: dict[str, list[tuple[int, str]]] = {}
        for cell in cells:
            for element in cell.elements:
                for weight in element.trained:
                    self._uses.setdefault(weight.shared_with or weight.path, []).append((cell.index, weight.path))

    def run(self, last: Sequence[tf.Operation], step: tf.Tensor) -> dict[str, tf.Tensor]:
        """Adds the update to the graph, after the last op of every device."""
        program, cells = self._program, self._cells
        emitted = []
        for cell, accumulators, op in zip(cells, self._accumulators, last, strict=True):
            with tf.device(cell.device), tf.control_dependencies([op]):
                emitted.append(tf.function(lambda a=accumulators: _read(a), autograph=False)())
        foreign = {use: self._read_gradient(use, last) for path, uses in self._uses.items()
                   for use in uses if use[0] != program._cell_of_weight[path].index}
        with tf.device(cells[0].device):
            sums = _named_sums(_joined(emitted))
            loss_sum, weight = sums['loss']
            inverse_weight = tf.math.reciprocal_no_nan(weight)
            learning_rate = tf.cast(program.learner.learning_rate(step), tf.float32)
        squares = []
        for cell, op in zip(cells, last, strict=True):
            with tf.device(cell.device), tf.control_dependencies([op]):
                squares.append(tf.function(lambda inverse, given, c=cell: self._squares(c, inverse, given), autograph=False)(
                    inverse_weight, self._foreign_of(cell, foreign)))
        with tf.device(cells[0].device):
            norm = tf.sqrt(2.0 * tf.reduce_sum(tf.concat(squares, 0)))
            is_finite = tf.math.is_finite(norm) & tf.math.is_finite(loss_sum)
            scale = inverse_weight * program.learner.clip_factor(norm)
        done = []
        for cell in cells:
            with tf.device(cell.device), tf.control_dependencies(squares):  # every cell has read what it needs of the others
                done.append(tf.function(lambda *a, c=cell: self._update(c, *a), autograph=False)(
                    scale, learning_rate, is_finite, self._foreign_of(cell, foreign)))
        with tf.device(cells[0].device), tf.control_dependencies(done):
            results = {name: tf.math.divide_no_nan(total, w) for name, (total, w) in sums.items()}
            results['loss'] = tf.where(tf.math.is_finite(loss_sum), loss_sum * inverse_weight, loss_sum)
            results.update(weight=tf.identity(weight), gradient_norm=tf.identity(norm), is_finite=tf.identity(is_finite),
                           learning_rate=tf.identity(learning_rate))
            return results

    def _read_gradient(self, use: tuple[int, str], last: Sequence[tf.Operation]) -> tf.Tensor:
        k, path = use
        with tf.device(self._cells[k].device), tf.control_dependencies([last[k]]):
            return tf.identity(self._accumulators[k].gradients[path].read_value())

    def _foreign_of(self, cell: Cell, foreign: dict[tuple[int, str], tf.Tensor]) -> dict[str, tf.Tensor]:
        return {f'{path}\n{use[1]}': foreign[use] for path, uses in self._uses.items() for use in uses
                if self._program._cell_of_weight[path] is cell and use in foreign}

    def _gradient(self, path: str, scale: tf.Tensor, given: dict[str, tf.Tensor]) -> tf.Tensor:
        """The gradient of an owned weight: its uses summed in the order of the network, scaled, plus the learner's regularization."""
        owner_cell = self._program._cell_of_weight[path].index
        total = None
        for k, used in self._uses[path]:
            part = self._accumulators[k].gradients[used].read_value() if k == owner_cell else given[f'{path}\n{used}']
            total = part if total is None else total + part
        assert total is not None
        return self._program.learner.regularized(path, total * scale, self._program.weights[path])

    def _owned(self, cell: Cell) -> list[tuple[str, list[str]]]:
        """(layer path, paths of its owned trained weights) of a cell, in order."""
        rows = [(e.layer.path, [w.path for w in e.trained if w.shared_with is None]) for e in cell.elements]
        return [(layer, paths) for layer, paths in rows if paths]

    def _squares(self, cell: Cell, inverse_weight: tf.Tensor, given: dict[str, tf.Tensor]) -> tf.Tensor:
        """[n] half the sum of squares of every owned gradient, one after the other so that one is in memory at a time."""
        halves: list[tf.Tensor] = []
        for _, paths in self._owned(cell):
            for path in paths:
                with tf.control_dependencies(halves[-1:]):
                    halves.append(tf.nn.l2_loss(self._gradient(path, inverse_weight, given)))
        return tf.stack(halves) if halves else tf.zeros([0])

    def _update(self, cell: Cell, scale: tf.Tensor, learning_rate: tf.Tensor, is_finite: tf.Tensor,
                given: dict[str, tf.Tensor]) -> tf.Tensor:
        program, accumulators = self._program, self._accumulators[cell.index]

        def apply() -> tf.Tensor:
            done: list[Any] = []
            for layer_path, paths in self._owned(cell):
                with tf.control_dependencies(done[-1:]):  # one weight after the other, so that the temporaries of one exist at a time
                    done.append(program._learners[layer_path].apply(
                        {path: lambda path=path: self._gradient(path, scale, given) for path in paths}, learning_rate))
            self._update_state(cell, accumulators.merged())
            with tf.control_dependencies(done[-1:]):
                return tf.constant(0)

        token = tf.cond(is_finite, apply, lambda: tf.constant(0))
        with tf.control_dependencies([token]):
            return accumulators.reset()

    def _update_state(self, cell: Cell, merged: Merged) -> None:
        layers = {layer.path: layer for e in cell.elements for layer in e.layer.layers()}
        for (path, name), value in [*merged.moments.items(), *merged.means.items()]:
            layer, weights = layers[path], self._program.weights
            state = nested.NestedMap({own: weights[w.shared_with or w.path].read_value() for own, w in layer.own_weights.items()
                                      if (w.shared_with or w.path) in weights})
            for own, new in layer.updated_state(name, state, value).items():
                weights[layer.own_weights[own].path].assign(new)


def _read(accumulators: Accumulators) -> dict[str, dict[str, tf.Tensor]]:
    """Losses, weights and metrics with string keys, as a function may return."""
    merged = accumulators.merged()
    return {kind: {'\n'.join(key): value for key, value in getattr(merged, kind).items()} for kind in ('losses', 'weights', 'metrics')}


def _read_and_reset(accumulators: Accumulators) -> dict[str, dict[str, tf.Tensor]]:
    read = nested.map_leaves(lambda t: [tf.identity(x) for x in t] if isinstance(t, tuple) else tf.identity(t), _read(accumulators))
    accumulators.reset()
    return read


def _joined(emitted: Sequence[dict[str, dict[str, tf.Tensor]]]) -> dict[str, dict[str, tf.Tensor]]:
    return {kind: {key: value for one in emitted for key, value in one[kind].items()} for kind in ('losses', 'weights', 'metrics')}


def _named_sums(emitted: dict[str, dict[str, Any]]) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """(sum, weight) by name: 'loss' is the objective; with several losses each is there under its layer's path too."""
    weights = list(emitted['weights'].values())
    if len(weights) != 1:
        given = ', '.join(key.split('\n')[0] for key in emitted['weights']) or 'none'
        raise ValueError(f'{len(weights)} layers give a loss with a weight ({given}); exactly one must, the main loss, by which all are '
                         f'normalised: give weight_sum to ctx.emit_loss there and nowhere else.')
    weight = weights[0]
    losses = emitted['losses']
    total = None
    for value in losses.values():
        total = value if total is None else total + value
    assert total is not None
    named = {'loss': (total, weight)}
    for path, name in (key.split('\n') for key in emitted['metrics']):
        if name in _RESULTS:
            raise ValueError(f'{path} emits a metric named {name!r}, which is the name of a result of every step; give it another.')
    if len(losses) > 1:
        named.update({'loss/' + key.replace('\n', '/'): (value, weight) for key, value in losses.items()})
    metrics = emitted['metrics']
    names = [key.split('\n')[1] for key in metrics]
    for key, (value, metric_weight) in metrics.items():
        path, name = key.split('\n')
        named[name if names.count(name) == 1 else f'{name}/{path}'] = (value, metric_weight)
    return named


def _check_batch(batch: dict[str, Any], batch_spec: dict[str, Any]) -> None:
    expected = dict(nested.flatten(batch_spec))
    found = dict(nested.flatten(batch))
    if set(found) != set(expected):
        raise ValueError(f'the mini-batch has {", ".join(sorted(found))}, but the network was built for {", ".join(sorted(expected))}.')
    for path, spec in expected.items():
        value = found[path] if hasattr(found[path], 'dtype') else np.asarray(found[path])
        shape, dtype = tuple(np.shape(value)), tf.as_dtype(value.dtype)
        if shape != tuple(spec.shape) or dtype != spec.dtype:
            raise ValueError(f'{path!r} of the mini-batch is {dtype.name} {shape}, but the network was built for {spec.dtype.name} '
                             f'{tuple(spec.shape)}; all mini-batches must be alike: drop or pad the last one.')
