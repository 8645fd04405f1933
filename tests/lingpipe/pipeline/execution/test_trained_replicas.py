"""Trained replicas: their sums are timed where they are made, and only if there are several."""
from __future__ import annotations

import pytest
import tensorflow as tf

from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.lingpipe.pipeline.execution import test_training_graph


@pytest.mark.parametrize('num_replicas', [1, 2])
def test_the_sums_of_replicas_begin_after_the_tasks_of_their_cell(num_replicas):
    batch = test_training_graph.batch(8)
    like = test_training_graph.program()
    program = Program(
        like.network, {name: tf.TensorSpec(value.shape) for name, value in batch.items()},
        PipelineParams(num_micro_batches=2, num_replicas=num_replicas), like.learner)
    _, times = program.timed_step(batch, 0)
    spans = {span.kind: span for spans in times.updates.values() for span in spans}
    assert ('sums' in spans) == (num_replicas > 1)
    if num_replicas > 1:
        assert spans['sums'].span[0] >= max(end for _, end in times.timeline.spans.values())
