"""Settings of all tests, made before TensorFlow starts: four logical CPU devices, one thread an op, quiet."""
import gc
import os
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))   # of forks.py

from lingpipe import cluster  # noqa: E402

cluster.configure(num_cpu_devices=4)
cluster.set_graph_optimizer(False)

# A traced step is a great many objects that live long: the collector looks at them seldom, and at what is imported never.
gc.freeze()
gc.set_threshold(20_000, 20, 20)
