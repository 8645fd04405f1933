"""Outcome: what the user is told at the end of a run."""
from lingpipe.training.evaluation import Picture
from lingpipe.training.outcome import Outcome
from tests.lingpipe.training.reporting.test_timeline import parts, report


def test_text_of_a_run_without_evaluation():
    assert Outcome(7).text('/log') == (
        '\ndone after 7 steps\n'
        '  checkpoints  /log/checkpoints\n'
        '  TensorBoard  tensorboard --logdir=/log/tensorboard\n')


def test_a_run_that_a_hook_has_stopped_says_why():
    """It was said to be done."""
    outcome = Outcome(3, stop_reason='loss has got no better for 2 evaluations')
    assert outcome.text('/log') == (
        '\nstopped by a hook after 3 steps\n'
        '  reason       loss has got no better for 2 evaluations\n'
        '  checkpoints  /log/checkpoints\n'
        '  TensorBoard  tensorboard --logdir=/log/tensorboard\n')
    assert repr(outcome) == 'Outcome(stopped by a hook after 3 steps)'


def test_text_of_a_run_with_everything():
    outcome = Outcome(
        step=9, num_nonfinite=2, metrics={'test': {'loss': 0.5, 'error': 1.25}}, best=(8, 0.25),
        timeline=report(6, (0.25,), 'FLOPs', replayed=parts(0.9e-3)),
        pictures={'test': Picture('wrong', 'wrong.png', '3 wrong')})
    assert outcome.text('/log') == (
        '\ndone after 9 steps, 2 of which were skipped: their loss or gradient was not finite\n'
        '  test         loss 0.5  error 1.25\n'
        '  best         0.25 at step 8\n'
        '  timeline     bubble of step 6: measured 25.0%, predicted 20.0% from FLOPs and 21.0% '
        'from the measured times of the tasks\n'
        '  step time    steps: 10.0 ms, predicted 9.0 ms from the measured times of the tasks\n'
        '  pictures     a.png, a.json, b.png\n'
        '  picture      3 wrong: wrong.png\n'
        '  checkpoints  /log/checkpoints\n'
        '  TensorBoard  tensorboard --logdir=/log/tensorboard\n')
