"""Ordered sums: sums of three or more tensors whose order does not depend on free memory.

A tape adds up the gradients of a tensor that a layer reads several times by one AddN. TensorFlow
writes the sum over the first input whose memory nobody else holds, and begins with that one.
Whether others hold it depends on where cells end, on what runs again and on other threads, and a
sum in another order may have other last bits. So each AddN becomes additions of two tensors, in
the order in which AddN adds when its first input is free. In the bodies of loops and branches it
stays: they are the same functions in every cell.
"""
from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

_VARIANT = tf.variant.as_datatype_enum  # Lists of a loop, which AddV2 does not add.
_AT_ONCE = 8  # How many inputs AddN adds before it adds their sum; at first, they are 2 to 9.


def ordered_sum(node: tf.compat.v1.NodeDef) -> list[tf.compat.v1.NodeDef]:
    """Returns nodes in place of an AddN of three or more tensors, and other nodes as they are.

    The last node has the name of the given one.
    """
    operands = [name for name in node.input if not name.startswith('^')]
    if node.op != 'AddN' or len(operands) < 3 or node.attr['T'].type == _VARIANT:
        return [node]

    additions: list[tf.compat.v1.NodeDef] = []

    def total(names: Sequence[str]) -> str:
        """Adds tensors one after the other, and returns the name of the sum."""
        so_far = names[0]
        for name in names[1:]:
            addition = tf.compat.v1.NodeDef(name=f'{node.name}/ordered_{len(additions)}',
                                            op='AddV2', input=[so_far, name], device=node.device)
            addition.attr['T'].CopyFrom(node.attr['T'])
            additions.append(addition)
            so_far = addition.name
        return so_far

    num_first = (len(operands) - 2) % _AT_ONCE + 2
    so_far = total(operands[:num_first])
    for begin in range(num_first, len(operands), _AT_ONCE):
        so_far = total([so_far, total(operands[begin:begin + _AT_ONCE])])
    additions[-1].name = node.name
    for addition in additions:
        addition.input.extend(name for name in node.input if name.startswith('^'))
    return additions
