"""Faults: what tools.try_faults breaks, one file a family.

    kinds.py          the table of all kinds, and how some of them are drawn
    disturbed_run.py  a run of two workers that is broken, and started again as a user would
    processes.py      processes that are killed, stopped, slowed, short of memory, told to stop
    trainers.py       a second trainer in the same logdir, or with the same workers
    files.py          files of the logdir that are damaged
    disk.py           a small disk that is filled
    clock.py          a clock that is set back
    links.py          links between network namespaces that are cut, slow or lose packets
    small_run.py      the experiment that is run if nobody names another
"""
