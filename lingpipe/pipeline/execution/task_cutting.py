"""Task cutting: makes a compiled task of a part of a cell's graph."""
from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.forward_trace import Arguments, ForwardTrace
from lingpipe.pipeline.execution.graph_cutting import Subgraphs, used_feeds
from lingpipe.pipeline.planning.cell import Leaf, leaves_of
from lingpipe.pricing import ancestors, bytes_of_roots, residual_tensors


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """The tensors of a cell's graph that a task computes, and those that it is given.

    Attributes:
      token: fetched last; it exists once the ops without a result have run.
      outputs, gradients: leaf -> tensor that the task computes.
      differentiated: as in CompiledTask.
      residuals_out: tensors that the task computes for later tasks of the cell.
      available: tensors that earlier tasks of the cell have computed and the task may take.
      done: names of ops that earlier tasks have run, and for which nothing need wait.
    """
    token: tf.Tensor
    outputs: Mapping[Leaf, tf.Tensor] = dataclasses.field(default_factory=dict)
    gradients: Mapping[Leaf, tf.Tensor] = dataclasses.field(default_factory=dict)
    differentiated: Sequence[str] = ()
    residuals_out: Sequence[tf.Tensor] = ()
    available: Sequence[tf.Tensor] = ()
    done: Collection[str] = ()

    @property
    def fetches(self) -> list[tf.Tensor]:
        """All tensors that the task computes; the token is the last."""
        return [*self.outputs.values(), *self.gradients.values(), *self.residuals_out, self.token]

    def giving(self, residuals: Sequence[tf.Tensor]) -> Part:
        """The part that also computes tensors for later tasks."""
        return dataclasses.replace(self, residuals_out=residuals)

    def after(self, available: Sequence[tf.Tensor], done: Collection[str] = ()) -> Part:
        """The part that may take tensors of earlier tasks."""
        return dataclasses.replace(self, available=available, done=done)


@dataclasses.dataclass(frozen=True, eq=False)
class TaskCutter:
    """Cuts tasks out of the graph of a cell."""
    forward: ForwardTrace
    arguments: Arguments
    subgraphs: Subgraphs

    def task(self, part: Part) -> CompiledTask:
        """Cuts a part out, as a function of the step, the micro-batch and what else it needs."""
        arguments = self.arguments
        used = used_feeds(part.fetches, [*arguments.all, *part.available], part.done)

        def only_used(tensors: Mapping[Any, tf.Tensor]) -> dict[Any, tf.Tensor]:
            return {key: tensor for key, tensor in tensors.items() if tensor.name in used}

        inputs, shared = only_used(arguments.inputs), only_used(arguments.shared)
        casts = [cast for cast in arguments.casts if cast.tensor.name in used]
        gradients_in = only_used(arguments.gradients)
        residuals_in = only_used({tensor.name: tensor for tensor in part.available})
        feeds = [arguments.step, arguments.micro_batch, *inputs.values(), *shared.values(),
                 *(cast.tensor for cast in casts), *gradients_in.values(), *residuals_in.values()]
        of_cell = set(leaves_of(self.forward.cell.inputs))
        held = [*(tensor for leaf, tensor in inputs.items() if leaf in of_cell),
                *residuals_in.values()]
        is_compiled_by_xla = self.forward.options.is_compiled_by_xla(self.forward.cell)
        not_handed = [*arguments.inputs.values(), *part.available, *self.forward.weights]
        return CompiledTask(
            function=self.subgraphs.function(feeds, part.fetches, is_compiled_by_xla, part.done),
            inputs=list(inputs),
            shared=list(shared),
            casts=[cast.weight for cast in casts],
            gradients_in=list(gradients_in),
            residuals_in=list(residuals_in),
            outputs=list(part.outputs),
            gradients_out=list(part.gradients),
            residuals_out=[tensor.name for tensor in part.residuals_out],
            held_bytes=bytes_of_roots(held, self.forward.weights),
            handed_bytes=bytes_of_roots(part.residuals_out, not_handed),
            differentiated=part.differentiated)

    def handed_over(self, earlier: Part, later: Part,
                    kept: Collection[str] | None = None) -> list[tf.Tensor]:
        """The tensors that one part computes anyway and another one, with the same feeds, needs.

        They are the first that are found going back from what the later part computes, or, if
        `kept` is given, the first whose names are in it.
        """
        arguments, available = self.arguments, earlier.available
        of_micro_batch = [*arguments.of_micro_batch, *arguments.gradients.values(), *available]
        return residual_tensors(earlier.fetches, later.fetches, [*arguments.all, *available],
                                of_micro_batch, kept)

    def ops_of(self, part: Part) -> set[str]:
        """The names of the ops that a task runs."""
        stop = {tensor.name for tensor in [*self.arguments.all, *part.available]}
        return set(ancestors(part.fetches, stop, part.done))
