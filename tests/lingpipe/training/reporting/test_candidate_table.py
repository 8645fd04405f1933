"""The table of candidates: moved cuts are named, with what they gain, and are in the flags."""
from __future__ import annotations

import json

import pytest

from lingpipe.pipeline.planning.candidates import Candidates
from lingpipe.pipeline.planning.hardware import Hardware
from lingpipe.pipeline.planning.moved_cuts import with_moved_cuts
from lingpipe.pipeline.planning.plan_search import Found
from lingpipe.pipeline.planning.search_space import Choice
from lingpipe.training.reporting.candidate_table import Report
from tests.support.planned_chains import dense, made
from tests.support.random_candidates import BATCH_SIZE, GIGA, subject_of


def reports():
    """A report of two plans with the cuts of the partitioner, and one with moved cuts.

    The first of four layers takes as long as the others together, and an update a second a weight.
    """
    hardware = Hardware('slow update', flops_per_s=GIGA, slot_s=0.0, weight_s=1.0)
    network = made(dense('a', 8, 8, reads={'x': 'image'}), *(dense(name, 8, 8) for name in 'bcd'))
    subject = subject_of(network, num_devices=2, hardware=hardware, seconds_of=lambda _: [
        (3.0, 6.0), (1.0, 2.0), (1.0, 2.0), (1.0, 2.0), (0.0, 0.0)])
    candidates = Candidates(subject)
    found = Found([candidates.of(Choice(num_cells, 1, 1, '1f1b', 'none'), None)
                   for num_cells in (1, 2)])
    return [Report('some.Model', BATCH_SIZE, 2, hardware, None, 2, one, candidates.params_to_run,
                   subject.params)
            for one in (found, with_moved_cuts(candidates, found))]


def test_moved_cuts_are_named_with_what_they_gain():
    unmoved, moved = (report.text() for report in reports())
    assert 'Cuts were moved' not in unmoved
    gain = json.loads(reports()[1].json())['plans'][0]['moved_gain']
    assert gain == pytest.approx(1 / 21)
    assert f'simulated steps of these plans shorter: 1 by {gain:.1%}.' in ' '.join(moved.split())


def test_moved_cuts_are_in_the_flags():
    [first, second] = json.loads(reports()[1].json())['plans']
    layers = ','.join(map(str, first['layers_per_cell']))
    assert f'--set=pipeline.layers_per_cell=[{layers}]' in first['flags']
    assert second['moved_gain'] == 0.0
