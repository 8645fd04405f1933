"""Cell trace: a cell traced once, and cut into its forward and backward tasks.

The obvious way is a tape around the forward function of every cell. It fails here in three ways: gradients of values
with many readers are summed in an order that depends on where the cells end; gradient ops land on the device of
whoever asks; and all gradients of a cell exist at once before they are added to the accumulators. Instead a cell is
traced once, forward and backward, with a tape around each layer by itself, in one graph:

    read weights -> layer 0 -> layer 1 -> ... -> outputs, emissions added to accumulators   (the forward task's fetches)
    gradients of the outputs -> ... -> layer 1' -> layer 0' -> gradients of the inputs      (the backward task's fetches)
                                          |           |
                                          accumulator += gradient, in place, as soon as it is made

A task is a part of that graph (graph_cutting.py), so F and B of every recomputation mode come from the same ops:

    none    F gives what B needs of its tensors (the residuals); B starts from them.
    cell    B is the whole graph: it runs the cell again from the cell's inputs.
    layer   as cell, but keeping only the inputs of the layers, and each layer runs once more, in turn, for its gradient.

Gradients that meet at a value are added one by one, from the last reader to the first, across cells too: a cell gets the sum
so far, adds its own and passes it on towards the maker. So no sum depends on K.

Weights are read and accumulators added to inside the tasks. Such tasks are stateful; what keeps TensorFlow from chaining
them all is that neither they nor the step have automatic control dependencies: the schedule gives the order.
"""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lingpipe import cluster
from lingpipe.layers import nested
from lingpipe.layers.context import Context, Emissions
from lingpipe.layers.static_shapes import as_spec
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.graph_cutting import Subgraphs, used_feeds
from lingpipe.pipeline.execution.mean_weight import MEAN_WEIGHT
from lingpipe.pipeline.planning.cell import Cell, Leaf, leaves_of
from lingpipe.pipeline.planning.dataflow import Element, Value
from lingpipe.pricing import bytes_of_roots, residual_tensors, stateful_types
from lingpipe.process.error_text import blaming

# Stateful ops that a task may hold: its own, and a layer's that change nothing.
_OWN_STATEFUL = frozenset(['ReadVariableOp', 'AssignAddVariableOp', 'AssignVariableOp', 'VarIsInitializedOp', 'Placeholder',
                           'CollectiveReduceV2'])
_REMARKS = frozenset(['PrintV2', 'Print', 'Assert'])


