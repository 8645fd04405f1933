"""AlikeCells: cells that do the same with other weights are traced once.

A cell's compiled tasks serve all cells that are alike. What differs is captured by their functions:
the variables, and the keys of random numbers, which depend on the paths of layers.

Cells are alike if

    - their layers are, one by one: the same layer (as in the replicas of a cell), or layers of one
      class that declares `is_traced_once`, with equal Params but for the name, and so are the
      layers below them;
    - the same ones of their weights train, and are shared in the same way;
    - they read, write, pass on and differentiate values of the same specs in the same places;
    - they have tasks of the same kinds, recomputation included, on devices of the same type.

The ops of a shared task are named after the layers of the cell that was traced, and so is an error
of theirs; replay.py finds out whose it is.

Cells that XLA compiles, that gather from other replicas, or that print or check assertions, are
each traced by themselves.
"""
from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe import cluster
from lingpipe.layers import nested
from lingpipe.layers.base import Layer
from lingpipe.pipeline.execution.cell_trace import CellTrace
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.emission_layout import EmissionLayout
from lingpipe.pipeline.execution.forward_trace import ForwardTrace, TracingOptions
from lingpipe.pipeline.execution.layer_call import scope_of
from lingpipe.pipeline.execution.mean_weight import MEAN_WEIGHT
from lingpipe.pipeline.execution.seed_keys import eager_key, origin_of
from lingpipe.pipeline.planning.cell import Cell, Leaf, leaves_of
from lingpipe.pipeline.planning.dataflow import Element, Value


@dataclasses.dataclass(frozen=True, eq=False)
class TracedCell:
    """A cell that has been traced, as a template for cells that are alike.

    Attributes:
      forward, trace: of the cell.
      variables: those that its tasks read and add to.
    """
    forward: ForwardTrace
    trace: CellTrace
    variables: Sequence[tf.Variable]

    @property
    def is_template(self) -> bool:
        """Whether the trace says of every layer in it which one it is."""
        layout, paths = self.forward.layout, set(_paths(self.forward.cell))
        keys = [*layout.keys, *self.forward.seed_keys]
        return not self.trace.remarks and all(path in paths for path, _ in keys)

    def layout_of(self, cell: Cell) -> EmissionLayout:
        """The layout of what another cell emits."""
        return self.forward.layout.renamed(self._paths_of(cell))

    def trace_of(self, cell: Cell, variables: Sequence[tf.Variable]) -> CellTrace:
        """The trace of another cell, with variables in the order of `self.variables`."""
        paths = self._paths_of(cell)
        others = [variable.handle.ref() for variable in self.variables]
        captures = {handle: variable.handle
                    for handle, variable in zip(others, variables, strict=True)}
        for key in {tensor.ref() for task in self.trace.tasks.values()
                    for tensor in task.function.captured_inputs}:
            if origin := origin_of(key.deref()):
                captures[key] = eager_key(
                    origin.experiment_seed, paths[origin.path], origin.name, cell.device)

        own, new = _values(self.forward.cell), _values(cell)
        values = dict(zip(own, new, strict=True))
        leaves: dict[Leaf, Leaf] = {(value, i): (values[value], i) for value, i in leaves_of(own)}
        leaves[MEAN_WEIGHT] = MEAN_WEIGHT
        weights = dict(zip(_weight_paths(self.forward.cell), _weight_paths(cell), strict=True))
        scopes = {scope_of(own): scope_of(new) for own, new in paths.items()}
        return CellTrace(
            tasks={kind: _task_of(task, captures, leaves, weights, scopes)
                   for kind, task in self.trace.tasks.items()},
            gradients_out=[leaves[leaf] for leaf in self.trace.gradients_out],
            layout=self.layout_of(cell),
            remarks=())

    def _paths_of(self, cell: Cell) -> dict[str, str]:
        """Path of a layer -> path of the layer in its place in another cell."""
        return dict(zip(_paths(self.forward.cell), _paths(cell), strict=True))


