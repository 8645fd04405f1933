"""Evaluation log: what is read from it, and which damages it survives."""
import json
import os

import pytest

from lingpipe.training.evaluation_log import EvaluationLog

LINE = '{"step": 3, "input": "test", "loss": 0.5}\n'


def log_of(tmp_path, text=''):
    (tmp_path / 'evaluations.jsonl').write_text(text)
    return EvaluationLog(str(tmp_path))


def test_what_is_added_is_read(tmp_path):
    log = EvaluationLog(str(tmp_path))
    assert log.read() == []
    log.add(3, 'test', {'loss': 0.5})
    log.add(3, 'other', {'loss': float('nan'), 'top5': 1})
    log.add(4, 'test', {'loss': 0.25})
    assert [log.has(3, 'test'), log.has(3, 'nothing'), log.has(5, 'test')] == [True, False, False]
    assert log.metrics_after(4) == {'test': {'loss': 0.25}}
    assert list(log.metrics_after(3)) == ['test', 'other']
    assert log.metrics_after(5) == {}


@pytest.mark.parametrize('line', [
    '', 'junk', '3', '[]', '{"step": 3}', '{"step": true, "input": "test"}',
    '{"step": 3, "input": 4}', '{"step": 3, "input": "test", "loss": "low"}'])
def test_line_that_is_no_evaluation_is_passed_over(tmp_path, line):
    assert log_of(tmp_path, f'{LINE}{line}\n').read() == [json.loads(LINE)]


def test_last_line_that_was_cut_short_is_removed(tmp_path, caplog):
    log_of(tmp_path, LINE + LINE[:20]).repair()
    assert (tmp_path / 'evaluations.jsonl').read_text() == LINE
    assert 'ended within a line, which is removed' in caplog.records[0].getMessage()


@pytest.mark.parametrize(('text', 'expected'), [
    (f'junk\n{LINE}', 'line 1 is no evaluation; the others are kept'),
    (f'a\n{LINE}b\n\nc\nd\n', 'lines 1, 3, 5 and 1 more are no evaluations; the others are kept')])
def test_damaged_file_is_set_aside(tmp_path, caplog, text, expected):
    log_of(tmp_path, text).repair()
    assert (tmp_path / 'evaluations.jsonl').read_text() == LINE
    assert expected in caplog.records[0].getMessage()
    aside, = set(os.listdir(tmp_path)) - {'evaluations.jsonl'}
    assert (tmp_path / aside).read_text() == text


def test_log_that_cannot_be_read_is_empty(tmp_path):
    (tmp_path / 'evaluations.jsonl').mkdir()
    assert EvaluationLog(str(tmp_path)).read() == []
