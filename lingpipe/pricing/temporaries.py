"""Temporaries: the most bytes that a pass of a layer needs while it runs, besides what is kept.

The ops run one after the other, in the order in which the graph was built, as they do on a GPU and
nearly so on a CPU. A tensor lives from the op that makes it until the last op that reads it. An op
by elements writes into the memory of an input that nobody reads later, as TensorFlow's kernels do.
A loop or a function needs what its body needs, which is one turn of a loop.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import tensorflow as tf

from lingpipe.pricing.ops import ancestors, bodies, bytes_of, viewed

# Ops whose result takes the memory of an input of the same size, if that is free.
_IN_PLACE = frozenset("""
    Add AddN AddV2 BiasAdd Ceil Cos Div DivNoNan Elu EluGrad Erf Exp Expm1 Floor Gelu GeluGrad Inv
    LeakyRelu LeakyReluGrad Log Log1p LogSoftmax Maximum Minimum Mul MulNoNan Neg Pow RealDiv
    Reciprocal Relu Relu6 Relu6Grad ReluGrad Rsqrt RsqrtGrad Selu SeluGrad Sigmoid SigmoidGrad Sign
    Sin Softmax Softplus SoftplusGrad Softsign Sqrt SqrtGrad Square SquaredDifference Sub Tanh
    TanhGrad Xdivy
    """.split())


def most_bytes(fetches: Sequence[tf.Tensor], start: Collection[str], uncounted: Collection[str],
               passed: Sequence[tf.Tensor] = ()) -> int:
    """The most bytes that exist at a time while a pass computes its fetches.

    Args:
      fetches: what is there at the end.
      start: the names of the tensors that the pass starts from. Each is free after the last op that
        reads it.
      uncounted: the names of tensors, of those or of others, whose memory is counted elsewhere.
      passed: further tensors to compute, each of which is free as soon as it is there.
    """
    needed = ancestors([*fetches, *passed], start)
    # Constants are in memory anyway.
    ops = [op for tensor in [*fetches, *passed][:1] for op in tensor.graph.get_operations()
           if op.name in needed and op.type != 'Const']
    last_read = {viewed(tensor).name: i for i, op in enumerate(ops) for tensor in op.inputs}
    last_read |= {viewed(tensor).name: len(ops) for tensor in fetches}

    def counted(tensors: Iterable[tf.Tensor]) -> dict[str, int]:
        """Name of a root -> its bytes."""
        roots = {root.name: root for root in map(viewed, tensors)}
        return {name: bytes_of(root) for name, root in roots.items() if name not in uncounted}

    live = counted(tensor for op in ops for tensor in op.inputs if tensor.name in start)
    now = most = sum(live.values())
    for i, op in enumerate(ops):
        made = {name: size for name, size in counted(op.outputs).items() if name not in live}
        free = {name: live.pop(name) for name in counted(op.inputs)
                if name in live and last_read[name] == i}
        reused = 0
        if op.type in _IN_PLACE and sum(made.values()) in free.values():
            reused = sum(made.values())
        most = max(most, now + sum(made.values()) - reused + _inner_bytes(op))
        kept = {name: size for name, size in made.items() if name in last_read}
        live |= kept
        now += sum(kept.values()) - sum(free.values())
    return most


def _inner_bytes(op: tf.Operation) -> int:
    """What the largest of the functions needs that an op calls."""
    return max((most_bytes(body.outputs, names, names) for body in bodies(op)
                for names in [{tensor.name for tensor in body.inputs}]), default=0)
