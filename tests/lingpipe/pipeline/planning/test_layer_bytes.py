"""Layer bytes: what layers of a chain add to their cell, counted by hand."""
from lingpipe.pipeline.planning.dataflow import residuals_of
from lingpipe.pipeline.planning.layer_bytes import Leaves, layer_bytes
from tests.support.planned_chains import CHAIN, IMAGE, WIDE, plan_of


def test_weights_are_its_own_and_a_rectifier_leaves_its_output():
    elements = plan_of(*CHAIN, num_micro_batches=4, frozen=('model/a/w',)).elements
    residuals = residuals_of(elements)
    leaves = Leaves(elements, residuals)
    a, b, *_ = (layer_bytes(element, kept, leaves, lambda weight: 8 * weight.size,
                           lambda weight, has_rows: 3 * weight.size, set())
                for element, kept in zip(elements, residuals, strict=True))
    assert (a.own_bytes, a.gradient_bytes, a.has_backward) == (4 * 8 * 16, 0, False)
    assert (b.own_bytes, b.gradient_bytes) == (16 * 16 * (4 + 8), 16 * 16 * 4)
    assert (a.update_bytes, b.update_bytes) == (0, 16 * 16 * 3)
    assert [leaves.num_bytes[leaf] for leaf in a.reads] == [IMAGE]
    assert sum(leaves.num_bytes[leaf] for leaf in b.residuals) + b.inner_bytes == 2 * WIDE