class CellTracer:
    """Traces the tasks of one cell."""

    def __init__(self, cell: Cell, read_weight: Callable[[str], tf.Tensor | None], accumulators: Accumulators,
                 experiment_seed: int, recompute: str, training: bool, gather: Callable[[tf.Tensor], tf.Tensor] | None = None,
                 jit_compile: bool = False):
        """read_weight: makes the op that reads a weight of this cell; None if the weight is another cell's.

        accumulators: where emissions and gradients are added to.
        gather: Context.gather.
        jit_compile: whether XLA compiles the tasks; on a TPU it always does.
        """
        self._jit_compile = jit_compile or cluster.place(cell.device)[2] == 'TPU'
        self._cell, self._read_weight, self._accumulators, self._gather = cell, read_weight, accumulators, gather
        self._seed, self._recompute, self._training = experiment_seed, recompute, training

    def trace(self, gradients_in: list[Leaf], is_fused: bool) -> tuple[CompiledTask | None, CompiledTask | None]:
        """Returns (forward task, backward task).

        Args:
          gradients_in: the leaves (of inputs and outputs) for which later cells have a gradient.
          is_fused: the last cell of training: no forward task; the backward task makes loss and emissions.

        The forward task is None if fused, the backward task if nothing here has a gradient and it is not fused.
        """
        cell = self._cell
        inputs = [*leaves_of(cell.inputs), MEAN_WEIGHT]
        shared = self._shared_paths()
        specs = ([tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int32)] + [v.specs[i] for v, i in inputs] +
                 [self._weight_spec(path) for path in shared] + [v.specs[i] for v, i in gradients_in])
        made: dict[str, Any] = {}

        def body(*args: tf.Tensor) -> list[tf.Tensor]:
            step, micro_batch, *rest = args
            given = dict(zip(inputs, rest, strict=False))
            weights = dict(zip(shared, rest[len(inputs):], strict=False))
            gradients = dict(zip(gradients_in, rest[len(inputs) + len(shared):], strict=True))
            self._build(made, step, micro_batch, given, weights, gradients)
            return [made['forward_token'], made['backward_token']]

        graph = tf.compat.v1.wrap_function(body, specs).graph
        self._refuse_stateful(graph)
        args = list(graph.inputs[:len(specs)])
        names: list[Any] = ['step', 'micro_batch', *inputs, *shared, *[('gradient', leaf) for leaf in gradients_in]]
        keys: dict[str, Any] = {arg.name: name for arg, name in zip(args, names, strict=True)}
        given = set(leaves_of(cell.inputs))
        outputs = leaves_of(cell.outputs)
        gradients_out = [leaf for leaf in cell.gradients_wanted if leaf in made['gradients']]
        forward_fetches = [made['values'][leaf] for leaf in outputs] + [made['forward_token']]
        backward_fetches = [made['gradients'][leaf] for leaf in gradients_out] + [made['backward_token']]

        def task(fetches: list[tf.Tensor], residuals_in: list[tf.Tensor], residuals_out: list[tf.Tensor],
                 outputs: list[Leaf], gradients_out: list[Leaf], differentiated: Sequence[str] = ()) -> CompiledTask:
            """The part of the graph that makes `fetches`, the token last, and what it needs and gives."""
            feeds = args + residuals_in
            used = used_feeds(fetches + residuals_out, feeds)
            kept = [arg for i, arg in enumerate(args) if i < 2 or arg.name in used]
            function = subgraphs.function(kept + residuals_in, fetches[:-1] + residuals_out + fetches[-1:], self._jit_compile)
            named = [keys[arg.name] for arg in kept[2:]]
            return CompiledTask(function, [n for n in named if isinstance(n, tuple) and n[0] != 'gradient'],
                        [n for n in named if isinstance(n, str)], [n[1] for n in named if isinstance(n, tuple) and n[0] == 'gradient'],
                        len(residuals_in), outputs, gradients_out, len(residuals_out),
                        bytes_of_roots([*(arg for arg in kept[2:] if keys[arg.name] in given), *residuals_in], made['weights']),
                        differentiated)

        token = _both(graph, made)
        subgraphs = Subgraphs(graph)
        if is_fused:
            return None, task(forward_fetches[:-1] + backward_fetches[:-1] + [token], [], [], outputs, gradients_out,
                              made['differentiated'])
        if not cell.has_backward or not self._training:
            return task(forward_fetches, [], [], outputs, []), None
        residuals = []
        if self._recompute == 'none':
            residuals = residual_tensors(forward_fetches, backward_fetches, args, [args[0], args[1]] + args[2:2 + len(inputs)])
        return (task(forward_fetches, [], residuals, outputs, []),
                task(backward_fetches, residuals, [], [], gradients_out, made['differentiated']))

    # Building the graph.

    def _build(self, made: dict[str, Any], step: tf.Tensor, micro_batch: tf.Tensor, given: dict[Leaf, tf.Tensor],
               shared: dict[str, tf.Tensor], gradients: dict[Leaf, tf.Tensor]) -> None:
        values: dict[Value, Any] = {v: nested.pack_like(v.spec, [given[v, i] for i in range(len(v.specs))]) for v in self._cell.inputs}
        taken = {tensor.name for tensor in given.values()}
        emitted = Emissions()
        made['weights'] = []
        runs = []
        for element in self._cell.elements:
            weights = self._weights_of(element, shared)
            made['weights'] += weights.values()
            run = _Run(element, weights, values,
                       lambda: Context(self._training, self._seed, step, micro_batch, self._gather, given[MEAN_WEIGHT]))
            run.forward(with_tape=self._training and self._recompute != 'layer' and element.has_backward)
            for name, new in run.written.items():
                values[element.writes[name]] = nested.map_leaves(lambda tensor: _distinct(tensor, taken), new)
            _merge(emitted, run.emissions)
            runs.append(run)
        remarks = [op for op in micro_batch.graph.get_operations() if set(stateful_types(op)) & _REMARKS]
        made['values'] = {(v, i): tf.identity(t) for v in self._cell.outputs for i, t in enumerate(nested.leaves(values[v]))}
        updates = self._accumulators.add_emissions(emitted)
        with tf.control_dependencies([*updates, *remarks]):  # nothing else makes a task print, or check an assertion
            made['forward_token'] = tf.constant(0, name='forward_token')
        sums = dict(gradients)
        updates = []
        made['differentiated'] = []
        if self._training:
            for run in reversed(runs):
                if run.element.has_backward:
                    if self._recompute == 'layer':
                        run.repeat(after=[sums[leaf] for leaf in leaves_of(run.element.writes.values()) if leaf in sums])
                    for path, gradient in run.backward(sums).items():
                        updates.append(self._accumulators.add_gradient(path, gradient))
                        made['differentiated'].append(path)
        made['gradients'] = {leaf: tf.identity(t) for leaf, t in sums.items()}
        with tf.control_dependencies(updates):
            made['backward_token'] = tf.constant(0, name='backward_token')

    def _weights_of(self, element: Element, shared: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        weights = {}
        for weight in element.layer.weights():
            path = weight.shared_with or weight.path
            value = shared.get(path)
            # Every use is a tensor of its own: a tape asked twice for one tensor's gradient gives the sum of all uses twice.
            weights[weight.path] = self._read_weight(path) if value is None else tf.identity(value)
        return weights

    def _shared_paths(self) -> list[str]:
        paths = [w.shared_with for e in self._cell.elements for w in e.layer.weights() if w.shared_with is not None]
        own = {w.path for e in self._cell.elements for w in e.layer.weights()}
        return [path for path in dict.fromkeys(paths) if path not in own]

    def _weight_spec(self, path: str) -> tf.TensorSpec:
        weight = next(w for e in self._cell.elements for w in e.layer.weights() if w.shared_with == path)
        return tf.TensorSpec(weight.shape, weight.dtype)

    def _refuse_stateful(self, graph: tf.Graph) -> None:
        for op in graph.get_operations():
            kinds = [kind for kind in stateful_types(op) if kind not in _REMARKS]
            if kinds:
                path = next((e.layer.path for e in self._cell.elements if op.name.startswith(_scope(e.layer.path))), '')
                if not path and set(kinds) <= _OWN_STATEFUL:
                    continue
                raise ValueError(
                    f'{path or f"cell {self._cell.index}"} makes the stateful op {kinds[0]} ({op.name}); tasks of a pipeline must '
                    f'be pure functions, or recomputation and resuming would give other results: use tf.random.stateless_* with '
                    f'ctx.seed(self.path), declare weights with add_weight, and emit what is to be kept through the context.')


class _Run:
    """One layer's forward and backward inside the trace of its cell."""

    def __init__(self, element: Element, weights: dict[str, tf.Tensor], values: dict[Value, Any], context: Callable[[], Context]):
        self.element, self._weights, self._context = element, weights, context
        self._inputs = {argument: values[value] for argument, value in element.reads.items()}
        self._tape: tf.GradientTape | None = None
        self._sources = ([weights[w.path] for w in element.trained] +
                         [t for v in dict.fromkeys(element.reads.values())  # once, also where two arguments read it
                          for carries, t in zip(v.carries_gradient, nested.leaves(values[v]), strict=True) if carries])

    def forward(self, with_tape: bool) -> None:
        """Runs fprop; sets `written` and `emissions`."""
        self._tape = tf.GradientTape(watch_accessed_variables=False) if with_tape else None
        with tf.name_scope(_scope(self.element.layer.path)):
            if self._tape is None:
                self._fprop()
            else:
                with self._tape:
                    self._tape.watch(self._sources)
                    self._fprop()

    def repeat(self, after: list[tf.Tensor]) -> None:
        """Runs fprop again under a tape, not before the tensors in `after` exist; emissions are thrown away."""
        with tf.control_dependencies(after):
            self.forward(with_tape=True)

    def _fprop(self) -> None:
        layer, ctx = self.element.layer, self._context()
        with blaming(layer.path):
            result = layer.fprop(layer.theta(self._weights), ctx, **self._inputs)
        for where, leaf in nested.flatten(result):
            if not hasattr(leaf, 'dtype'):
                raise ValueError(f'{layer.path} returns {type(leaf).__name__}{where and f" as {where!r}"}; fprop of {type(layer).__name__} '
                                 f'must return a tensor, or a dict of tensors with names.')
        self.written, self.emissions = nested.map_leaves(tf.convert_to_tensor, layer.written(result)), ctx.emissions
        found = {path: as_spec(tensor) for path, tensor in nested.flatten(self.written)}
        expected = {path: as_spec(spec) for path, spec in nested.flatten({name: value.spec for name, value in self.element.writes.items()})}
        if found != expected:
            raise ValueError(f'{layer.path} writes {_listed(found)}, but its cost says {_listed(expected)}; '
                             f'correct {type(layer).__name__}.cost.')

    def backward(self, sums: dict[Leaf, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Adds the gradients of the inputs to `sums`, takes the outputs' out of it, and returns those of the weights by path."""
        assert self._tape is not None
        targets, seeds = [], []
        for name, value in self.element.writes.items():
            for i, tensor in enumerate(nested.leaves(self.written[name])):
                if (value, i) in sums and value.carries_gradient[i]:
                    targets.append(tensor)
                    seeds.append(sums[value, i])
        for _, loss in sorted(self.emissions.losses.items()):
            targets.append(loss)
            seeds.append(tf.ones_like(loss))
        if not targets:
            return {}
        with tf.name_scope(_scope(self.element.layer.path) + '_backward'):
            with blaming(self.element.layer.path):
                found = self._tape.gradient(targets, self._sources, output_gradients=seeds)
            found = [None if g is None else tf.convert_to_tensor(g) for g in found]
            num_weights = len(self.element.trained)
            read = [(v, i) for v in dict.fromkeys(self.element.reads.values()) for i, carries in enumerate(v.carries_gradient) if carries]
            for leaf, gradient in zip(read, found[num_weights:], strict=True):
                if gradient is not None:
                    sums[leaf] = sums[leaf] + gradient if leaf in sums else gradient
        return {w.path: g for w, g in zip(self.element.trained, found[:num_weights], strict=True) if g is not None}


def _both(graph: tf.Graph, made: dict[str, Any]) -> tf.Tensor:
    with graph.as_default(), tf.control_dependencies([made['forward_token'], made['backward_token']]):
        return tf.constant(0, name='token')


def _merge(into: Emissions, new: Emissions) -> None:
    for kind in dataclasses.fields(Emissions):
        getattr(into, kind.name).update(getattr(new, kind.name))


def _distinct(tensor: tf.Tensor, taken: set[str]) -> tf.Tensor:
    """The tensor, or a copy if another value has it already (a layer may return its input): a tape would take the two for one."""
    tensor = tf.identity(tensor) if tensor.name in taken else tensor
    taken.add(tensor.name)
    return tensor


def _listed(specs: dict[str, tf.TensorSpec]) -> str:
    return ', '.join(f'{path} {spec.dtype.name} {spec.shape}' for path, spec in specs.items()) or 'nothing'


def _scope(path: str) -> str:
    """A layer's path as a name scope, unambiguous as a prefix of the names of its ops."""
    return re.sub(r'^[^A-Za-z0-9.]|[^A-Za-z0-9_./-]', '.', path) + '.'
