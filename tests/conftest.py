"""Settings of all tests, made before TensorFlow starts.

They are four logical CPU devices, one thread for each op, quiet logs, and compiled modules that are
kept.
"""
import functools
import gc
import os
import pathlib
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

    # What XLA compiles here runs once, so that compiling it well takes longer than running it.
    os.environ.setdefault('XLA_FLAGS', '--xla_backend_optimization_level=0 '
                                       '--xla_cpu_parallel_codegen_split_count=1')

    tensorflow_import.quiet(is_own_process=True)
    from lingpipe import cluster
    from lingpipe.cluster import user_filter
    cluster.configure(num_cpu_devices=4)
    cluster.set_graph_optimizer(False)

    # On newer kernels, a connection to the worker of an ordinary user takes a second.
    if not user_filter.may_hold():
        os.environ[user_filter.LET_IN] = 'all'

    # A traced step consists of many objects that live long: the garbage collector looks at them
    # seldom, and at imported modules never.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Lets every process begin with its share of the slow tests.

    With -n, each process gets equally many tests, in this order. One that has ended takes tests
    from the end of another's, so quick ones should be left then. Most slow tests of one folder
    either wait or compute, so they stay in one process, beside others that do otherwise.
    """
    num_processes = getattr(config, 'workerinput', {}).get('workercount', 1)
    slow_of_folder: dict[pathlib.Path, list[pytest.Item]] = {}
    quick = []
    for item in items:
        is_slow = item.get_closest_marker('slow') is not None
        (slow_of_folder.setdefault(item.path.parent, []) if is_slow else quick).append(item)

    shares: list[list[pytest.Item]] = [[] for _ in range(num_processes)]
    for slow in sorted(slow_of_folder.values(), key=len, reverse=True):
        min(shares, key=len).extend(slow)

    ordered: list[pytest.Item] = []
    for number, share in enumerate(shares):
        num_tests = (len(items) - len(ordered)) // (num_processes - number)
        num_quick = max(0, num_tests - len(share))
        ordered += share + quick[:num_quick]
        del quick[:num_quick]
    items[:] = ordered


@pytest.fixture
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures layers in two rounds, and little memory, where a test promises nothing of times."""
    from lingpipe.pipeline.execution import measured_costs, measured_hardware, measured_layers
    from lingpipe.tools import emulation
    few = functools.partial(measured_costs.layer_seconds, repeats=2)
    monkeypatch.setattr(measured_costs, 'layer_seconds', few)
    monkeypatch.setattr(emulation, 'layer_seconds', few)
    monkeypatch.setattr(measured_layers, 'MAX_ROUNDS', 2)
    monkeypatch.setattr(measured_hardware, 'PROBE_BYTES', 2**20)


@pytest.fixture(autouse=True)
def _same_seeds() -> None:
    """Keras draws the seeds that a test does not set from this generator."""
    random.seed(0)
