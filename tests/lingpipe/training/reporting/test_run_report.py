"""Run report: a file that cannot be written costs one line, until it can be written again."""
import io

from lingpipe.training.reporting.progress import Progress
from lingpipe.training.reporting.run_report import RunReport


def test_kind_of_file_has_one_line_until_it_can_be_written_again(tmp_path):
    out = io.StringIO()
    report = RunReport(str(tmp_path), ['train'])
    attempts = [('pictures', True), ('pictures', True), ('the timeline', True),
                ('pictures', False), ('pictures', True)]
    with report.shown_by(Progress(0, 9, 8, str(tmp_path / 'train.log'), 0., out)):
        for step, (what, is_full) in enumerate(attempts):
            with report.optional(what, step):
                if is_full:
                    raise OSError('the disk is full')
    assert out.getvalue().splitlines() == [
        f'step {step}: {what} cannot be written: the disk is full. The run goes on without.'
        for step, what in ((0, 'pictures'), (2, 'the timeline'), (4, 'pictures'))]


def test_summaries_have_directories_of_their_own(tmp_path):
    report = RunReport(str(tmp_path), ['train', 'eval_test'])
    assert {name: summaries.directory for name, summaries in report.summaries.items()} == {
        'train': f'{tmp_path}/tensorboard/train', 'eval_test': f'{tmp_path}/tensorboard/eval_test'}
