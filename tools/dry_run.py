"""Dry run: the commands of a job that a launcher has written, run here for two steps.

Workers are on ports of 127.0.0.1, and have CPU devices in place of accelerators. The logdir is a
temporary folder. What a cluster would refuse after hours in a queue (a flag, a partition, an
experiment that is not installed) is refused here.
"""
from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable

from lingpipe.tools import launch_local

MOST_WORKERS = 8   # each is a process that imports TensorFlow
STEPS = 2

# Programs that stand for those of Slurm. {python} puts addresses of this machine in place of nodes.
_SRUN = '''#!/bin/bash
while [ "$1" != bash ]; do shift; done
for node in {nodes}; do SLURMD_NODENAME=$node "$@" & done
wait
'''
_SCONTROL = '''#!/bin/bash
if [ "$1" = show ]; then printf '%s\\n' {nodes}; fi
'''
_PYTHON = '''#!/bin/bash
flags=()
for flag in "$@"; do
{replacements}
  flags+=("$flag")
done
exec {python} "${{flags[@]}}"
'''


def check(num_workers: int) -> None:
    """Raises ValueError if one machine cannot run so many workers."""
    if num_workers > MOST_WORKERS:
        raise ValueError(f'--dry_run starts {num_workers} workers on this machine, which may have '
                         f'{MOST_WORKERS}; write a job for fewer, with as many cells.')


def trainer_flags(logdir: str) -> list[str]:
    """Returns the flags of the trainer that a dry run changes; they go after the user's."""
    return [f'--logdir={logdir}', f'--steps={STEPS}']


def devices(worker_devices: str, num_accelerators: int) -> str:
    """Returns --worker_devices for CPUs, one for each accelerator of a worker."""
    if worker_devices.lower().startswith('cpu'):
        return worker_devices
    return f'cpu:{max(1, num_accelerators)}'


def kubernetes(text: str, name: str, num_workers: int, port: int) -> int:
    """Runs the commands of a manifest until its trainer ends.

    Args:
      text: the manifest, as launch_kubernetes writes it.
      name: of its objects.
      num_workers: how many pods of workers it has.
      port: of the workers; the trainer has the next one.

    Returns:
      The trainer's exit code.
    """
    worker, trainer = (json.loads(command)[3:] for command in re.findall(r' command: (.*)', text))
    addresses = launch_local.free_addresses(num_workers + 1)
    hosts = [*(f'{name}-{i}.{name}:{port}' for i in range(num_workers)), f'$(POD_IP):{port + 1}']

    def here(flags: list[str]) -> list[str]:
        """Returns flags with addresses of this machine, and without Kubernetes' escapes."""
        for host, address in zip(hosts, addresses, strict=True):
            flags = [flag.replace(host, address) for flag in flags]
        return [flag.replace('$$', '$') for flag in flags]

    processes = []
    try:
        for address in addresses[:-1]:
            flags = [flag.replace(f'0.0.0.0:{port}', address) for flag in here(worker)]
            processes.append(launch_local.start(flags, signal.SIGKILL))
        processes.append(launch_local.start(here(trainer), signal.SIGTERM))
        return processes[-1].wait()
    finally:
        for process in processes:
            process.kill()
            process.wait()


def slurm(text: Callable[[str], str], num_nodes: int, port: int) -> int:
    """Runs a batch script, with programs that stand for those of Slurm, until it ends.

    Args:
      text: returns the script, as launch_slurm writes it, for the path of a Python.
      num_nodes: how many nodes it asks for.
      port: of the workers; the trainer has the next one.

    Returns:
      The script's exit code.
    """
    nodes = [f'node{i}' for i in range(num_nodes)]
    hosts = [*(f'{node}:{port}' for node in nodes), f'{nodes[0]}:{port + 1}']
    replacements = '\n'.join(
        f"  flag=${{flag//{host}/{address}}}"
        for host, address in zip(hosts, launch_local.free_addresses(len(hosts)), strict=True))

    with tempfile.TemporaryDirectory() as folder:
        python = os.path.join(folder, 'python')
        programs = {
            'srun': _SRUN.format(nodes=' '.join(nodes)),
            'scontrol': _SCONTROL.format(nodes=' '.join(nodes)),
            'python': _PYTHON.format(replacements=replacements,
                                     python=shlex.quote(sys.executable)),
            'job': text(python)}
        for program, body in programs.items():
            path = os.path.join(folder, program)
            with open(path, 'w', encoding='utf-8') as file:
                file.write(body)
            os.chmod(path, 0o755)

        environment = {**os.environ, 'PATH': f'{folder}:{os.environ["PATH"]}',
                       'SLURM_JOB_NODELIST': f'node[0-{num_nodes - 1}]',
                       'SLURMD_NODENAME': nodes[0], 'SLURM_JOB_ID': '0'}
        process = subprocess.Popen(['bash', os.path.join(folder, 'job')], env=environment,
                                   start_new_session=True)
        try:
            return process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)   # the loops of workers never end
            process.wait()
