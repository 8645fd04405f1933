"""Forward trace: the layers of a cell, traced one after the other into one graph.

The rest of the cell is traced into the same graph afterwards (cell_trace.py).
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import tensorflow as tf

from lingpipe import cluster
from lingpipe.layers import nested
from lingpipe.layers.context import Context, Emissions
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.cast_weights import CastWeight
from lingpipe.pipeline.execution.emission_layout import EmissionLayout
from lingpipe.pipeline.execution.layer_call import LayerCall, LayerResult, scope_of
from lingpipe.pipeline.execution.mean_weight import MEAN_WEIGHT
from lingpipe.pipeline.execution.seed_keys import SeedKeys
from lingpipe.pipeline.execution.stateful_ops import remarks_of
from lingpipe.pipeline.planning.cell import Cell, Leaf, leaves_of
from lingpipe.pipeline.planning.dataflow import Element, Value
from lingpipe.pipeline.planning.fitting_modes import Recomputation

# Makes the op that reads a weight of a cell; returns None if another cell owns the weight.
WeightReader = Callable[[str], tf.Tensor | None]


@dataclasses.dataclass(frozen=True)
class TracingOptions:
    """How all cells of a network are traced.

    Attributes:
      training: as in Context; without it, there is no backward.
      experiment_seed: as in Context.
      recomputation: what runs again in the backward of each cell; by default nothing.
      jit_compile: whether XLA compiles the tasks; on a TPU it always does.
      has_emissions: whether losses, metrics and statistics are wanted.
    """
    training: bool
    experiment_seed: int = 0
    recomputation: Recomputation | None = None
    jit_compile: bool = False
    has_emissions: bool = True

    def mode(self, cell: Cell) -> str:
        """What runs again in the backward pass of a cell."""
        return self.recomputation.modes[cell.index] if self.recomputation else 'none'

    def kept_by(self, cell: Cell) -> frozenset[str] | None:
        """With the mode 'fit', the names of the tensors that a cell keeps, in the cell's graph."""
        if self.recomputation is None or cell.index not in self.recomputation.kept:
            return None
        return frozenset(f'{scope_of(path)}/{name}'
                         for path, name in self.recomputation.kept[cell.index].names)

    def is_compiled_by_xla(self, cell: Cell) -> bool:
        """Whether XLA compiles the tasks of a cell."""
        return self.jit_compile or cluster.place(cell.device)[2] == 'TPU'


