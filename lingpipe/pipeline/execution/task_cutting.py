"""Task cutting: makes a compiled task of a part of a cell's graph."""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe import cluster
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.forward_trace import Arguments, ForwardTrace
from lingpipe.pipeline.execution.graph_cutting import Subgraphs, used_feeds
from lingpipe.pipeline.planning.cell import Leaf, leaves_of
from lingpipe.pricing import bytes_of_roots


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
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
class TaskCutter:
    """Cuts tasks out of the graph of a cell."""
    forward: ForwardTrace
    arguments: Arguments
    subgraphs: Subgraphs

    def task(self, part: Part) -> CompiledTask:
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
