"""Outcome: what the user is told at the end of a run."""
from lingpipe.training.evaluation import Picture
from lingpipe.training.outcome import Outcome
from lingpipe.training.reporting.timeline import TimelineReport


def test_text_of_a_run_without_evaluation():
    assert Outcome(7).text('/log') == (
        '\ndone after 7 steps\n'
        '  checkpoints  /log/checkpoints\n'
        '  TensorBoard  tensorboard --logdir=/log/tensorboard\n')


def test_text_of_a_run_with_everything():
    outcome = Outcome(
        step=9, num_nonfinite=2, metrics={'test': {'loss': 0.5, 'error': 1.25}}, best=(8, 0.25),
        timeline=TimelineReport(6, (0.25,), 0.2, 'FLOPs', 0.125, 'a.png', 'a.json'),
        pictures={'test': Picture('wrong', 'wrong.png', '3 wrong')})
    assert outcome.text('/log') == (
        '\ndone after 9 steps, 2 of which were skipped: their loss or gradient was not finite\n'
        '  test         loss 0.5  error 1.25\n'
        '  best         0.25 at step 8\n'
        '  timeline     bubble of step 6: measured 25.0%, predicted 20.0% from FLOPs and 12.5% '
        'from the measured times of the tasks\n'
        '  pictures     a.png, a.json\n'
        '  picture      3 wrong: wrong.png\n'
        '  checkpoints  /log/checkpoints\n'
        '  TensorBoard  tensorboard --logdir=/log/tensorboard\n')
