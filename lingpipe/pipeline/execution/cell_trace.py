"""Cell trace: traces a cell once, and cuts it into its forward and backward tasks.

The obvious way is a tape around the forward function of every cell. It fails here in three ways:
gradients of values with many readers are summed in an order that depends on where the cells end;
gradient ops are placed on the device of the caller; and all gradients of a cell exist at once
before they are added to the accumulators. Instead, a cell is traced once, forward and backward,
with a tape around each layer by itself, in one graph:

    read weights -> layer 0 -> layer 1 -> ... -> outputs, emissions added to accumulators
                                                                      (the forward task's fetches)
    gradients of the outputs -> ... -> layer 1' -> layer 0' -> gradients of the inputs
                                          |           |              (the backward task's fetches)
                                          accumulator += gradient, in place, as soon as it is made

A task is a part of that graph (graph_cutting.py), so F and B of every recomputation mode come from
the same ops:

    none    F returns those of its tensors that B needs (the residuals), and B starts from them.
    cell    B is the whole graph: it runs the cell again from the cell's inputs.
    layer   like cell, but B keeps only the inputs of the layers while it runs the cell again. Then
            each layer in turn runs once more for its gradient.

Gradients that meet at a value are added one by one, from the last reader to the first, across cells
too: a cell takes the sum so far, adds its own gradient and passes the sum on towards the maker. So
no sum depends on K.

Tasks read weights and add to accumulators, so they are stateful. TensorFlow does not chain them
all, because neither they nor the step have automatic control dependencies: the schedule gives the
order.

The forward is traced first (`trace_forward`). It shows what the cell emits, so that accumulators
can be made before the rest is traced into the same graph (`trace_cell`).
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from lingpipe import cluster
from lingpipe.layers import nested
from lingpipe.layers.context import Context, Emissions
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.emission_layout import EmissionLayout
from lingpipe.pipeline.execution.graph_cutting import Subgraphs, used_feeds
from lingpipe.pipeline.execution.layer_call import LayerCall, LayerResult, scope_of
from lingpipe.pipeline.execution.mean_weight import MEAN_WEIGHT
from lingpipe.pipeline.planning.cell import Cell, Leaf, leaves_of
from lingpipe.pipeline.planning.dataflow import Element, Value
from lingpipe.pricing import bytes_of_roots, residual_tensors, stateful_types

# Stateful ops that a task may contain: its own, and those ops of layers that change nothing.
_OWN_STATEFUL = frozenset([
    'ReadVariableOp', 'AssignAddVariableOp', 'AssignVariableOp', 'VarIsInitializedOp',
    'Placeholder', 'CollectiveReduceV2'])
_REMARKS = frozenset(['PrintV2', 'Print', 'Assert'])

# Makes the op that reads a weight of a cell; returns None if another cell owns the weight.
WeightReader = Callable[[str], tf.Tensor | None]


@dataclasses.dataclass(frozen=True)
class TracingOptions:
    """How all cells of a network are traced.

    Attributes:
      training: as in Context; without it, there is no backward.
      experiment_seed: as in Context.
      recompute: PipelineParams.recompute.
      jit_compile: whether XLA compiles the tasks; on a TPU it always does.
    """
    training: bool
    experiment_seed: int = 0
    recompute: str = 'none'
    jit_compile: bool = False


class Sums(Protocol):
    """Where the tasks of a cell add emissions and gradients; see accumulators.py."""

    def add_emissions(self, emitted: Emissions) -> list[tf.Operation]:
        """Makes the ops that add the emissions of one micro-batch."""

    def add_gradient(self, path: str, gradient: tf.Tensor) -> tf.Operation:
        """Makes the op that adds the gradient of one micro-batch."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Arguments:
    """The placeholders for the arguments of a cell's tasks, in this order."""
    step: tf.Tensor
    micro_batch: tf.Tensor
    inputs: Mapping[Leaf, tf.Tensor]
    shared: Mapping[str, tf.Tensor]
    gradients: Mapping[Leaf, tf.Tensor] = dataclasses.field(default_factory=dict)

    @property
    def of_micro_batch(self) -> list[tf.Tensor]:
        """The arguments of the forward that change from one micro-batch to the next."""
        return [self.step, self.micro_batch, *self.inputs.values()]

    @property
    def all(self) -> list[tf.Tensor]:
        """All placeholders."""
        return [*self.of_micro_batch, *self.shared.values(), *self.gradients.values()]


