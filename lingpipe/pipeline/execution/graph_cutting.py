"""Graph cutting: tasks out of a traced graph, by names of tensors.

(WrappedFunction.prune promises this, but it also copies what lies behind its feeds, and fails when an op has one output fed and
another not. Here the nodes that are needed are chosen and imported; nothing else comes along.)
"""
from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lingpipe.pricing import ancestors


class Subgraphs:
    """The parts of one traced FuncGraph."""

    def __init__(self, graph: tf.Graph):
        """graph: a function's graph, as a trace leaves it."""
        self._graph = graph
        self._def = graph.as_graph_def()
        self._nodes = {node.name: node for node in self._def.node}
        self._captures = [(inside.name, outside) for outside, inside in graph.captures]

    def function(self, feeds: Sequence[tf.Tensor], fetches: Sequence[tf.Tensor],
                 jit_compile: bool = False) -> tf.types.experimental.ConcreteFunction:
        """A not-inlined function of the feeds that computes the fetches, with nothing that only lies behind a feed."""
        fed = [t.name for t in feeds]
        before = ancestors(fetches, {*fed, *(name for name, _ in self._captures)})
        # An argument that is no feed is only waited for (a gradient for a value that the layer made with stop_gradient).
        needed = {name: op for name, op in before.items() if op.type != 'Placeholder'}
        kept = tf.compat.v1.GraphDef()
        kept.versions.CopyFrom(self._def.versions)
        kept.library.CopyFrom(self._def.library)
        used = set()
        for name in needed:
            node = kept.node.add()
            node.CopyFrom(self._nodes[name])
            node.attr.pop('_class', None)  # colocation with ops that may lie in another part; all of a task is on one device
            del node.input[:]
            for read in self._nodes[name].input:
                if not read.startswith('^'):
                    used.add(read if ':' in read else f'{read}:0')
                    node.input.append(read)
                elif read[1:] in needed:  # what must run first but lies behind a feed has run
                    node.input.append(read)
        names = [t.name for t in fetches]

        def body(*args: tf.Tensor) -> list[tf.Tensor]:
            given = dict(zip(fed, args, strict=True))
            capture = tf.compat.v1.get_default_graph().capture
            captured = {name: capture(outside) for name, outside in self._captures if name in used and name not in given}
            known = {name: t for name, t in {**given, **captured}.items() if name in used}
            made = tf.import_graph_def(kept, known, [n for n in names if n not in given], name='')
            results = iter(made)
            return [given[name] if name in given else next(results) for name in names]

        function = tf.function(body, autograph=False, jit_compile=jit_compile or None, experimental_attributes={'_noinline': True})
        return function.get_concrete_function(*[tf.TensorSpec(t.shape, t.dtype) for t in feeds])


def used_feeds(fetches: Sequence[tf.Tensor], feeds: Sequence[tf.Tensor]) -> set[str]:
    """Names of the feeds that the fetches depend on."""
    stop = {t.name for t in feeds}
    used = {t.name for t in fetches} & stop
    for op in ancestors(fetches, stop).values():
        used |= {t.name for t in op.inputs} & stop
    return used