@dataclasses.dataclass(frozen=True, eq=False)
class Arguments:
    """The tensors that a cell's tasks are given, in this order: placeholders, except for casts."""
    step: tf.Tensor
    micro_batch: tf.Tensor
    inputs: Mapping[Leaf, tf.Tensor]
    shared: Mapping[str, tf.Tensor]
    casts: Sequence[CastWeight] = ()
    gradients: Mapping[Leaf, tf.Tensor] = dataclasses.field(default_factory=dict)

    def with_gradients(self, leaves: Iterable[Leaf]) -> Arguments:
        """The same, and new placeholders for the gradients of leaves."""
        gradients = {(value, i): _placeholder(value.specs[i]) for value, i in leaves}
        return dataclasses.replace(self, gradients=gradients)

    def with_casts(self, casts: Sequence[CastWeight]) -> Arguments:
        """The same, and weights that are cast before the tasks run."""
        return dataclasses.replace(self, casts=casts)

    @property
    def of_micro_batch(self) -> list[tf.Tensor]:
        """The arguments of the forward that change from one micro-batch to the next."""
        return [self.step, self.micro_batch, *self.inputs.values()]

    @property
    def all(self) -> list[tf.Tensor]:
        """All of them."""
        return [*self.of_micro_batch, *self.shared.values(), *(cast.tensor for cast in self.casts),
                *self.gradients.values()]


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
      seed_keys: (path, name) -> what the graph captures; see seed_keys.py.
    """
    cell: Cell
    options: TracingOptions
    graph: tf.Graph
    arguments: Arguments
    results: Sequence[LayerResult]
    outputs: Mapping[Leaf, tf.Tensor]
    emissions: Emissions
    remarks: Sequence[tf.Operation]
    seed_keys: Mapping[tuple[str, str], tf.Tensor]

    @property
    def layout(self) -> EmissionLayout:
        """The layout of what the cell emits."""
        return EmissionLayout.of(self.emissions)

    @property
    def weights(self) -> list[tf.Tensor]:
        """The weight tensors of all layers."""
        return [tensor for tensors in self.weights_by_owner.values() for tensor in tensors]

    @property
    def weights_by_owner(self) -> dict[str, list[tf.Tensor]]:
        """Path of a weight, as owned -> its tensors, one for each use."""
        tensors: dict[str, list[tf.Tensor]] = {}
        for call in (result.call for result in self.results):
            for weight in call.element.layer.weights():
                tensors.setdefault(weight.shared_with or weight.path, []).append(
                    call.weights[weight.path])
        return tensors


def trace_forward(cell: Cell, read_weight: WeightReader, options: TracingOptions,
                  gather: Callable[[tf.Tensor], tf.Tensor] | None = None,
                  elsewhere: Collection[str] | None = None) -> ForwardTrace:
    """Traces the layers of a cell, one after the other.

    Args:
      cell: the cell.
      read_weight: reads one of its weights.
      options: how to trace it.
      gather: Context.gather.
      elsewhere: the paths of the weights, as owned, that the tasks are given and do not read; by
        default those that other cells own.
    """
    graph = tf.__internal__.FuncGraph(f'cell_{cell.index}')
    seed_keys = SeedKeys(graph, options.experiment_seed, cell.device)
    with graph.as_default():
        arguments = _forward_arguments(cell, elsewhere)

        def make_context() -> Context:
            return Context(options.training, options.experiment_seed, arguments.step,
                           arguments.micro_batch, gather, arguments.inputs[MEAN_WEIGHT],
                           seed_keys.of)

        values: dict[Value, Nested] = {
            value: nested.pack_like(value.spec, [arguments.inputs[value, i]
                                                 for i in range(len(value.specs))])
            for value in cell.inputs}
        taken = {tensor.name for tensor in arguments.inputs.values()}
        results = []
        for element in cell.elements:
            inputs = {value: values[value] for value in element.reads.values()}
            weights = _weights_of(element, arguments.shared, read_weight)
            result = LayerCall(element, weights, inputs, make_context).forward(
                options.training and options.mode(cell) != 'layer' and element.has_backward)
            results.append(result)
            written = _distinct(result.written, taken)
            values.update({element.writes[name]: value for name, value in written.items()})
            taken.update(tensor.name for tensor in nested.leaves(written))

        remarks = remarks_of(graph)
        outputs = {(value, i): tf.identity(tensor) for value in cell.outputs
                   for i, tensor in enumerate(nested.leaves(values[value]))}
    emissions = Emissions()
    if options.has_emissions:
        emissions = _joined(result.emissions for result in results)
    return ForwardTrace(cell, options, graph, arguments, results, outputs, emissions, remarks,
                        seed_keys.captured)


def _forward_arguments(cell: Cell, elsewhere: Collection[str] | None) -> Arguments:
    """Makes a placeholder for everything that a cell may be given."""
    weights = [weight for element in cell.elements for weight in element.layer.weights()]
    specs = {weight.shared_with or weight.path: tf.TensorSpec(weight.shape, weight.dtype)
             for weight in weights}
    if elsewhere is None:
        elsewhere = specs.keys() - {weight.path for weight in weights}
    shared = {path: spec for path, spec in specs.items() if path in elsewhere}
    return Arguments(
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


def _distinct(written: Mapping[str, Nested], taken: Collection[str]) -> dict[str, Nested]:
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
