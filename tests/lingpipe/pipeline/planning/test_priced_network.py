"""A priced network: its layers are those of a micro-batch, and each graph is made once."""
import pytest
import tensorflow as tf

from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.pipeline.planning.priced_network import price, wire_parts
from tests.support.planned_chains import CHAIN, SPEC, made


def test_a_network_is_priced_for_a_micro_batch_and_frozen_weights_do_not_train():
    params = PipelineParams(num_micro_batches=4)
    priced = price(made(*CHAIN), SPEC, params, lambda path: path == 'model/a/w',
                   lambda weight: 8 * weight.size, lambda weight, has_rows: 12 * weight.size)
    assert priced.elements[0].reads['x'].spec == tf.TensorSpec([4, 8])
    assert not priced.elements[0].trained
    assert len(priced.times.forward) == len(priced.elements)
    fixed = priced.memory.of_span(range(2), 'none').fixed
    assert priced.memory.of_span(range(2), 'none').received == 12 * 16 * 16   # of the update
    assert fixed == 4 * 8 * 16 + 16 * 16 * (4 + 4 + 8)   # The first weight has no gradient.
    assert priced.graph_of(range(2)) is priced.graph_of(range(2))


def test_micro_batches_must_divide_the_batch():
    with pytest.raises(ValueError, match='3'):
        wire_parts(made(*CHAIN), SPEC, PipelineParams(num_micro_batches=3))
