"""The slots of a schedule: which exist, and which compiled task each calls."""

from lingpipe.pipeline.planning.schedule import Schedule, Slot

F0, R0, B0, W0 = (Slot(kind, 0, 0) for kind in 'FRBW')
LAST_B, LAST_W = Slot('B', 1, 0), Slot('W', 1, 0)


def schedule_of(*devices):
    return Schedule('by hand', len(devices), 1, devices, frozenset(range(len(devices))))


def test_a_backward_is_whole_unless_a_slot_of_its_weights_follows():
    schedule = schedule_of((F0, B0, W0), (LAST_B,))
    assert schedule.is_split(B0)
    assert not schedule.is_split(LAST_B)
    assert [slot for slot in schedule.device_of if schedule.adds_gradients(slot)] == [W0, LAST_B]


def test_every_slot_calls_the_task_of_its_kind():
    def kinds(*slots):
        schedule = schedule_of(slots, (LAST_B,))
        return [schedule.task_kind(slot) for slot in slots]

    assert kinds(F0, B0) == ['F', 'B']
    assert kinds(F0, B0, W0) == ['F', 'B_split', 'W']
    assert kinds(F0, R0, B0) == ['F', 'R', 'B_after_R']
    assert kinds(F0, R0, B0, W0) == ['F', 'R', 'B_split_after_R', 'W_after_R']


def test_the_fused_backward_of_the_last_cell_may_be_split_too():
    schedule = schedule_of((F0, B0), (LAST_B, LAST_W))
    assert schedule.is_fused(LAST_B)
    assert schedule.task_kind(LAST_B) == 'B_split'
    assert schedule.runs_forward(LAST_B)


def test_a_complete_cell_has_what_the_lists_have_of_w_and_r():
    schedule = schedule_of((F0, R0, B0, W0), (LAST_B, Slot('R', 1, 0)))
    assert schedule.slots_of(0) == (F0, B0, W0, R0)
    assert schedule.slots_of(1) == (LAST_B,)
