"""Site: if there is a watchdog, it is told what a run does."""
from typing import Any

from lingpipe.training.site import THIS_PROCESS, Site


def test_watchdog_is_told_of_every_activity():
    told = []

    class Recorder:
        def begin(self, what: str, is_bounded: bool) -> None:
            told.append((what, is_bounded))

    watchdog: Any = Recorder()
    site = Site(watchdog=watchdog)
    site.begin('the start')
    site.begin('step 1', is_bounded=True)
    THIS_PROCESS.begin('step 2')   # Nobody watches this.
    assert told == [('the start', False), ('step 1', True)]
