"""Promises about the progress of a run on a terminal."""
import io
import re
import sys

from lingpipe.training.reporting.progress import Progress


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_last_thing_on_the_screen_is_the_last_step(tmp_path, monkeypatch):
    monkeypatch.setenv('TERM', 'xterm')
    terminal = Terminal()
    with Progress(0, 200, 8, str(tmp_path / 'log'), every_s=1e6, out=terminal) as progress:
        for step in range(1, 196):
            progress.update(step, 0.001, {'loss': step / 4, 'learning_rate': 0.5})
        progress.message('SIGINT: stopped after step 195')
    assert re.findall(r'step (\d+)/200', terminal.getvalue())[-1] == '195'
    assert re.findall(r'loss ([\d.]+)', terminal.getvalue())[-1] == '48.75'


def test_without_a_standard_output_lines_are_in_the_log(tmp_path, monkeypatch):
    """A trainer that was started with a closed standard output failed with an AttributeError."""
    monkeypatch.setattr(sys, 'stdout', None)
    with Progress(0, 1, 8, str(tmp_path / 'log'), every_s=0.) as progress:
        progress.message('a new run')
    assert (tmp_path / 'log').read_text() == 'a new run\n'
