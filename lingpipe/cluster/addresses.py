"""Addresses of the workers, from whatever starts processes: TF_CONFIG, Slurm or Kubernetes, by TensorFlow's cluster resolvers.

    TF_CONFIG                    the environment variable TF_CONFIG: its cluster's job 'worker'
    slurm, slurm:PORT            the tasks of this job step but the first, which is the controller; ports from PORT (2222) on, on each node
    kubernetes:LABEL[:PORT]      the pods with a label, as app=lingpipe, by address; PORT is 2222
"""
from __future__ import annotations

import json
import os
import re

import tensorflow as tf

SOURCES = re.compile(r'(TF_CONFIG)|(slurm)(?::(\d+))?|(kubernetes):([^:]+)(?::(\d+))?')
DEFAULT_PORT = 2222


def workers_of(source: str) -> list[str]:
    """'host:port' of all workers, in the order of their tasks; what `source` says is at the top of this file.

    Raises:
      ValueError: it is not set here, or names no worker.
    """
    resolver = _resolver(source)
    try:
        spec = resolver.cluster_spec().as_dict()
    except Exception as error:   # whatever the resolver meets: subprocesses, HTTP, KeyError
        raise ValueError(f'--devices={source} cannot be asked for workers: {type(error).__name__}: {error}; name them host:port, with '
                         f'commas.') from error
    found = [address for address in spec.get('worker', []) if address]
    if not found:
        raise ValueError(f"--devices={source} names no worker; its cluster has {', '.join(spec) or 'no job'}, and needs a job 'worker'.")
    return sorted(found) if source.startswith('kubernetes') else found


def own_address(source: str) -> str:
    """'host:port' of this process, which TF_CONFIG or Slurm have made a worker (or the controller, for which port 0 means any).

    Raises:
      ValueError: the source does not say which one it is.
    """
    resolver = _resolver(source)
    spec = resolver.cluster_spec()
    kind, index = resolver.task_type, resolver.task_id
    if source.startswith('kubernetes') or kind is None or index is None:
        raise ValueError(f'--address={source} does not say which worker this is; write host:port.')
    return str(spec.task_address(kind, index))


def _resolver(source: str) -> tf.distribute.cluster_resolver.ClusterResolver:
    match = SOURCES.fullmatch(source)
    assert match, source
    try:
        if match[1]:
            if 'cluster' not in json.loads(os.environ.get('TF_CONFIG', '{}')):
                raise ValueError('the environment variable TF_CONFIG is not set, or has no "cluster"')
            return tf.distribute.cluster_resolver.TFConfigClusterResolver()
        if match[2]:
            num_tasks = int(os.environ.get('SLURM_STEP_NUM_TASKS') or os.environ.get('SLURM_NTASKS') or 0)
            if num_tasks < 2:
                raise ValueError('this process is not in a job step of Slurm with two or more tasks')
            return tf.distribute.cluster_resolver.SlurmClusterResolver(   # told of a GPU a task, or it asks nvidia-smi and fails at 0
                {'controller': 1, 'worker': num_tasks - 1}, port_base=int(match[3] or DEFAULT_PORT), gpus_per_node=num_tasks,
                gpus_per_task=1, auto_set_gpu=False)
        return tf.distribute.cluster_resolver.KubernetesClusterResolver({'worker': [match[5]]}, int(match[6] or DEFAULT_PORT))
    except Exception as error:
        raise ValueError(f'{source} cannot be used: {error}; name workers as host:port, with commas.') from error
