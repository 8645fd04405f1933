"""What a controller may take for done on a worker."""
from __future__ import annotations

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import local_workers  # noqa: E402

# A step is one call, and overtakes hundreds of single reads that were called before it, unless it waits for them.
CODE = """
import sys
import numpy as np
import tensorflow as tf
from lingpipe import cluster
from lingpipe.checkpoint import Checkpointer
from lingpipe.cluster.workers import Connection

cluster.configure()
Connection([sys.argv[1]])
device = '/job:worker/replica:0/task:0/device:CPU:0'
with tf.device(device):
    variables = {f'v{i}': tf.Variable(tf.zeros([1000])) for i in range(600)}


def body():
    with tf.device(device):
        added = [tf.raw_ops.AssignAddVariableOp(resource=variable.handle, value=tf.ones([1000])) for variable in variables.values()]
    with tf.control_dependencies(added):
        return tf.constant(1)


step = tf.compat.v1.wrap_function(body, [])
step()
checkpointer = Checkpointer(sys.argv[2], keep=9)
for number in range(1, 5):
    checkpointer.begin(number, variables)
    step()
    checkpointer.wait()
    reader = tf.train.load_checkpoint(f'{sys.argv[2]}/step-{number:08d}/variables')
    found = {float(np.max(reader.get_tensor(name))) for name in reader.get_variable_to_shape_map() if name.startswith('variables/')}
    assert found == {float(number)}, found
checkpointer.restore(variables, 1)
step()
assert {float(np.max(value.numpy())) for value in variables.values()} == {2.}
"""


def test_checkpoint_holds_one_step_though_the_next_is_called_at_once(tmp_path):
    with local_workers.workers(1, hangs_after_s=60.) as (worker,):
        worker.wait()
        done = subprocess.run([sys.executable, '-c', CODE, worker.address, str(tmp_path / 'checkpoints')], env=local_workers.environment(),
                              capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
