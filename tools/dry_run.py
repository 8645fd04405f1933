"""Dry run: the commands of a job that a launcher has written, run here for two steps.

Workers are on ports of 127.0.0.1, and have CPU devices in place of accelerators. The logdir is a
temporary folder. What a cluster would refuse after hours in a queue (a flag, a partition, an
experiment that is not installed) is refused here. Pods with links have networks of their own, since
each has the same ports on its loopback.
"""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from lingpipe.cluster import server
from lingpipe.tools import launch_local, link_keys
from lingpipe.tools.faults.network import Network, missing
from lingpipe.wording.counts import counted

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
        raise ValueError(f'--dry_run starts {counted(num_workers, "worker")} on this machine, '
                         f'which may have {MOST_WORKERS}; write a job for fewer, with as many '
                         'cells.')


def trainer_flags(logdir: str) -> list[str]:
    """Returns the flags of the trainer that a dry run changes; they go after the user's."""
    return [f'--logdir={logdir}', f'--steps={STEPS}']


def devices(worker_devices: str, num_accelerators: int) -> str:
    """Returns --worker_devices for CPUs, one for each accelerator that a worker uses.

    Args:
      worker_devices: which these are; those of gpu and '' are all that the job asks for.
      num_accelerators: that the job asks for, for each worker.
    """
    if worker_devices.lower().startswith('cpu'):
        return worker_devices
    named = server.session_config(worker_devices).gpu_options.visible_device_list
    return f'cpu:{len(named.split(",")) if named else max(1, num_accelerators)}'


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
    worker, trainer = _trainer_flags(text)
    addresses = launch_local.free_addresses(num_workers + 1)
    hosts = [*(f'{name}-{i}.{name}:{port}' for i in range(num_workers)), f'$(POD_IP):{port + 1}']

    def here(flags: list[str]) -> list[str]:
        """Returns flags with addresses of this machine, and without Kubernetes' escapes."""
        for host, address in zip(hosts, addresses, strict=True):
            flags = [flag.replace(host, address) for flag in flags]
        return flags

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


def _trainer_flags(text: str) -> Iterator[list[str]]:
    """Yields the flags of workers and of the trainer in a manifest, without Kubernetes' escapes."""
    for command in re.findall(r'^ +command: (.*)', text, re.MULTILINE):
        yield [flag.replace('$$', '$') for flag in json.loads(command)[3:]]


def kubernetes_with_links(text: str, secrets: str, name: str, num_workers: int) -> int:
    """Runs the commands of a manifest with links until its trainer ends.

    Args:
      text: the manifest, as launch_kubernetes writes it.
      secrets: the Secrets that go with it.
      name: of its objects.
      num_workers: how many pods of workers it has.

    Returns:
      The trainer's exit code.

    Raises:
      OSError: this machine cannot give each pod a network of its own.
    """
    worker, trainer = _trainer_flags(text)
    processes = []
    with linked_pods(text, secrets, name, num_workers) as network:
        try:
            for i in range(num_workers):
                processes.append(launch_local.start(worker, signal.SIGKILL,
                                                    prefix=network.prefix(i)))
            processes.append(launch_local.start(trainer, signal.SIGTERM,
                                                prefix=network.prefix(num_workers)))
            return processes[-1].wait()
        finally:
            for process in processes:
                process.kill()
                process.wait()


@contextlib.contextmanager
def linked_pods(text: str, secrets: str, name: str, num_workers: int) -> Iterator[Network]:
    """Runs the sidecars of a manifest, each in a network of its own; the trainer's is the last.

    Arguments and errors are those of `kubernetes_with_links`.
    """
    why_not = missing() or link_keys.missing('stunnel')
    if why_not:
        raise OSError(f'--dry_run gives each pod with --secure_links a network of its own, and '
                      f'{why_not}; run it without --secure_links, or elsewhere.')
    settings = json.loads(re.findall(r'^data: (.*)', text, re.MULTILINE)[0])
    keys = [json.loads(files) for files in re.findall(r'^stringData: (.*)', secrets, re.MULTILINE)]
    sidecars = [json.loads(parts)[0]['command']
                for parts in re.findall(r'^ +initContainers: (.*)', text, re.MULTILINE)]
    roles = [0] * num_workers + [1]
    hosts = [*(f'{name}-{i}.{name}' for i in range(num_workers)), f'trainer.{name}']

    parent = os.getpid()
    with contextlib.ExitStack() as stack:
        network = Network(len(roles), seed=0)
        stack.callback(network.close)
        for i, role in enumerate(roles):
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            conf = list(settings.values())[role]
            for j, host in enumerate(hosts):
                conf = conf.replace(f' {host}:', f' {network.host(j)}:')
            for file, content in {**keys[role], 'stunnel.conf': conf}.items():
                link_keys.write(folder / file, content)
            stunnel = subprocess.Popen(
                [*network.prefix(i), *sidecars[role]], cwd=folder,
                preexec_fn=lambda: server.end_with_parent(parent, signal.SIGKILL))
            stack.callback(stunnel.wait)
            stack.callback(stunnel.kill)
        yield network


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
