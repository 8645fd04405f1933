"""Layer times: how long the passes of each layer take, measured or estimated from FLOPs."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from lingpipe.pipeline.planning.backward_share import backward_share, weight_share
from lingpipe.pipeline.planning.dataflow import Element
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.wording.counts import counted


@dataclasses.dataclass(frozen=True)
class LayerTimes:
    """Times of one micro-batch, all in the same unit.

    Attributes:
      forward: [L].
      backward: [L] 0 where no gradient is asked for. Nothing runs again.
      weight: [L] the part of `backward` that finds the gradients of the layer's weights: half of
        it, or less if some are frozen, or all if no gradient of its inputs is wanted.
      repeated: [L] what it takes to run the layer once more for its backward: its forward, or 0
        where it has no backward.
    """
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    weight: tuple[float, ...]
    repeated: tuple[float, ...]

    def in_cell(self, mode: str, is_last: bool) -> list[float]:
        """[L] what each layer takes in a cell of that mode of recomputation.

        Args:
          mode: PipelineParams.recompute_of the cell.
          is_last: whether the cell is the last, whose forward has just run.
        """
        num_repeats = (mode == 'layer') + (mode in ('cell', 'layer') and not is_last)
        return [forward + backward + num_repeats * repeated for forward, backward, repeated in
                zip(self.forward, self.backward, self.repeated, strict=True)]


def layer_times(elements: Sequence[Element], params: PipelineParams) -> LayerTimes:
    """The measured seconds that the Params hold, or else FLOPs at one FLOP/s.

    Raises:
      ValueError: the Params hold seconds of another number of layers.
    """
    if params.layer_seconds and len(params.layer_seconds) != len(elements):
        raise ValueError(f'layer_seconds has {counted(len(params.layer_seconds), "number")}, but '
                         f'the network has {counted(len(elements), "layer")}; measure again.')

    forward, backward, weight, repeated = [], [], [], []
    for element in elements:
        forward_time, backward_time = _passes(element, params)
        forward.append(forward_time)
        backward.append(backward_time * element.has_backward)
        weight.append(backward_time * weight_share(element))
        repeated.append(forward_time * element.has_backward)
    return LayerTimes(tuple(forward), tuple(backward), tuple(weight), tuple(repeated))


def _passes(element: Element, params: PipelineParams) -> tuple[float, float]:
    """Forward and backward of a layer that is asked for gradients; nothing runs again."""
    num_forwards = 2 * backward_share(element)   # that take as long as the backward
    if not params.layer_seconds:
        return element.cost.flops, num_forwards * element.cost.flops

    both = params.layer_seconds[element.index]
    backward = both * num_forwards / (1 + num_forwards)
    if params.layer_backward_seconds:
        backward = params.layer_backward_seconds[element.index]
    forward = both - backward if element.has_backward else both
    return forward, backward