@dataclasses.dataclass(frozen=True, eq=False)
class ForwardTrace:
    """A cell traced forward.

    Attributes:
      cell: the cell.
      options: how it was traced.
      graph: the graph into which everything is traced.
      arguments: placeholders of `graph`.
      results: the results of the layers, in order.
      outputs: leaf of an output of the cell -> tensor.
      emissions: what all layers emitted.
      remarks: ops that print or check an assertion.
    """
    cell: Cell
    options: TracingOptions
    graph: tf.Graph
    arguments: _Arguments
    results: Sequence[LayerResult]
    outputs: Mapping[Leaf, tf.Tensor]
    emissions: Emissions
    remarks: Sequence[tf.Operation]

    @property
    def layout(self) -> EmissionLayout:
        """The layout of what the cell emits."""
        return EmissionLayout.of(self.emissions)

    @property
    def weights(self) -> list[tf.Tensor]:
        """The weight tensors of all layers."""
        return [weight for result in self.results for weight in result.call.weights.values()]


@dataclasses.dataclass(frozen=True, eq=False)
class CellTrace:
    """The result of tracing a cell.

    Attributes:
      forward: the forward task; None if the backward task contains it.
      backward: the backward task; None if nothing in the cell has a gradient.
      layout: the layout of what the cell emits.
      remarks: names of the ops that print or check an assertion.
    """
    forward: CompiledTask | None
    backward: CompiledTask | None
    layout: EmissionLayout
    remarks: tuple[str, ...]

    @property
    def gradients_out(self) -> Sequence[Leaf]:
        """The leaves of inputs whose gradients go to earlier cells."""
        return self.backward.gradients_out if self.backward else ()

    @property
    def tasks(self) -> dict[str, CompiledTask]:
        """Kind of a slot -> the task that it calls."""
        tasks = {'F': self.forward, 'B': self.backward}
        return {kind: task for kind, task in tasks.items() if task is not None}


# Forward.

def trace_forward(cell: Cell, read_weight: WeightReader, options: TracingOptions,
                  gather: Callable[[tf.Tensor], tf.Tensor] | None = None) -> ForwardTrace:
    """Traces the layers of a cell, one after the other.

    Args:
      cell: the cell.
      read_weight: reads one of its weights.
      options: how to trace it.
      gather: Context.gather.
    """
    graph = tf.__internal__.FuncGraph(f'cell_{cell.index}')
    with graph.as_default():
        arguments = _forward_arguments(cell)

        def make_context() -> Context:
            return Context(options.training, options.experiment_seed, arguments.step,
                           arguments.micro_batch, gather, arguments.inputs[MEAN_WEIGHT])

        values: dict[Value, Any] = {
            value: nested.pack_like(value.spec, [arguments.inputs[value, i]
                                                 for i in range(len(value.specs))])
            for value in cell.inputs}
        taken = {tensor.name for tensor in arguments.inputs.values()}
        results = []
        for element in cell.elements:
            inputs = {value: values[value] for value in element.reads.values()}
            weights = _weights_of(element, arguments.shared, read_weight)
            result = LayerCall(element, weights, inputs, make_context).forward(
                options.training and options.recompute != 'layer' and element.has_backward)
            results.append(result)
            written = _distinct(result.written, taken)
            values.update({element.writes[name]: value for name, value in written.items()})
            taken.update(tensor.name for tensor in nested.leaves(written))

        remarks = [op for op in graph.get_operations() if set(stateful_types(op)) & _REMARKS]
        outputs = {(value, i): tf.identity(tensor) for value in cell.outputs
                   for i, tensor in enumerate(nested.leaves(values[value]))}
    emissions = _joined(result.emissions for result in results)
    return ForwardTrace(cell, options, graph, arguments, results, outputs, emissions, remarks)


def _forward_arguments(cell: Cell) -> _Arguments:
    owned = {weight.path for element in cell.elements for weight in element.layer.weights()}
    shared = {weight.shared_with: tf.TensorSpec(weight.shape, weight.dtype)
              for element in cell.elements for weight in element.layer.weights()
              if weight.shared_with is not None and weight.shared_with not in owned}
    return _Arguments(
        step=_placeholder(tf.TensorSpec([], tf.int64)),
        micro_batch=_placeholder(tf.TensorSpec([], tf.int32)),
        inputs={(value, i): _placeholder(value.specs[i])
                for value, i in [*leaves_of(cell.inputs), MEAN_WEIGHT]},
        shared={path: _placeholder(spec) for path, spec in shared.items()})


