"""Plans of small chains of products, whose bytes and costs can be counted by hand."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from lingpipe import layers
from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers import Sequential
from lingpipe.layers.base import Layer
from lingpipe.layers.cost import Cost
from lingpipe.pipeline.planning.dataflow import wire
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.plan import Plan
from lingpipe.pipeline.planning.planner import plan_priced
from lingpipe.pipeline.planning.priced_network import price
from tests.support.toy_layers import Add

SPEC = {'image': tf.TensorSpec([16, 8]), 'labels': tf.TensorSpec([16], tf.int32),
        'weight': tf.TensorSpec([16])}

MICRO_BATCH_SPEC = {'image': tf.TensorSpec([4, 8]), 'labels': tf.TensorSpec([4], tf.int32),
                    'weight': tf.TensorSpec([4])}


class Tied(Layer):
    """x @ w, where w may belong to another layer."""

    class Params(Layer.Params):
        dim: int = field(REQUIRED, 'Rows and columns of w.')
        dtype: str = field('float32', 'Dtype of w.')

    def __init__(self, params, path=''):
        super().__init__(params, path)
        self.add_weight('w', [self.params.dim, self.params.dim],
                        dtype=tf.as_dtype(self.params.dtype))

    def fprop(self, theta, ctx, x):
        return x @ tf.cast(theta.w, x.dtype)

    def cost(self, x):
        return Cost(2 * x.shape[0] * self.params.dim ** 2, self.num_weights, x)


def dense(name, dim, units, **fields):
    return layers.Dense.Params(name=name, input_dim=dim, units=units, use_bias=False, **fields)


def made(*network):
    """Returns a network of the layers, the first of which reads `image`, and a loss."""
    return Sequential.Params(name='model', layers=(
        *network, layers.CrossEntropyLoss.Params(name='loss'))).instantiate('model')


def plan_of(*network, devices=(), frozen=(), **pipeline):
    """The plan of layers, or of a network that `made` returned, with two slots for each weight."""
    return planner_of(*network, devices=devices, frozen=frozen, **pipeline)()


def planner_of(*network, devices=(), frozen=(), **pipeline) -> Callable[..., Plan]:
    """A function of other values of the pipeline: the plan with them.

    Args:
      network, devices, frozen, pipeline: as of `plan_of`. The network is priced for them, so what
        is changed must not be what prices depend on.
    """
    params = PipelineParams(**{'shares_threads': False, **pipeline}).validate()
    devices = devices or [f'CPU:{i}' for i in range(params.num_devices)]
    network = network[0] if isinstance(network[0], Sequential) else made(*network)
    priced = price(network, SPEC, params, lambda path: path in frozen,
                   lambda weight: 2 * weight.size * weight.dtype.size,
                   lambda weight, has_rows: 0)

    def plan(**values) -> Plan:
        changed = params.copy().set(**values).validate() if values else params
        return plan_priced(dataclasses.replace(priced, params=changed), devices)

    return plan


def elements_with_skip(*frozen):
    """The elements of: skip = in(image); x = mid(skip); x = add(x, skip); loss(x).

    The weights whose paths are in `frozen` do not train.
    """
    network = made(dense('in', 8, 8, reads={'x': 'image'}, writes='skip'),
                   dense('mid', 8, 8, reads={'x': 'skip'}), Add.Params(name='add'))
    return wire(network, MICRO_BATCH_SPEC, lambda path: path in frozen)


# A chain of three products for micro-batches of 4 examples: 8 -> 16 -> 16 -> 8 channels of
# 4 bytes.
CHAIN = (dense('a', 8, 16, reads={'x': 'image'}), dense('b', 16, 16, activation='relu'),
         dense('c', 16, 8))

# Bytes of its values of 8 and of 16 channels.
IMAGE, WIDE = 4 * 8 * 4, 4 * 16 * 4
