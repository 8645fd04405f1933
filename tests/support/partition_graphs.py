"""Partition graphs: what TensorFlow makes of the functions that a step runs.

If its environment asks for it, TensorFlow writes graphs for every function that it prepares,
including those that others call: the graph with a device for every op, and then the part of each
device, with a _Send for everything that leaves it. TensorFlow reads that environment once, so
`record` runs in a process of its own, whose environment `environment` returns.
"""
from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping

import tensorflow as tf

from lingpipe.pipeline.execution.traffic import collective_bytes

_DEVICE_OF = re.compile(
    r'^node \{\n  name: "(.*)"\n  op: ".*"\n(?:  input: ".*"\n)*  device: "(.*)"$', re.MULTILINE)
_CALLED = re.compile(r'^    key: "f"\n    value \{\n      func \{\n        name: "(.*)"$',
                     re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Sent:
    """A tensor that goes from one device to another.

    Attributes:
      tensor: its name in the function.
      num_bytes: None: not known before it is made; 0: a control dependency.
      is_scalar: whether it is one.
      receiver: the device.
      dtype: its name.
    """
    tensor: str
    num_bytes: int | None
    is_scalar: bool
    receiver: str
    dtype: str


@dataclasses.dataclass(frozen=True)
class Function:
    """A function that TensorFlow has got ready to run.

    Attributes:
      name: TensorFlow's.
      device_of: by the name of an op.
      sent: what its devices send to each other.
      gathered: bytes that each run of it sends within collectives.
      calls: how often it calls each function.
    """
    name: str
    device_of: Mapping[str, str]
    sent: tuple[Sent, ...]
    gathered: float
    calls: Mapping[str, int]

    @property
    def devices(self) -> set[str]:
        """All devices on which the function has ops."""
        return set(self.device_of.values())


def environment(directory: pathlib.Path) -> dict[str, str]:
    """Returns the environment of a process that writes all graphs to the directory."""
    return {**os.environ, 'TF_DUMP_GRAPH_PREFIX': str(directory), 'TF_DUMP_GRAPH_NAME_FILTER': '*',
            'TF_DUMP_GRAPH_GROUPS': 'main'}


def functions(directory: pathlib.Path) -> list[Function]:
    """Returns every function that was prepared since the directory was empty, with repetitions."""
    return [_function(path, directory)
            for path in sorted(directory.glob('*.before_partition.pbtxt'))]


def _function(path: pathlib.Path, directory: pathlib.Path) -> Function:
    """Reads a function from its file and those beside it.

    Parsing takes long, so only what is sent is parsed, and the rest is read from the text.
    """
    text, name = path.read_text(), path.name.split('.')[0]
    device_of = dict(_DEVICE_OF.findall(text))
    assert len(device_of) == len(re.findall('^node {', text, re.MULTILINE))
    calls = collections.Counter(_CALLED.findall(text))
    graph = tf.Graph()
    if len(set(device_of.values())) > 1 or 'CollectiveReduceV2' in text:
        definition = _parsed(text)
        for node in definition.node:   # See task_call.py: here the shapes are wanted.
            node.attr.pop('_disable_call_shape_inference', None)
        with graph.as_default():
            tf.import_graph_def(definition, name='')
    parts = [_parsed(part.read_text())
             for part in directory.glob(f'{name}_partition_*.after_partition_passes.pbtxt')
             if len(set(device_of.values())) > 1]
    sends = [node for part in parts for node in part.node if node.op in ('_Send', '_HostSend')]
    gathered = sum(collective_bytes(_num_bytes(op.inputs[0]),
                                    int(tf.get_static_value(op.inputs[1])))
                   for op in graph.get_operations() if op.type == 'CollectiveReduceV2')
    return Function(name, device_of, tuple(_sent(node, graph) for node in sends), gathered, calls)


def _parsed(text: str) -> tf.compat.v1.GraphDef:
    """Parses the text of a graph.

    TensorFlow's own op reads it, since google.protobuf.text_format is written in Python, where the
    graphs of these tests took as long to read as they take to make.
    """
    fields = ['node', 'versions', 'library']
    _, (nodes, versions, library) = tf.io.decode_proto(
        text, 'tensorflow.GraphDef', fields, [tf.string] * len(fields), message_format='text')
    graph = tf.compat.v1.GraphDef(
        node=[tf.compat.v1.NodeDef.FromString(node) for node in nodes.numpy()])
    for one in versions.numpy():
        graph.versions.MergeFromString(one)
    for one in library.numpy():
        graph.library.MergeFromString(one)
    return graph


def _sent(node: tf.compat.v1.NodeDef, graph: tf.Graph) -> Sent:
    name = node.input[0] if ':' in node.input[0] else f'{node.input[0]}:0'
    receiver, dtype = node.attr['recv_device'].s.decode(), tf.as_dtype(node.attr['T'].type).name
    if '/ctrl/' in name:   # An empty tensor stands for a control dependency.
        return Sent(name, 0, False, receiver, dtype)
    tensor = graph.get_tensor_by_name(name)
    return Sent(name, _num_bytes(tensor), tensor.shape.rank == 0, receiver, dtype)


def _num_bytes(tensor: tf.Tensor) -> int | None:
    num_elements = tensor.shape.num_elements()
    return None if num_elements is None else num_elements * tensor.dtype.size
