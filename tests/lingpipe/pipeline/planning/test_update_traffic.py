"""Update traffic: what the update of a layer reads and writes, counted by hand."""
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.update_traffic import UpdateTraffic, total_traffic, update_traffic
from tests.support.planned_chains import CHAIN, plan_of

WEIGHT_BYTES = 16 * 16 * 4   # of the chain's second product


def test_a_gradient_is_moved_five_times_and_weights_and_slots_twice():
    plan = plan_of(*CHAIN, num_micro_batches=4, frozen=('model/a/w',))
    frozen, trained, *_ = (update_traffic(element, lambda weight: 8 * weight.size)
                           for element in plan.elements)
    assert frozen == UpdateTraffic(0, 0, 0, 0)
    assert trained.gradient_bytes == WEIGHT_BYTES
    assert trained.state_bytes == (1 + 1 + 2) * WEIGHT_BYTES
    assert trained.update_bytes == 5 * WEIGHT_BYTES + 2 * (1 + 2) * WEIGHT_BYTES
    assert trained.num_weights == 1
    assert trained.slot_bytes == 2 * WEIGHT_BYTES


def test_layers_add_up_and_take_seconds():
    total = total_traffic([UpdateTraffic(1, 2, 30, 4, 5), UpdateTraffic(10, 20, 300, 40, 50)])
    assert total == (11, 22, 330, 44, 55)
    assert total.update_s(Hardware('any', memory_bytes_per_s=10.0, weight_s=0.5)) == 33 + 22
    assert total_traffic([]) == UpdateTraffic(0, 0, 0, 0)
