"""Program order: large operations of a graph run one after the other."""
import tensorflow as tf

from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.learning.program_order import in_program_order
from lingpipe.pricing import ancestors


def test_large_operations_wait_for_those_before_and_small_ones_do_not():
    @tf.function(autograph=False)
    def body(large, small):
        with in_program_order(tf.TensorShape([3, 2])):
            large_results = [tf.exp(large), tf.tanh(large)]
            return [*large_results, tf.exp(small), tf.sin(large)]

    ops = {op.type: op for op in body.get_concrete_function(
        tf.TensorSpec([2, 3]), tf.TensorSpec([5])).graph.get_operations()}
    assert [op.type for op in ops['Tanh'].control_inputs] == ['Exp']
    assert [op.type for op in ops['Sin'].control_inputs] == ['Tanh']
    assert not ops['Exp'].control_inputs


def test_the_momentum_of_an_update_is_not_read_before_the_squares_are_stored():
    """RMSProp held five tensors of the weight's size when nothing ordered its operations."""
    optimizer = optimizers.RMSProp.Params(momentum=0.5, centered=True)
    learner = Learner.Params(optimizer=optimizer,
                             learning_rate=learning_rates.Constant.Params(rate=0.1)).instantiate()
    layer = learner.for_layer('layer', {'layer/w': tf.Variable(tf.zeros([2, 3]))})
    graph = tf.function(lambda gradient: layer.apply({'layer/w': gradient}), autograph=False
                        ).get_concrete_function(tf.TensorSpec([2, 3])).graph
    products = [op for op in graph.get_operations() if op.type == 'Mul']
    # The last product is the momentum times 0.5.
    stored = [op for op in ancestors(products[-1].outputs, ()).values()
              if op.type == 'AssignVariableOp']
    assert len(stored) == 2   # those of the gradients and of their squares