def _task_of(task: CompiledTask, captures: Mapping[Any, tf.Tensor], leaves: Mapping[Leaf, Leaf],
             weights: Mapping[str, str], scopes: Mapping[str, str]) -> CompiledTask:
    """Returns the task of another cell.

    Args:
      task: that of the template.
      captures: reference of a tensor that the function captures -> the other cell's.
      leaves: leaf -> the other cell's.
      weights: path of a weight -> the other cell's.
      scopes: name scope of a layer -> the other cell's.
    """
    function = copy.copy(task.function)
    function.set_external_captures(
        [captures.get(tensor.ref(), tensor) for tensor in task.function.captured_inputs])
    return dataclasses.replace(
        task,
        function=function,
        inputs=[leaves[leaf] for leaf in task.inputs],
        shared=[weights[path] for path in task.shared],
        casts=[one._replace(path=weights[one.path]) for one in task.casts],
        gradients_in=[leaves[leaf] for leaf in task.gradients_in],
        outputs=[leaves[leaf] for leaf in task.outputs],
        gradients_out=[leaves[leaf] for leaf in task.gradients_out],
        differentiated=[weights[path] for path in task.differentiated],
        scopes=scopes)


def likeness(cell: Cell, gradients_in: Sequence[Leaf], kinds: Collection[str],
             options: TracingOptions, variables: Sequence[tf.Variable],
             elsewhere: Collection[str]) -> Hashable:
    """Returns a key that is the same for all cells of one network that are alike.

    Args:
      cell: the cell.
      gradients_in: the leaves for which later cells have a gradient.
      kinds: of its tasks.
      options: how it is traced.
      variables: those that it reads.
      elsewhere: the paths of the weights that it is given.
    """
    values = _values(cell)
    number = {value: i for i, value in enumerate(values)}
    place = {path: i for i, path in enumerate(_weight_paths(cell))}

    def of_element(element: Element) -> Hashable:
        trained = {weight.path for weight in element.trained}
        weights = tuple(
            (place[weight.shared_with or weight.path], weight.shape, weight.dtype.name,
             weight.path in trained) for weight in element.layer.weights())
        reads = tuple((name, number[value]) for name, value in element.reads.items())
        writes = tuple((name, number[value]) for name, value in element.writes.items())
        return _of_layer(element.layer), weights, reads, writes, element.has_backward

    def numbers(leaves: Sequence[Leaf]) -> Hashable:
        return tuple((number[value], i) for value, i in leaves)

    return (
        cluster.place(cell.device)[2], options.mode(cell), _kept(cell, options), frozenset(kinds),
        tuple(of_element(element) for element in cell.elements),
        tuple(_of_value(value) for value in values),
        numbers(leaves_of(cell.inputs)), numbers(leaves_of(cell.outputs)), numbers(gradients_in),
        tuple(variable.dtype.name for variable in variables),
        tuple(place[path] for path in elsewhere))


def _kept(cell: Cell, options: TracingOptions) -> Hashable:
    """The tensors that a cell keeps with the mode 'fit', or None."""
    if options.recomputation is None or cell.index not in options.recomputation.kept:
        return None
    number = {element.layer.path: i for i, element in enumerate(cell.elements)}
    names = options.recomputation.kept[cell.index].names
    return frozenset((number[path], name) for path, name in names)


def _of_layer(layer: Layer) -> Hashable:
    """A key that is the same for all layers that are alike."""
    if not vars(type(layer)).get('is_traced_once'):
        return layer.path
    params = layer.params.copy().set(name='').to_text()
    return type(layer), params, tuple(_of_layer(child) for child in layer.children.values())


def _of_value(value: Value) -> Hashable:
    specs = tuple((where, str(spec.shape), spec.dtype.name)
                  for where, spec in nested.flatten(value.spec))
    return specs, tuple(value.carries_gradient)


def _values(cell: Cell) -> list[Value]:
    """All values that the cell reads and writes."""
    written = [value for element in cell.elements for value in element.writes.values()]
    return list(dict.fromkeys([*cell.inputs, *written]))


def _paths(cell: Cell) -> list[str]:
    """The paths of all layers of the cell."""
    return [layer.path for element in cell.elements for layer in element.layer.layers()]


def _weight_paths(cell: Cell) -> list[str]:
    """The paths of all weights of the cell, as used, and of those that they share."""
    weights = [weight for element in cell.elements for weight in element.layer.weights()]
    shared = [weight.shared_with for weight in weights if weight.shared_with is not None]
    return list(dict.fromkeys([*(weight.path for weight in weights), *shared]))
