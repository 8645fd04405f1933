"""Random ops: the ops that give something else at every call, and whether a graph has one."""
from __future__ import annotations

from collections.abc import Set

import tensorflow as tf

# Those of the first part draw from a state of TensorFlow's own, those of the second from the
# variable of a tf.random.Generator. The last two are no random numbers, but repeat themselves as
# little: the next element of an iterator, and the time.
DRAWING = frozenset("""
    Multinomial ParameterizedTruncatedNormal RandomGamma RandomPoisson RandomPoissonV2 RandomShuffle
    RandomStandardNormal RandomUniform RandomUniformInt TruncatedNormal

    RngReadAndSkip RngSkip StatefulRandomBinomial StatefulStandardNormal StatefulStandardNormalV2
    StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt StatefulUniformInt

    IteratorGetNext Timestamp
    """.split())


def first_random_op(graph: tf.Graph, types: Set[str] = DRAWING) -> str:
    """The type of the first random op of a graph or of a function that it calls; '' if none.

    Args:
      graph: it.
      types: those that count as random.
    """
    if not any(op.op_def is None or op.op_def.is_stateful for op in graph.get_operations()):
        return ''   # The graph may hold large constants, of which no copy need be made.
    proto = graph.as_graph_def()
    functions = [node.op for function in proto.library.function for node in function.node_def]
    ops = [*(node.op for node in proto.node), *functions]
    return next((op for op in ops if op in types), '')
