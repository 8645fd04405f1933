"""Slot shares: every weight has one replica, and the replicas keep about as much."""
from lingpipe.pipeline.planning.growing_cell import FixedBytes
from lingpipe.pipeline.planning.slot_shares import SlotBytes, SlotShares, replica_of_weights
from tests.lingpipe.pipeline.planning.test_growing_cell import layer
from tests.support.planned_chains import CHAIN, plan_of


def weights(*sizes: int) -> list[SlotBytes]:
    return [SlotBytes(f'w{i}', size, 2 * size) for i, size in enumerate(sizes)]


def test_the_largest_weight_comes_first_and_goes_to_the_replica_that_has_least():
    shares = SlotShares(2)
    shares.add(weights(1, 4, 4, 1, 2))
    assert shares.replica_of == {'w1': 0, 'w2': 1, 'w4': 0, 'w0': 1, 'w3': 1}
    assert shares.largest == 2 * (4 + 2)


def test_weights_without_slots_are_shared_out_as_well():
    shares = SlotShares(2)
    shares.add([SlotBytes('a', 4, 0), SlotBytes('b', 4, 0)])
    assert shares.replica_of == {'a': 0, 'b': 1} and shares.largest == 0


def test_a_cell_holds_the_slots_of_the_largest_share():
    fixed = FixedBytes(2, False, True, shards_slots=True)
    fixed.add(layer(own_bytes=3 * 9, slots=tuple(weights(4, 3, 2))))
    assert fixed.total == 9 + 2 * 5


def test_every_weight_that_trains_has_a_replica():
    plan = plan_of(*CHAIN, num_micro_batches=2, num_replicas=2, shard_slots=True)
    replica_of = replica_of_weights(plan.cells, lambda weight: 8 * weight.size, 2)
    assert replica_of.keys() == {w.path for e in plan.elements for w in e.trained}
    assert set(replica_of.values()) == {0, 1}
