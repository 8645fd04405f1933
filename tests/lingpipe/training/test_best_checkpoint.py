"""Best checkpoint: evaluations mark it, and mark it again if the mark was lost."""

import pytest
import tensorflow as tf

from lingpipe.checkpoint import Checkpointer
from lingpipe.training import registry
from lingpipe.training.best_checkpoint import BestCheckpoint
from lingpipe.training.evaluation_log import EvaluationLog


@pytest.fixture
def checkpointer(tmp_path):
    """A checkpointer with the checkpoints of steps 1, 2 and 3."""
    checkpointer = Checkpointer(str(tmp_path / 'checkpoints'), keep=9)
    for step in (1, 2, 3):
        checkpointer.save(step, {'weights/w': tf.Variable(float(step))})
    return checkpointer


def best_by(checkpointer, data='', **values):
    problem = registry.get('tests.support.tiny_experiment.Tiny').task.set(**values)
    return BestCheckpoint(checkpointer, problem, 'test', data)


@pytest.mark.parametrize(('is_largest', 'best', 'notes'), [
    (False, (2, 1.), ['; best error so far', '; best error so far', '']),
    (True, (1, 3.), ['; best error so far', '', ''])])
def test_best_is_the_smallest_or_the_largest(checkpointer, is_largest, best, notes):
    marker = best_by(checkpointer, best_metric='error', best_is_largest=is_largest)
    errors = {1: 3., 2: 1., 3: 2.}
    assert [marker.mark(step, {'loss': 0., 'error': error})
            for step, error in errors.items()] == notes
    assert checkpointer.best() == best


def test_lowest_accuracy_is_not_best():
    problem = registry.get('tests.support.tiny_experiment.Tiny').task
    problem.best_metric = 'top5_accuracy'
    with pytest.raises(ValueError, match='would keep the checkpoint with the lowest accuracy; set '
                                         'best_is_largest=True'):
        problem.validate()
    problem.set(best_is_largest=True).validate()


def test_metric_that_is_not_there_is_named(checkpointer):
    with pytest.raises(ValueError, match=r"^task\.best_metric='error' is not among the metrics of "
                                         r"test: loss, top5; name one of them\.$"):
        best_by(checkpointer, best_metric='error').mark(1, {'loss': 1., 'top5': 0.})


def test_lost_mark_is_made_again_of_checkpoints_that_are_whole(checkpointer, tmp_path):
    log = EvaluationLog(str(tmp_path))
    for step, name, loss in ((1, 'test', 5.), (2, 'test', 4.), (2, 'other', 1.), (3, 'test', 2.)):
        log.add(step, name, {'loss': loss})
    best_by(checkpointer).restore_mark(log, last_step=2)   # That of step 3 is damaged.
    assert checkpointer.best() == (2, 4.)
    best_by(checkpointer).restore_mark(log, last_step=3)   # As if written after its evaluation.
    assert checkpointer.best() == (3, 2.)


@pytest.mark.parametrize('change', [{'data': 'd2'}, {'best_metric': 'error'},
                                    {'best_is_largest': True}])
def test_best_by_another_metric_or_on_other_data_does_not_count(checkpointer, change, tmp_path,
                                                                caplog):
    log = EvaluationLog(str(tmp_path))
    assert best_by(checkpointer, data='d1').mark(1, {'loss': 1., 'error': 0.})
    log.add(2, 'test', {'loss': 0.5, 'error': 3.})
    log.add(3, 'test', {'loss': 2., 'error': 4.})

    changed = best_by(checkpointer, **{'data': 'd1', **change})
    changed.restore_mark(log, last_step=3)
    assert checkpointer.best()[0] == (3 if 'best_is_largest' in change else 2)
    assert 'so the best so far, step 1, no longer counts' in caplog.records[0].getMessage()
    changed.restore_mark(log, last_step=3)
    assert len(caplog.records) == 1

    assert not best_by(checkpointer, **{'data': 'd1', **change}).mark(
        1, {'loss': 1., 'error': 3.5})
    assert best_by(checkpointer, data='d3').mark(1, {'loss': 9., 'error': 9.})


def test_best_that_does_not_say_by_what_counts(checkpointer, tmp_path):
    checkpointer.mark_best(2, 1., higher_is_better=False)
    marker = best_by(checkpointer, data='d1')
    marker.restore_mark(EvaluationLog(str(tmp_path)), last_step=3)
    assert not marker.mark(3, {'loss': 2.})
    assert checkpointer.best() == (2, 1.)
