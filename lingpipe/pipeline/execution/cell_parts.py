"""Cell parts: the parts of a cell's graph, of which its tasks are made.

    F    the forward
    B    the gradients of the inputs, and those of the weights unless W adds them
    W    the gradients of the weights

The modes of recomputation differ in which tensors a task takes from earlier tasks of the same cell
and micro-batch:

    none    F returns those of its tensors that B needs (the residuals), and B starts from them.
    fit     likewise, but F returns only some tensors; B starts from them and repeats the rest.
    cell    B is the whole graph: it runs the cell again from the cell's inputs.
    layer   like cell, but B keeps only the inputs of the layers while it runs the cell again. Then
            each layer in turn runs once more for its gradient.

    R       runs the cell again ahead of B, which starts from what R returns.
    split   B computes only the gradients of the inputs. W goes back from the additions to
            accumulators to the first tensors of the layers' forward, or that B computes anyway; B
            returns these. So nothing is computed twice. An op that makes both kinds of gradients
            runs in B.

A cell whose inputs want no gradient, such as the first, leaves all to W if it is split.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import tensorflow as tf

from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.task_cutting import Part, TaskCutter


@dataclasses.dataclass(frozen=True, eq=False)
class CellParts:
    """The parts of a cell's graph, before it is known what one hands over to another.

    Attributes:
      cutter: makes tasks of parts.
      forward: the forward.
      inputs: the gradients of the inputs; in a fused cell the forward as well.
      weights: the additions of gradients of weights.
      written: the tensors that the layers write where the backward reads them.
      whole: `inputs` and `weights`.
    """
    cutter: TaskCutter
    forward: Part
    inputs: Part
    weights: Part
    written: Sequence[tf.Tensor]
    whole: Part

    def tasks(self, kinds: Collection[str]) -> dict[str, CompiledTask]:
        """Cuts the tasks of some kinds, as `trace_cell` takes them; returns them by kind."""
        if 'F' not in kinds:
            return self._backward([], kinds)
        if set(kinds) == {'F'}:
            return {'F': self.cutter.task(self.forward)}

        forward, kept = self.cutter.forward, []
        if forward.options.mode(forward.cell) in ('none', 'fit'):
            kept = self.cutter.handed_over(self.forward, self.whole,
                                           forward.options.kept_by(forward.cell))
        tasks = {'F': self.cutter.task(self.forward.giving(kept)), **self._backward(kept, kinds)}
        if 'R' in kinds:
            again = self.forward.after(kept)
            residuals = self.cutter.handed_over(again, self.whole)
            repeated = Part(self.inputs.token, residuals_out=residuals, available=kept)
            tasks['R'] = self.cutter.task(repeated)
            tasks.update(self._backward([*kept, *residuals], kinds, '_after_R'))
        return tasks

    def _backward(self, available: Sequence[tf.Tensor], kinds: Collection[str],
                  suffix: str = '') -> dict[str, CompiledTask]:
        """Cuts those tasks of the backward that are wanted.

        Args:
          available: tensors that earlier tasks have made.
          kinds: all that are wanted.
          suffix: that of the kinds of such tasks.
        """
        tasks = {}
        if f'B{suffix}' in kinds:
            tasks[f'B{suffix}'] = self.cutter.task(self.whole.after(available))
        if f'W{suffix}' in kinds:
            inputs = self.inputs.after(available)
            # What W needs of the layers' forward is handed over as F would keep it.
            handed_over = self.cutter.handed_over(inputs.giving(self.written), self.weights)
            tasks[f'B_split{suffix}'] = self.cutter.task(inputs.giving(handed_over))
            weights = self.weights.after([*available, *handed_over], self.cutter.ops_of(inputs))
            tasks[f'W{suffix}'] = self.cutter.task(weights)
        return tasks
