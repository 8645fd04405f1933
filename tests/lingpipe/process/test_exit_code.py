"""What ended a process, in words."""
from __future__ import annotations

import pytest

from lingpipe.process import exit_code


@pytest.mark.parametrize(('code', 'words'), [
    (0, 'exit code 0'), (1, 'exit code 1'), (-9, 'SIGKILL'), (-34, 'SIGRTMIN'), (-35, 'signal 35')])
def test_an_exit_code_is_put_in_words_also_where_the_signal_has_no_name(code, words):
    assert exit_code.ending(code) == words
