"""Graph cutting: cuts tasks out of a traced graph, by the names of tensors.

TensorFlow's WrappedFunction.prune promises the same. But it also copies nodes that lie behind its
feeds, and it fails if one output of an op is fed and another is not. The code here chooses the
nodes that are needed and imports only these.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import tensorflow as tf

from lingpipe.pipeline.execution.ordered_sums import ordered_sum
from lingpipe.pricing import ancestors, stateful_types
from lingpipe.process import graph_lifetime, tensorflow_settings

# Ops on variables. The graph has the control dependencies that their order needs.
_ON_VARIABLES = frozenset(['ReadVariableOp', 'AssignAddVariableOp', 'AssignVariableOp',
                           'ResourceStridedSliceAssign', 'VarIsInitializedOp'])


class Subgraphs:
    """Functions that compute parts of one traced FuncGraph."""

    def __init__(self, graph: tf.Graph, waits: Mapping[str, Sequence[str]] | None = None):
        """
        Args:
          graph: a function's graph, as a trace leaves it.
          waits: name of an op -> names of ops that come before it in a function that has both.
        """
        graph_lifetime.hold_gradients(graph)
        self._waits = waits or {}
        self._def = graph.as_graph_def()
        self._nodes = {node.name: node for node in self._def.node}
        self._same = _equal_constants(self._def.node)
        self._captures = [(inside.name, outside) for outside, inside in graph.captures]

    def function(self, feeds: Sequence[tf.Tensor], fetches: Sequence[tf.Tensor],
                 jit_compile: bool = False,
                 done: Collection[str] = ()) -> tf.types.experimental.ConcreteFunction:
        """Makes a function, never inlined, that computes the fetches from the feeds.

        It contains no op that is needed only to compute a feed.

        Args:
          feeds, fetches: tensors of the graph.
          jit_compile: whether XLA compiles it.
          done: names of ops that have run before, so that no other op of the function need wait for
            them.
        """
        fed = [t.name for t in feeds]
        before = ancestors(fetches, {*fed, *(name for name, _ in self._captures)}, done)
        # A placeholder that is not fed is only waited for. An example is the gradient of a value
        # that the layer made with stop_gradient.
        needed = {name: op for name, op in before.items() if op.type != 'Placeholder'}

        subgraph, used = self._subgraph(needed)
        names = [f'{self._same.get(t.op.name, t.op.name)}:{t.value_index}' for t in fetches]

        def body(*args: tf.Tensor) -> list[tf.Tensor]:
            """Copies the part of the graph between the feeds and the fetches."""
            arguments = dict(zip(fed, args, strict=True))
            captured = {name: _capture(outside) for name, outside in self._captures
                        if name in used and name not in arguments}
            known = {name: t for name, t in {**arguments, **captured}.items() if name in used}

            wanted = [name for name in names if name not in arguments]
            imported = tf.import_graph_def(subgraph, known, wanted, name='')
            results = iter(imported)
            return [arguments[name] if name in arguments else next(results) for name in names]

        function = tf.function(body, autograph=False, jit_compile=jit_compile or None,
                               experimental_attributes=_attributes(needed.values()))
        return function.get_concrete_function(*[tf.TensorSpec(t.shape, t.dtype) for t in feeds])

    def _subgraph(self, names: Collection[str]) -> tuple[tf.compat.v1.GraphDef, set[str]]:
        """The ops of these names, and the names of the tensors that they read."""
        subgraph = tf.compat.v1.GraphDef()
        subgraph.versions.CopyFrom(self._def.versions)
        subgraph.library.CopyFrom(self._def.library)
        used = set()
        for name in dict.fromkeys(self._same.get(name, name) for name in names):
            node = tf.compat.v1.NodeDef()
            node.CopyFrom(self._nodes[name])
            # Drops colocation with ops that may be in another part: a task is on one device anyway.
            node.attr.pop('_class', None)
            del node.input[:]
            for read in self._nodes[name].input:
                if not read.startswith('^'):
                    read = self._same.get(read, read)
                    used.add(read if ':' in read else f'{read}:0')
                    node.input.append(read)
                elif read[1:] in names:  # any other op lies behind a feed, and so has run
                    node.input.append(f'^{self._same.get(read[1:], read[1:])}')
            node.input.extend(f'^{self._same.get(other, other)}'
                              for other in self._waits.get(name, ()) if other in names)
            subgraph.node.extend(ordered_sum(node))
        return subgraph, used


def _attributes(ops: Iterable[tf.Operation]) -> dict[str, bool]:
    """Returns the attributes of a function of these ops.

    It has no automatic control dependencies, nor a copy of every result that hangs on them, unless
    it has ops that TensorFlow must run in their order: such as print, or wait for other replicas.
    The graph optimizer, if it is on, would remove ops that no result and no control output needs,
    such as those that add to accumulators.
    """
    is_ordered = tensorflow_settings.has_graph_optimizer() or any(
        kind not in _ON_VARIABLES for op in ops for kind in stateful_types(op))
    return {'_noinline': True, '_disable_acd': not is_ordered}


def _equal_constants(nodes: Iterable[tf.compat.v1.NodeDef]) -> dict[str, str]:
    """Returns name of a constant -> name of the first one that is equal, if there is one before it.

    Layers that are alike make the same constants, a fifth of all ops of a Transformer.
    """
    first: dict[bytes, str] = {}
    same = {}
    for node in nodes:
        if node.op == 'Const' and not node.input:
            nameless = tf.compat.v1.NodeDef()
            nameless.CopyFrom(node)
            nameless.name = ''
            earlier = first.setdefault(nameless.SerializeToString(deterministic=True), node.name)
            if earlier != node.name:
                same[node.name] = earlier
    return same


def _capture(outside: tf.Tensor) -> tf.Tensor:
    """Captures a tensor by reference; `FuncGraph.capture` would copy a small one."""
    graph = tf.compat.v1.get_default_graph()
    if outside.dtype == tf.resource:
        return graph.capture(outside)
    inside = tf.compat.v1.placeholder(outside.dtype, outside.shape)
    graph.add_capture(outside, inside)
    return inside


def used_feeds(fetches: Sequence[tf.Tensor], feeds: Sequence[tf.Tensor],
               done: Collection[str] = ()) -> set[str]:
    """Returns the names of the feeds that the fetches depend on.

    `done` is that of Subgraphs.function.
    """
    stop = {t.name for t in feeds}
    used = {t.name for t in fetches} & stop
    for op in ancestors(fetches, stop, done).values():
        used |= {t.name for t in op.inputs} & stop
    return used
