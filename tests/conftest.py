"""Settings of all tests, made before TensorFlow starts.

They are four logical CPU devices, one thread for each op, quiet logs, and compiled modules that are
kept.
"""
import gc
import os
import random
import sys

import pytest

from lingpipe.process import tensorflow_import


def pytest_configure(config: pytest.Config) -> None:
    """Sets up TensorFlow in the processes that run tests.

    With -n, the process that hands out the tests runs none. It imports no TensorFlow, since the
    others wait for it.
    """
    hands_out = config.getoption('numprocesses', None) and not hasattr(config, 'workerinput')
    if hands_out:
        return

    # Some containers set PYTHONDONTWRITEBYTECODE. Each process of a test would compile all modules,
    # and pytest would rewrite the assertions of all tests in each run.
    sys.dont_write_bytecode = False
    os.environ.pop('PYTHONDONTWRITEBYTECODE', None)

    tensorflow_import.quiet(is_own_process=True)
    from lingpipe import cluster
    cluster.configure(num_cpu_devices=4)
    cluster.set_graph_optimizer(False)

    # A traced step consists of many objects that live long: the garbage collector looks at them
    # seldom, and at imported modules never.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts slow tests first, so that no process is left with one when the others have ended."""
    items.sort(key=lambda item: item.get_closest_marker('slow') is None)


@pytest.fixture(autouse=True)
def _same_seeds() -> None:
    """Keras draws the seeds that a test does not set from this generator."""
    random.seed(0)
