"""Built steps: one for each shape of mini-batches, traced when it is first needed."""
from __future__ import annotations

import pytest
from absl import logging

from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from tests.lingpipe.pipeline.execution import test_program, test_update
from tests.lingpipe.pipeline.execution.test_training_graph import batch, program


def test_a_program_is_traced_shape_by_shape():
    one = program()
    assert not one.has_traced(batch(8)) and not one.has_traced(batch(4))
    one.train_step(batch(4), 0)
    assert not one.has_traced(batch(8)) and one.has_traced(batch(4))


def test_a_mini_batch_of_another_shape_is_refused():
    program = test_program.program_of(num_cells=2)
    small = test_program.batches(1, batch=12)[0]
    with pytest.raises(ValueError, match=r"'image' of the mini-batch is float32 \(12, 8\), but the "
                                         r"network was built for float32 \(16, 8\)"):
        program.train_step(small, 0)


def test_weights_without_a_gradient_are_named_once(monkeypatch):
    said = []
    monkeypatch.setattr(logging, 'warning', lambda text, *args: said.append(text % args))
    test_update.forked(test_update.fork(), PipelineParams(num_cells=2))
    assert said == [
        'the loss does not depend on model/side/kernel, model/side/bias, so that training leaves '
        'them as they are; correct the network, or freeze them with learner.frozen']
    test_update.forked(test_update.fork(), PipelineParams(num_cells=2), frozen='side')
    assert len(said) == 1
