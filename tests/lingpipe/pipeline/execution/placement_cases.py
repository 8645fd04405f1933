"""Placement cases: what each kind of step sends from device to device.

Each case has the prediction, and what TensorFlow writes down.
"""
from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from lingpipe import cluster, layers
from lingpipe.checkpoint.copier import Copier
from lingpipe.learning import optimizers
from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.decoding.sentence_group import SentenceGroup
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.execution.traffic import Traffic
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.lingpipe.pipeline.decoding import test_decoder
from tests.lingpipe.pipeline.execution import test_program
from tests.lingpipe.pipeline.replication import test_replicas
from tests.support import partition_graphs


def cases() -> Iterator[tuple[str, Program, Traffic]]:
    """Runs one step of each kind, and yields its name, its program and its predicted traffic.

    The network has skips, BatchNorm, a weight that the last two of three cells share, and layers
    that are alike in all cells.
    """
    batch, = test_program.batches(1)
    learner = test_program.learner(ema_decay=0.9, weight_decay=0.1)

    program = test_program.program_of(learn=learner, num_micro_batches=2, num_cells=3,
                                      layers_per_cell=(6, 6, 3))
    predicted = program.sent_bytes()
    program.timed_step(batch, 0)
    yield 'training', program, predicted
    program.accumulate(batch, 1, 0)
    yield 'accumulation', program, dataclasses.replace(predicted, shared_gradients=0., norms=0.)
    evaluator = program.evaluator(program.batch_spec, fetch=('x', 'skip'))
    evaluator.step(batch)
    yield 'evaluation', program, evaluator.sent_bytes()
    Copier(program.variables())
    yield 'copy', program, Traffic()

    sgd = test_program.learner(optimizer=optimizers.SGD.Params())
    for name, params in (
            ('groups', {'num_cells': 4, 'devices': ('CPU:1', 'CPU:0') * 2, 'sum_groups': 2,
                        'wire_dtype': 'bfloat16', 'schedule': 'zb_h1'}),
            ('replicas', {'num_cells': 2, 'num_replicas': 2, 'layers_per_cell': (12, 3),
                          'shard_slots': True})):
        program = test_program.program_of(learn=sgd, num_micro_batches=2, **params)
        program.train_step(batch, 0)
        yield name, program, program.sent_bytes()

    program = test_replicas.program_of(num_cells=2, num_replicas=2, layers_per_cell=(2, 4),
                                       replica_reduction='ring', cross_replica_batch_norm=True,
                                       schedule='zb_h1', recompute='cell')
    program.train_step(test_replicas.batches(1)[0], 0)
    yield 'ring', program, program.sent_bytes()

    batch = {'ids': np.zeros([8, 3], np.int32), 'target': np.zeros([8, 3, 2], np.float32)}
    program = Program(_tables(), test_program.spec_of(batch), PipelineParams(
        num_cells=2, num_replicas=2, num_micro_batches=2, layers_per_cell=(1, 3)), sgd)
    program.train_step(batch, 0)
    yield 'rows', program, program.sent_bytes()

    program = test_decoder.make_program(test_decoder.network(is_tied=True), num_cells=2)
    sources = test_decoder.sentences(2)
    decoder = Decoder(program, test_decoder.BEAM, test_decoder.START, test_decoder.END)
    decoder.decode(
        [SentenceGroup({'source': sources}, np.full(len(sources), test_decoder.LIMIT, np.int32))])
    yield 'decoding', program, Traffic()


def _tables() -> layers.Sequential:
    """Two embeddings of Keras that share a table, and keep the rows of its gradient."""
    def table(name: str, **values: Any) -> layers.KerasLayer.Params:
        return layers.KerasLayer.Params(
            layer=keras.layers.Embedding(5, 2), name=name, reads={'x': 'ids'}, writes=name,
            input_shape=(3,), input_dtype='int32', **values)

    return layers.Sequential.Params(name='model', layers=(
        table('a'), table('b', share={'embeddings': 'model/a/embeddings'}),
        layers.KerasLayer.Params(class_name='Add', name='x', input_shape=(3, 2),
                                 reads={'x_0': 'a', 'x_1': 'b'}),
        layers.MeanSquaredErrorLoss.Params(name='loss'))).instantiate()


def record(directory: str) -> None:
    """Prints as JSON what the tests need of each case.

    TensorFlow writes its graphs to the directory.
    """
    cluster.configure(num_cpu_devices=4)
    cluster.set_graph_optimizer(False)
    found, path = {}, pathlib.Path(directory)
    for name, program, predicted in cases():
        found[name] = {'predicted': dataclasses.asdict(predicted),
                       **_facts(partition_graphs.functions(path), program)}
        for file in path.iterdir():
            file.unlink()
    print(json.dumps(found))


def _facts(functions: list[partition_graphs.Function], program: Program) -> dict[str, Any]:
    called = {name for function in functions for name in function.calls}
    sent = [one for function in functions for one in function.sent]
    num_calls: collections.Counter[str] = collections.Counter()
    for function in functions:
        num_calls.update(function.calls)

    devices_of: dict[str, set[Any]] = {}
    for cell in (cell for cells in program.plan.replicas for cell in cells):
        for element in cell.elements:
            devices_of.setdefault(element.layer.path, set()).add(cluster.place(cell.device))

    ops = [(op.split('./')[0].removesuffix('_backward'), op, device)
           for function in functions for op, device in function.device_of.items()]

    return {'spread': sorted({function.name
                              for function in functions
                              if function.name in called and len(function.devices) > 1}),
            'num_calls': sum(num_calls.values()),
            'misplaced': [f'{op} on {device}'
                          for path, op, device in ops
                          if path in devices_of and cluster.place(device) not in devices_of[path]],
            'num_ops_of_layers': sum(path in devices_of for path, _, _ in ops),
            'num_bytes': (sum(one.num_bytes or 0 for one in sent if not one.is_scalar)
                          + sum(function.gathered * num_calls.get(function.name, 1)
                                for function in functions)),
            'num_scalars': sum(one.is_scalar for one in sent),
            'of_unknown_size': [[one.tensor, one.dtype, one.receiver]
                                for one in sent if one.num_bytes is None],}
