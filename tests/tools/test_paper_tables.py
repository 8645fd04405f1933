"""paper_tables prints the paper's numbers beside those that Params, plan and simulator predict."""
from __future__ import annotations

import json
import math

import pytest

from lingpipe.tools import paper_tables
from lingpipe.training import registry

SMALLEST = {'translation.table1.Transformer24': {2: 1.0, 4: 1.8}}


def test_table_1_counts_parameters_and_bytes():
    row, = paper_tables.table_1(paper_tables.TABLE_1[5:6])
    assert (row['column'], row['model'], row['num_cells'], row['num_micro_batches']) == (
        'Naive-1', 'Transformer3', 1, 1)
    assert row['paper'] == {'parameters': '282.2M', 'model_gb': 11.7, 'activation_gb': 3.15}
    assert row['simulated']['parameters'] == pytest.approx(282.2e6, rel=1e-3)
    assert row['simulated']['model_gb'] == pytest.approx(16 * row['simulated']['parameters'] / 1e9)
    assert row['simulated']['fullest_device_gb'] == pytest.approx(
        row['simulated']['model_gb'] + row['simulated']['activation_gb'])

    plan = registry.get('translation.table1.Transformer3').instantiate().make_plan()
    # Inspection prints this number.
    assert row['simulated']['fullest_device_gb'] == plan.rows()[0]['peak_mb'] / 1e3
    assert row['device_gb'] == 16


def test_the_papers_numbers_are_all_there():
    """A few numbers of each table, typed by hand from the paper, are where they belong."""
    assert [column[3:] for column in paper_tables.TABLE_1][4::5] == [
        ('1.8B', 24.62, 26.24), ('83.9B', 937.9, 796.1)]
    assert {name: len(table) for name, table in paper_tables.TABLE_2.items()} == {
        'image.imagenet.AmoebaNetD18x256': 9, 'translation.table1.Transformer48': 9}
    assert [table[8, 32] for table in paper_tables.TABLE_2.values()] == [3.48, 6.3]
    assert [list(table.values()) for table in paper_tables.TABLE_3.values()] == [
        [1, 1.7, 2.7], [1, 1.8, 3.3]]


def test_table_2_has_the_papers_rows_and_those_beyond():
    rows = paper_tables.table_2({'translation.table1.Transformer48': [(16, 64)]})
    found = {(row['num_cells'], row['num_micro_batches']): row for row in rows}
    assert {place: row['paper'] for place, row in found.items()} == {
        **paper_tables.TABLE_2['translation.table1.Transformer48'], (16, 64): None}
    assert found[2, 1]['simulated'] == 1
    for (k, m), row in found.items():
        # With one micro-batch, one device computes at a time.
        assert m > 1 or row['idle_share'] == pytest.approx(1 - 1 / k)
        assert row['bound'] == k * m / (m + k - 1)
    assert (found[8, 1]['simulated'] < 1 < found[8, 4]['simulated'] < found[8, 32]['simulated']
            < found[16, 64]['simulated'] < 16)


def test_table_3_slows_down_with_the_link_as_the_simulator_says():
    free, fast, slow = paper_tables.table_3(1e12, [math.inf, 1e10, 1e5], SMALLEST)
    assert (free['share_of_free_link'] == {2: 1, 4: 1} and free['simulated'][2] == 1
            and free['paper'] == {2: 1, 4: 1.8})
    assert all(0.99 < share <= 1 for share in fast['share_of_free_link'].values())
    # [1, 1024, 2048] float32 over 0.1 MB/s takes 84 s, each way 32 times, beside which little
    # counts. In 2 cells gradients come back while values still go; in 4 the cells between send all
    # values first.
    assert all(share < 0.06 for share in slow['share_of_free_link'].values())
    assert slow['simulated'][4] == pytest.approx(0.5, rel=0.01)


def test_a_table_says_what_is_the_papers_and_what_is_simulated(capsys, monkeypatch):
    rows = paper_tables.table_3(2.3e12, [math.inf])
    asked = []
    # The table is made once for both calls.
    monkeypatch.setattr(paper_tables, 'table_3', lambda *args: asked.append(args) or rows)
    paper_tables.main(['--tables=3', '--links_gb_s=inf'])
    text = capsys.readouterr().out
    assert text.startswith('"paper" is what arXiv:1811.06965v5 prints; "simulated" is lingpipe\'s '
                           'prediction: nothing was trained here.')
    assert ('AmoebaNetD18x128            paper, PCI-E  1.00  1.70  2.70\n' in text
            and 'simulated, free  1.00' in text)

    paper_tables.main(['--tables=3', '--links_gb_s=inf', '--json'])
    assert [row['model'] for row in json.loads(capsys.readouterr().out)['table_3']] == [
        'AmoebaNetD18x128', 'Transformer24']
    assert asked == [(2.3e12, [math.inf])] * 2