def _placeholder(spec: tf.TensorSpec) -> tf.Tensor:
    return tf.compat.v1.placeholder(spec.dtype, spec.shape)


def _weights_of(element: Element, shared: Mapping[str, tf.Tensor],
                read_weight: WeightReader) -> dict[str, tf.Tensor]:
    """Returns path -> tensor, with a tensor of its own for every use.

    A tape that is asked twice for the gradient of one tensor returns the sum over all uses twice.
    """
    weights = {}
    for weight in element.layer.weights():
        path = weight.shared_with or weight.path
        weights[weight.path] = tf.identity(shared[path]) if path in shared else read_weight(path)
    return weights


def _distinct(written: Mapping[str, Any], taken: Collection[str]) -> dict[str, Any]:
    """Returns what a layer has written, and copies tensors that also belong to another value.

    A layer may return its input, or one tensor twice. A tape could not tell the two values apart.

    Args:
      written: name -> nested tensors.
      taken: the names of the tensors of all other values.
    """
    seen: set[str] = set()

    def distinct(tensor: tf.Tensor) -> tf.Tensor:
        is_taken = tensor.name in taken or tensor.name in seen
        seen.add(tensor.name)
        return tf.identity(tensor) if is_taken else tensor

    return {name: nested.map_leaves(distinct, value) for name, value in written.items()}


def _joined(emissions: Iterable[Emissions]) -> Emissions:
    joined = Emissions()
    for one in emissions:
        for kind in dataclasses.fields(Emissions):
            getattr(joined, kind.name).update(getattr(one, kind.name))
    return joined


# Backward, and the tasks.

def trace_cell(forward: ForwardTrace, sums: Sums, gradients_in: Sequence[Leaf] = (),
               is_fused: bool = False) -> CellTrace:
    """Traces the rest of a cell and cuts the graph into tasks.

    Args:
      forward: the cell, traced forward.
      sums: where the tasks add emissions, with the layout `forward.layout`, and gradients.
      gradients_in: the leaves (of inputs and outputs) for which later cells have a gradient.
      is_fused: whether forward and backward are one task, as in the last cell of training: the
        backward task then computes the loss and the emissions too.

    Raises:
      ValueError: a layer contains a stateful op.
    """
    graph = forward.graph
    with graph.as_default():
        gradients = {(value, i): _placeholder(value.specs[i]) for value, i in gradients_in}
        arguments = dataclasses.replace(forward.arguments, gradients=gradients)
        added = sums.add_emissions(forward.emissions)
        # Ops that print or check an assertion have no readers, so only the token makes them run.
        forward_token = _token_after([*added, *forward.remarks], 'forward_token')
        backward = _trace_backward(forward, sums, gradients)
        both_token = _token_after([forward_token, backward.token], 'token')
    _refuse_stateful(forward.cell, graph)

    cut = _Cutter(forward, arguments, Subgraphs(graph))
    first = _Part(forward_token, outputs=forward.outputs)
    second = _Part(backward.token, gradients=backward.gradients,
                   differentiated=backward.differentiated)
    remarks = tuple(op.name for op in forward.remarks)
    if is_fused:
        both = dataclasses.replace(second, token=both_token, outputs=forward.outputs)
        return CellTrace(None, cut.task(both), forward.layout, remarks)
    if not forward.cell.has_backward or not forward.options.training:
        return CellTrace(cut.task(first), None, forward.layout, remarks)

    residuals: list[tf.Tensor] = []
    if forward.options.recompute == 'none':
        residuals = residual_tensors(first.fetches, second.fetches, arguments.all,
                                     arguments.of_micro_batch)
    return CellTrace(cut.task(dataclasses.replace(first, residuals_out=residuals)),
                     cut.task(dataclasses.replace(second, residuals_in=residuals)),
                     forward.layout, remarks)


@dataclasses.dataclass(frozen=True, eq=False)
class _Backward:
    """The result of tracing the layers backward.

    Attributes:
      gradients: leaf of an input -> the sum of its gradients so far.
      differentiated: paths of the weights, as used, that have a gradient.
      token: exists once all gradients of weights have been added.
    """
    gradients: Mapping[Leaf, tf.Tensor]
    differentiated: Sequence[str]
    token: tf.Tensor


