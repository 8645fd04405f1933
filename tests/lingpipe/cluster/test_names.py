"""Machines are known by the names that the system knows, also where no DNS server answers."""
from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.support.forks import environment

UNSHARE = ['unshare', '--user', '--map-root-user', '--net', '--mount', '--fork', '--kill-child']

# A network of its own, whose DNS server says nothing. Only /etc/hosts knows the worker's name.
SCRIPT = '''
set -e
ip link set lo up
printf '127.0.0.1 localhost\\n127.0.0.3 node-a\\n' > {folder}/hosts
echo 'nameserver 127.0.0.2' > {folder}/resolv.conf
mount --bind {folder}/hosts /etc/hosts
[ ! -e /etc/resolv.conf ] || mount --bind {folder}/resolv.conf /etc/resolv.conf
exec {python} -c '
import os, signal, socket
dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
dns.bind(("127.0.0.2", 53))
import tensorflow as tf
from lingpipe.cluster import server
from lingpipe.cluster.client import Connection
from tests.support import local_workers
worker = os.fork()   # A local_workers.Worker would import TensorFlow once more.
if not worker:
    local_workers.serve("node-a:2222", "cpu:1", hangs_after_s=60.)
try:
    local_workers.wait_until(lambda: server.answers("node-a", 2222, 1.))
    Connection(["node-a:2222"], wait_s=30.)
    with tf.device("/job:worker/task:0/device:CPU:0"):
        print("it is", (tf.constant(20) + 1).numpy())
finally:
    os.kill(worker, signal.SIGKILL)
'
'''


def can_unshare():
    return (shutil.which('unshare') is not None and shutil.which('ip') is not None
            and not subprocess.run([*UNSHARE, 'ip', 'link', 'set', 'lo', 'up'], check=False,
                                   capture_output=True).returncode)


@pytest.mark.skipif(not can_unshare(), reason='needs ip and namespaces of its own')
def test_a_worker_is_reached_by_a_name_that_only_the_hosts_file_has(tmp_path: pathlib.Path):
    script = SCRIPT.format(folder=tmp_path, python=sys.executable)
    done = subprocess.run([*UNSHARE, 'bash', '-c', script], capture_output=True, text=True,
                          env=environment(), timeout=120, check=False)
    assert 'it is 21' in done.stdout, done.stderr[-2000:]
