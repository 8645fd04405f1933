"""Weight check: the weight of the main loss must be a constant for the gradient.

The objective is (sum of losses) / (sum of weights). The backward of a micro-batch begins with its
losses alone, before the weights of the others are known. So a weight that training moves would be
missing in the gradient, and the network would learn another objective than the one reported.
"""
from __future__ import annotations

import tensorflow as tf

from lingpipe.pipeline.execution.layer_call import LayerResult
from lingpipe.pricing import ancestors


def check_weight(result: LayerResult) -> None:
    """Raises ValueError if a layer emits a weight that has a gradient.

    Args:
      result: of a layer that was traced into the default graph.
    """
    sources = result.call.sources
    for (path, name), weight in result.emissions.weights.items():
        # tf.gradients adds ops even if there is no way from the weight to a source.
        before = ancestors([weight], {source.name for source in sources})
        read = {tensor.name for op in before.values() for tensor in op.inputs}
        reached = [source for source in sources if source.name in {*read, weight.name}]
        if reached and any(one is not None for one in tf.gradients([weight], reached)):
            raise ValueError(
                f'{path}: the weight of its loss {name!r} has a gradient by weights that train, '
                'but counts as a constant, so that they would learn another objective; give '
                'tf.stop_gradient of it to ctx.emit_loss if that is meant, or another weight, such '
                'as the number of examples.')