def _trace_backward(forward: ForwardTrace, sums: Sums,
                    gradients_in: Mapping[Leaf, tf.Tensor]) -> _Backward:
    gradients = dict(gradients_in)
    added, differentiated = [], []
    for result in reversed(forward.results if forward.options.training else ()):
        element = result.call.element
        if not element.has_backward:
            continue
        if forward.options.recompute == 'layer':
            result = result.call.repeat(
                after=[gradients[leaf] for leaf in leaves_of(element.writes.values())
                       if leaf in gradients])
        found = result.backward(gradients)
        gradients.update(found.inputs)
        for path, gradient in found.weights.items():
            added.append(sums.add_gradient(path, gradient))
            differentiated.append(path)

    wanted = {leaf: tf.identity(gradients[leaf]) for leaf in forward.cell.gradients_wanted
              if leaf in gradients}
    return _Backward(wanted, differentiated, _token_after(added, 'backward_token'))


def _token_after(ops: Sequence[tf.Operation | tf.Tensor], name: str) -> tf.Tensor:
    with tf.control_dependencies(ops):
        return tf.constant(0, name=name)


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    """The tensors of a cell's graph that a task computes, and those that it is given.

    Attributes:
      token: fetched last; it exists once the ops without a result have run.
      outputs, gradients: leaf -> tensor that the task computes.
      residuals_in, residuals_out: tensors that the task takes from, or leaves for, another task.
      differentiated: as in CompiledTask.
    """
    token: tf.Tensor
    outputs: Mapping[Leaf, tf.Tensor] = dataclasses.field(default_factory=dict)
    gradients: Mapping[Leaf, tf.Tensor] = dataclasses.field(default_factory=dict)
    residuals_in: Sequence[tf.Tensor] = ()
    residuals_out: Sequence[tf.Tensor] = ()
    differentiated: Sequence[str] = ()

    @property
    def fetches(self) -> list[tf.Tensor]:
        """All tensors that the task computes; the token is the last."""
        return [*self.outputs.values(), *self.gradients.values(), *self.residuals_out, self.token]


@dataclasses.dataclass(frozen=True, eq=False)
class _Cutter:
    """Cuts tasks out of the graph of a cell."""
    forward: ForwardTrace
    arguments: _Arguments
    subgraphs: Subgraphs

    def task(self, part: _Part) -> CompiledTask:
        """Cuts a part out, as a function of the step, the micro-batch and what else it needs."""
        arguments, cell = self.arguments, self.forward.cell
        used = used_feeds(part.fetches, [*arguments.all, *part.residuals_in])

        def only_used(tensors: Mapping[Any, tf.Tensor]) -> dict[Any, tf.Tensor]:
            return {key: tensor for key, tensor in tensors.items() if tensor.name in used}

        inputs, shared = only_used(arguments.inputs), only_used(arguments.shared)
        gradients_in = only_used(arguments.gradients)
        feeds = [arguments.step, arguments.micro_batch, *inputs.values(), *shared.values(),
                 *gradients_in.values(), *part.residuals_in]
        of_cell = set(leaves_of(cell.inputs))
        held = [tensor for leaf, tensor in inputs.items() if leaf in of_cell]
        return CompiledTask(
            function=self.subgraphs.function(feeds, part.fetches, self._is_compiled_by_xla),
            inputs=list(inputs),
            shared=list(shared),
            gradients_in=list(gradients_in),
            num_residuals_in=len(part.residuals_in),
            outputs=list(part.outputs),
            gradients_out=list(part.gradients),
            num_residuals_out=len(part.residuals_out),
            held_bytes=bytes_of_roots([*held, *part.residuals_in], self.forward.weights),
            differentiated=part.differentiated)

    @property
    def _is_compiled_by_xla(self) -> bool:
        on_tpu = cluster.place(self.forward.cell.device)[2] == 'TPU'
        return self.forward.options.jit_compile or on_tpu


def _refuse_stateful(cell: Cell, graph: tf.Graph) -> None:
    for op in graph.get_operations():
        kinds = [kind for kind in stateful_types(op) if kind not in _REMARKS]
        if not kinds:
            continue
        path = next((element.layer.path for element in cell.elements
                     if op.name.startswith(scope_of(element.layer.path))), '')
        if not path and set(kinds) <= _OWN_STATEFUL:
            continue
        raise ValueError(
            f'{path or f"cell {cell.index}"} makes the stateful op {kinds[0]} ({op.name}); tasks '
            f'of a pipeline must be pure functions, or recomputation and resuming would give other '
            f'results: use tf.random.stateless_* with ctx.seed(self.path), declare weights with '
            f'add_weight, and emit what is to be kept through the context.')
