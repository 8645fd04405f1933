"""Settings of all tests, made before TensorFlow starts.

They are four logical CPU devices, one thread for each op, and quiet logs.
"""
import gc
import os

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

import pytest

from lingpipe import cluster

cluster.configure(num_cpu_devices=4)
cluster.set_graph_optimizer(False)

# A traced step consists of many objects that live long: the garbage collector looks at them
# seldom, and at imported modules never.
gc.freeze()
gc.set_threshold(20_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts slow tests first, so that no process is left with one when the others have ended."""
    items.sort(key=lambda item: item.get_closest_marker('slow') is None)
