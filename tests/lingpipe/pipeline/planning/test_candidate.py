"""A candidate: its losses explain its step, and equal plans are one."""
import pytest

from lingpipe.pipeline.planning.candidate import distinct
from lingpipe.pipeline.planning.candidates import Candidates
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.plan_search import fastest
from tests.support.planned_chains import CHAIN, made
from tests.support.random_candidates import GIGA, space_of, subject_of


def test_a_plan_that_several_choices_give_is_told_once():
    """With one micro-batch, schedules of one cell a device differ only in what they split."""
    subject = subject_of(made(*CHAIN), num_devices=2, num_cells=2)
    held = frozenset({'num_cells', 'num_replicas', 'num_micro_batches'})
    found = list(fastest(Candidates(subject), space_of(subject, held=held).choices()))
    once = list(distinct(found))
    assert once[0] is found[0]
    schedules = {candidate.choice.schedule for candidate in once}
    assert not {'gpipe', '1f1b'} <= schedules
    assert not {'none', 'fit'} <= {candidate.choice.recompute for candidate in once}
    assert {candidate.step_s for candidate in once} == {candidate.step_s for candidate in found}


def test_losses_and_the_divided_work_add_up_to_the_step():
    hardware = Hardware('some', flops_per_s=GIGA, memory_bytes_per_s=GIGA, link_bytes_per_s=GIGA,
                        slot_s=1e-6)
    subject = subject_of(made(*CHAIN), hardware=hardware)
    choices = space_of(subject, held=frozenset({'recompute', 'num_micro_batches'})).choices()
    for candidate in fastest(Candidates(subject), choices):
        share_s = candidate.work_s / candidate.num_devices
        assert share_s + sum(candidate.losses.values()) == pytest.approx(candidate.step_s)
