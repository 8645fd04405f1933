"""Subgraph: cutting tasks out of a traced graph, by names of tensors.

(WrappedFunction.prune promises this, but it also copies what lies behind its feeds, and fails when an op has one output fed and
another not. Here the nodes that are needed are chosen and imported; nothing else comes along.)
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf


class Subgraphs:
    """The parts of one traced FuncGraph."""

    def __init__(self, graph: tf.Graph):
        """graph: a function's graph, as a trace leaves it."""
        self._graph = graph
        self._def = graph.as_graph_def()
        self._nodes = {node.name: node for node in self._def.node}
        self._captures = [(inside.name, outside) for outside, inside in graph.captures]

    def function(self, feeds: Sequence[tf.Tensor], fetches: Sequence[tf.Tensor],
                 jit_compile: bool = False) -> Callable[..., list[tf.Tensor]]:
        """A not-inlined function of the feeds that computes the fetches, with nothing that only lies behind a feed."""
        fed = [t.name for t in feeds]
        needed = ancestors(fetches, {*fed, *(name for name, _ in self._captures)})
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


def ancestors(tensors: Sequence[tf.Tensor], stop: set[str]) -> dict[str, tf.Operation]:
    """The ops (by name) that the tensors need, data and control, not going past the tensors named in `stop`."""
    seen: dict[str, tf.Operation] = {}
    stopped_ops = {name.split(':')[0] for name in stop}
    stack = [t.op for t in tensors if t.name not in stop]
    while stack:
        op = stack.pop()
        if op.name not in seen:
            seen[op.name] = op
            stack.extend(t.op for t in op.inputs if t.name not in stop)
            stack.extend(control for control in op.control_inputs if control.name not in stopped_ops)
    return seen


def used_feeds(fetches: Sequence[tf.Tensor], feeds: Sequence[tf.Tensor]) -> set[str]:
    """Names of the feeds that the fetches depend on."""
    stop = {t.name for t in feeds}
    used = {t.name for t in fetches} & stop
    for op in ancestors(fetches, stop).values():
        used |= {t.name for t in op.inputs} & stop
    return used


def residual_tensors(forward: Sequence[tf.Tensor], backward: Sequence[tf.Tensor], args: Sequence[tf.Tensor],
                     micro_batch_args: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The tensors made by the forward pass that the backward pass starts from.

    What depends on weights alone (a weight cast to bfloat16, say) is made again instead: it would be kept once for every
    micro-batch in flight.

    Args:
      forward, backward: what the two passes fetch.
      args: all arguments of the traced function.
      micro_batch_args: those that differ from one micro-batch to the next.
    """
    stop = {t.name for t in args}
    forward_ops = ancestors(forward, stop)
    dependent = {t.op.name for t in micro_batch_args}
    for op in args[0].graph.get_operations():  # in the order of making, so inputs come first
        if op.name in forward_ops and any(t.op.name in dependent for t in op.inputs):
            dependent.add(op.name)
    residuals: dict[str, tf.Tensor] = {}
    seen: set[str] = set()
    stack = list(backward)
    while stack:
        tensor = stack.pop()
        op = tensor.op
        if tensor.name in stop:
            continue
        if op.name in forward_ops and op.name in dependent:
            residuals[tensor.name] = tensor
        elif op.name not in seen:
            seen.add(op.name)
            stack.extend(op.inputs)
            for control in op.control_inputs:
                if control.name not in forward_ops or control.name not in dependent:
                    stack.extend(control.outputs[:1] or control.inputs)
    return [residuals[name] for name in sorted(residuals)]
