"""Settings of all tests, made before TensorFlow starts: four logical CPU devices, one thread an op, quiet."""
import os

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

from lingpipe import cluster  # noqa: E402

cluster.configure(num_cpu_devices=4)
cluster.set_graph_optimizer(False)
