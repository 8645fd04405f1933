"""Evaluation log: what is read from it, and which damages it survives."""
import hashlib
import json
import os
import re

import pytest

from lingpipe.training import registry
from lingpipe.training.evaluation_log import EvaluationLog
from tests.support.plain_user import plain_user

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


def test_log_that_may_not_be_read_is_not_set_aside():
    with plain_user() as folder:
        log = log_of(folder, LINE)
        (folder / 'evaluations.jsonl').chmod(0)
        with pytest.raises(OSError, match=rf'^{folder}/evaluations.jsonl cannot be read: '
                                          'Permission denied; it may be whole, so nothing is '):
            log.repair()
        with pytest.raises(OSError, match='cannot be read: Permission denied'):
            log.check_readable()
        assert os.listdir(folder) == ['evaluations.jsonl']


def test_log_that_cannot_be_read_is_empty(tmp_path):
    (tmp_path / 'evaluations.jsonl').mkdir()
    assert EvaluationLog(str(tmp_path)).read() == []


def test_an_evaluation_on_other_data_is_none_of_the_input(tmp_path):
    inputs = registry.get('tests.support.tiny_experiment.Tiny').eval_inputs
    name, source = next(iter(inputs.items()))
    before = EvaluationLog(str(tmp_path), {name: source})
    before.add(3, name, {'loss': 0.5})
    assert before.read() == [{'step': 3, 'input': name, 'loss': 0.5}]

    other = source.copy().set(batch_size=2 * source.batch_size)
    after = EvaluationLog(str(tmp_path), {name: other})
    assert not after.has(3, name) and after.read() == [] and after.metrics_after(3) == {}
    after.add(3, name, {'loss': 0.25})
    assert after.metrics_after(3) == {name: {'loss': 0.25}}
    assert before.metrics_after(3) == {name: {'loss': 0.5}}

    # A line of an earlier version does not say on which data.
    with open(tmp_path / 'evaluations.jsonl', 'a', encoding='utf-8') as file:
        file.write(json.dumps({'step': 2, 'input': name, 'loss': 1.}) + '\n')
    assert after.has(2, name) and len(EvaluationLog(str(tmp_path)).read()) == 3


def test_evaluations_before_there_was_a_field_shuffle_rounds_are_of_the_same_data(tmp_path):
    """A resumed run took them for those of other data, and forgot its best checkpoint."""
    inputs = registry.get('tests.support.tiny_experiment.Tiny').eval_inputs
    name, source = next(iter(inputs.items()))
    text = re.sub('(?m)^shuffle_rounds : .*\n', '', source.to_text())
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    line = {'step': 3, 'input': name, 'input_digest': digest, 'loss': 0.5}
    (tmp_path / 'evaluations.jsonl').write_text(json.dumps(line) + '\n')

    log = EvaluationLog(str(tmp_path), {name: source})
    assert log.has(3, name) and log.data_of(name) == digest


def test_evaluations_of_later_steps_are_forgotten(tmp_path, caplog):
    later = LINE.replace('3', '5')
    log = log_of(tmp_path, LINE + later)
    log.forget_after(5)
    assert len(log.read()) == 2 and not caplog.records
    log.forget_after(3)
    assert (tmp_path / 'evaluations.jsonl').read_text() == LINE
    assert (tmp_path / 'evaluations.jsonl.bad').read_text() == LINE + later
    assert '1 of its evaluations are of later steps than 3' in caplog.records[0].getMessage()
