"""Random ops: the ops that draw from a state of TensorFlow's own, and whether a graph has one."""
from __future__ import annotations

import tensorflow as tf

# The second half draws from the variable of a tf.random.Generator.
DRAWING = frozenset("""
    Multinomial ParameterizedTruncatedNormal RandomGamma RandomPoisson RandomPoissonV2 RandomShuffle
    RandomStandardNormal RandomUniform RandomUniformInt TruncatedNormal

    RngReadAndSkip RngSkip StatefulRandomBinomial StatefulStandardNormal StatefulStandardNormalV2
    StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt StatefulUniformInt
    """.split())


def first_random_op(graph: tf.Graph) -> str:
    """The type of the first random op of a graph or of a function that it calls; '' if none."""
    proto = graph.as_graph_def()
    functions = [node.op for function in proto.library.function for node in function.node_def]
    ops = [*(node.op for node in proto.node), *functions]
    return next((op for op in ops if op in DRAWING), '')
