"""ONNX model: a network as a file for ONNX runtimes, by tf2onnx."""
from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.export.onnx_check import check_outputs
from lingpipe.export.served_network import ServedNetwork
from lingpipe.process.error_text import sentence

_OPSET = 17   # the newest that tf2onnx 1.17 was tried with; it knows up to 18


def write_onnx(network: ServedNetwork, path: str) -> None:
    """Writes a network to a file, which computes the same as far as a runtime here can tell.

    Raises:
      ImportError: tf2onnx or onnx is not installed.
      ValueError: the network cannot be written so, or the file is not what the network computes.
    """
    convert: Any = importlib.import_module('tf2onnx.convert')
    checker: Any = importlib.import_module('onnx.checker')
    served = network.at_once(is_inlined=True)
    tensors = (tensor for op in served.graph.get_operations() for tensor in op.outputs)
    if any(tensor.dtype == tf.bfloat16 for tensor in tensors):
        raise ValueError('the network computes in bfloat16, which ONNX lacks for many operations, '
                         'so that a runtime refuses the file; write a saved_model, or export a '
                         'network of float32 that has these weights.')
    new_names = _new_names(network)

    @tf.function(autograph=False)
    def renamed(*flat: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = served(**dict(zip(network.inputs, flat, strict=True)))
        return {new_names.get(name, name): tensor for name, tensor in outputs.items()}

    convert.from_function(
        renamed, input_signature=list(network.inputs.values()), opset=_OPSET,
        custom_op_handlers={'Erfc': (_write_erfc, [])}, output_path=path)
    try:
        checker.check_model(path)
    except checker.ValidationError as error:
        layer = ('the layer with a loop, as attention by blocks has one,'
                 if 'TensorList' in str(error) else 'the layer that it means')
        raise ValueError(f'tf2onnx made no valid model of opset {_OPSET} of the network: '
                         f'{sentence(error)}; replace {layer} or write a saved_model.') from error
    check_outputs(path, network.inputs, renamed)


def _new_names(network: ServedNetwork) -> dict[str, str]:
    """The names of outputs that are named as inputs, where all values have names of their own.

    Raises:
      ValueError: a new name is taken.
    """
    new_names = {name: f'{name}_output' for name in network.outputs if name in network.inputs}
    if taken := [name for name in new_names.values() if name in network.inputs | network.outputs]:
        raise ValueError(f'an input and an output of the network are both named '
                         f'{taken[0].removesuffix("_output")}, which ONNX forbids, and {taken[0]} '
                         'is another value; give one of them another name.')
    for name, new_name in new_names.items():
        logging.info('the output %s is %s in the ONNX model, where no input may have its name',
                     name, new_name)
    return new_names


def _write_erfc(graph: Any, node: Any, name: str, args: object) -> None:
    """Writes erfc(x), which tf.nn.gelu asks for and ONNX lacks, as 1 - erf(x)."""
    utils: Any = importlib.import_module('tf2onnx.utils')
    shapes, dtypes = node.output_shapes, node.output_dtypes
    graph.remove_node(name)
    one = graph.make_const(f'{name}/one', np.ones([], utils.map_onnx_to_numpy_type(dtypes[0])))
    erf = graph.make_node('Erf', node.input)
    graph.make_node('Sub', [one.output[0], erf.output[0]], outputs=node.output, shapes=shapes,
                    dtypes=dtypes)
