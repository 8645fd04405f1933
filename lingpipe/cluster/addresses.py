"""Addresses of the workers, from whatever starts processes: TF_CONFIG, Slurm or Kubernetes.

    TF_CONFIG                  the environment variable TF_CONFIG: its cluster's job 'worker'
    slurm, slurm:PORT          the tasks of this job step except the first, which is the controller;
                               on each node, ports are counted from PORT (2222)
    kubernetes:LABEL[:PORT]    the pods with a label, such as app=lingpipe, sorted by address;
                               PORT is 2222 by default

TensorFlow's cluster resolvers do the work.
"""
from __future__ import annotations

import json
import os
import re

import tensorflow as tf

SOURCES = re.compile(r'(TF_CONFIG)|(slurm)(?::(\d+))?|(kubernetes):([^:]+)(?::(\d+))?')
DEFAULT_PORT = 2222


def workers_of(source: str) -> list[str]:
    """Returns 'host:port' of all workers, in the order of their tasks.

    Args:
      source: one of the texts at the top of this file.

    Raises:
      ValueError: the source is not set here, or names no worker.
    """
    resolver = _resolver(source)
    try:
        cluster = resolver.cluster_spec().as_dict()
    except Exception as error:   # resolvers raise errors of subprocesses, HTTP errors and KeyError
        raise ValueError(f'--devices={source} cannot be asked for workers: '
                         f'{type(error).__name__}: {error}; name them host:port, with '
                         'commas.') from error

    workers = [address for address in cluster.get('worker', []) if address]
    if not workers:
        raise ValueError(f"--devices={source} names no worker; its cluster has "
                         f"{', '.join(cluster) or 'no job'}, and needs a job 'worker'.")
    return sorted(workers) if source.startswith('kubernetes') else workers


def own_address(source: str) -> str:
    """Returns 'host:port' of this process, which TF_CONFIG or Slurm has made a worker.

    The process may be the controller too; its port 0 stands for any port.

    Raises:
      ValueError: the source does not say which worker this process is.
    """
    resolver = _resolver(source)
    cluster = resolver.cluster_spec()
    job = resolver.task_type
    task = resolver.task_id
    if source.startswith('kubernetes') or job is None or task is None:
        raise ValueError(f'--address={source} does not say which worker this is; write host:port.')
    try:
        return str(cluster.task_address(job, task))
    except ValueError as error:
        raise ValueError(f'{source} calls this process task {task} of job {job!r}, which its '
                         'cluster does not have; correct it, or write host:port.') from error


def _resolver(source: str) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Returns TensorFlow's resolver for a source of addresses, as `SOURCES` spells it."""
    match = SOURCES.fullmatch(source)
    assert match, source
    try:
        if match[1]:
            resolver = _resolver_of_tf_config()
            resolver.cluster_spec()   # It raises what is wrong with the text.
            return resolver
        if match[2]:
            return _resolver_of_slurm(int(match[3] or DEFAULT_PORT))
        return tf.distribute.cluster_resolver.KubernetesClusterResolver(
            {'worker': [match[5]]}, int(match[6] or DEFAULT_PORT))
    except Exception as error:
        raise ValueError(f'{source} cannot be used: {error}; name workers as host:port, with '
                         'commas.') from error


def _resolver_of_tf_config() -> tf.distribute.cluster_resolver.ClusterResolver:
    config = json.loads(os.environ.get('TF_CONFIG', '{}'))
    if not isinstance(config, dict) or 'cluster' not in config:
        raise ValueError('the environment variable TF_CONFIG is not set, or has no "cluster"')
    if not isinstance(config.get('task') or {}, dict):
        raise ValueError('its "task" must be as {"type": "worker", "index": 0}')
    return tf.distribute.cluster_resolver.TFConfigClusterResolver()


def _resolver_of_slurm(port: int) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Returns the resolver of a job step: the first task is the trainer, the others are workers."""
    environ = os.environ
    num_tasks = int(environ.get('SLURM_STEP_NUM_TASKS') or environ.get('SLURM_NTASKS') or 0)
    if num_tasks < 2:
        raise ValueError('this process is not in a job step of Slurm with two or more tasks')

    # Without a number of GPUs the resolver asks nvidia-smi, and it fails if there are none.
    return tf.distribute.cluster_resolver.SlurmClusterResolver(
        {'controller': 1, 'worker': num_tasks - 1}, port_base=port, gpus_per_node=num_tasks,
        gpus_per_task=1, auto_set_gpu=False)
