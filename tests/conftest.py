"""Settings of all tests, made before TensorFlow starts: four logical CPU devices, one thread an op, quiet."""
import gc
import os

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

import pytest

from lingpipe import cluster

cluster.configure(num_cpu_devices=4)
cluster.set_graph_optimizer(False)

# A traced step is a great many objects that live long: the collector looks at them seldom, and at what is imported never.
gc.freeze()
gc.set_threshold(20_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests come first, or one process would still run them when the others have ended."""
    items.sort(key=lambda item: item.get_closest_marker('slow') is None)
