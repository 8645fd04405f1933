"""Update check: whether an optimizer of a user's own can be part of the graph of a step.

The graph is built once. A run that is resumed, or cut into other cells, comes to the same bits if
an update depends only on the gradient, the weight, the learning rate and variables that checkpoints
hold.
"""
from __future__ import annotations

import tensorflow as tf

from lingpipe.learning.layer_learner import LayerLearner
from lingpipe.learning.optimizer import is_of_a_user
from lingpipe.learning.random_ops import first_random_op
from lingpipe.learning.update_rule import UpdateRule

_RANDOM_REMEDY = ('for random numbers use tf.random.stateless_* with a seed made of '
                  'self.iterations and a number of the weight.')


def check_update(rule: UpdateRule) -> None:
    """Raises ValueError if the optimizer is a user's and its updates cannot be repeated."""
    optimizer = rule.make_optimizer()
    if not is_of_a_user(optimizer):
        return
    name = type(optimizer).__name__
    weight = tf.Variable(tf.zeros([2, 3]))
    layer = LayerLearner(rule, 'layer', {'layer/w': weight})
    try:
        update = tf.function(
            lambda gradient, rate: layer.apply({'layer/w': gradient}, rate), autograph=False
        ).get_concrete_function(tf.TensorSpec([2, 3]), tf.TensorSpec([]))
    except Exception as error:
        first_line = str(error).strip().split('\n')[0]
        raise ValueError(
            f'the optimizer {name} fails in the update of a weight: {first_line.rstrip(".")}. '
            'update_step is traced: it gets the gradient, the weight as a tf.Variable and the '
            'learning rate as a scalar, and must compute with tensors; correct it.') from error

    if op := first_random_op(update.graph):
        raise ValueError(f'the optimizer {name} makes the op {op}, which gives other numbers '
                         f'in every run and for every number of cells; {_RANDOM_REMEDY}')
    known = {variable.ref() for variable in (weight, *layer.variables().values())}
    if any(variable.ref() not in known for variable in update.variables):
        raise ValueError(f'the optimizer {name} uses a variable in an update that is not among its '
                         'variables, so that no checkpoint would hold it; make it by '
                         'add_variable or add_optimizer_variables in build, and keep it as an '
                         f'attribute; {_RANDOM_REMEDY}')
