"""Links: how long values between cells, and gradients between replicas, are on their way."""
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.links import Links, sent_share
from tests.support.planned_chains import CHAIN, plan_of

HARDWARE = Hardware('any', link_bytes_per_s=100.0, network_bytes_per_s=10.0)


def links_of(devices=(), **pipeline):
    plan = plan_of(*CHAIN, num_cells=2, layers_per_cell=(2, 2), devices=devices, **pipeline)
    return plan, Links(plan, HARDWARE)


def test_values_take_their_bytes_over_the_speed_of_the_link():
    plan, links = links_of(num_micro_batches=4)
    sent_bytes = sum(value.num_bytes for value in plan.cells[0].outputs)
    assert links.occupied_s(0, 1) == sent_bytes / 100.0
    workers = [f'/job:worker/task:{i}/device:CPU:0' for i in range(2)]
    assert links_of(workers, num_micro_batches=4)[1].occupied_s(0, 1) == sent_bytes / 10.0


def test_half_the_bytes_take_half_the_time():
    whole = links_of(num_micro_batches=4)[1].occupied_s(0, 1)
    assert links_of(num_micro_batches=4, wire_dtype='bfloat16')[1].occupied_s(0, 1) == whole / 2


def test_replicas_send_and_receive_all_gradients_but_their_own_part():
    assert [sent_share(1), sent_share(2), sent_share(4)] == [0.0, 1.0, 1.5]
    assert links_of(num_micro_batches=4)[1].exchange_s([500, 700]) == 0
    _, two = links_of(num_micro_batches=2, num_replicas=2)
    assert two.exchange_s([500, 700]) == 7.0
