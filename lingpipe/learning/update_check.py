"""Update check: whether an optimizer of a user's own can be part of the graph of a step.

The graph is built once. A run that is resumed, or cut into other cells, comes to the same bits if
an update depends only on the gradient, the weight, the learning rate and variables that checkpoints
hold.
"""
from __future__ import annotations

import tensorflow as tf

from lingpipe.learning.layer_learner import LayerLearner
from lingpipe.learning.optimizer import is_of_a_user
from lingpipe.learning.update_rule import UpdateRule

# The ops that draw random numbers from a state of TensorFlow's own.
_DRAWING = frozenset("""
    Multinomial ParameterizedTruncatedNormal RandomGamma RandomPoisson RandomPoissonV2 RandomShuffle
    RandomStandardNormal RandomUniform RandomUniformInt TruncatedNormal
    """.split())

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

    graph = update.graph.as_graph_def()
    functions = [node.op for function in graph.library.function for node in function.node_def]
    for op in [*(node.op for node in graph.node), *functions]:
        if op in _DRAWING:
            raise ValueError(f'the optimizer {name} makes the op {op}, which gives other numbers '
                             f'in every run and for every number of cells; {_RANDOM_REMEDY}')
    known = {variable.handle.ref() for variable in (weight, *layer.variables().values())}
    foreign = [captured for captured in update.captured_inputs
               if captured.dtype == tf.resource and captured.ref() not in known]
    if foreign:
        raise ValueError(f'the optimizer {name} uses a variable in an update that is not among its '
                         'variables, so that no checkpoint would hold it; make it by '
                         'add_variable or add_optimizer_variables in build, and keep it as an '
                         f'attribute; {_RANDOM_REMEDY}')
