"""Worker pods of Kubernetes: what each asks for, and on which nodes it may run."""
from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping

# Names follow RFC 1035 and RFC 1123, as https://kubernetes.io/docs/concepts/overview says under
# "Object Names and IDs" and "Labels and Selectors".
LABEL = r'[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?'
SUBDOMAIN = rf'(?=.{{1,253}}$){LABEL}(\.{LABEL})*'
_WORD = r'[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?'
_KEY = rf'([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_WORD}'
_RESOURCE = rf'[a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/{_WORD}'
_QUANTITY = r'(?=.*[1-9])[0-9]{1,12}(\.[0-9]{1,9})?(m|k|Ki|[MGTPE]i?)?'   # more than 0
_TOPOLOGY = r'[1-9][0-9]{0,2}(x[1-9][0-9]{0,2}){1,2}'

# Without these folders of an image no program runs, or every container has its own.
SYSTEM_FOLDERS = ('bin', 'dev', 'etc', 'lib', 'lib64', 'proc', 'sbin', 'sys', 'tmp', 'usr')

_TPU = 'google.com/tpu'
_GKE = 'cloud.google.com/gke-tpu'


@dataclasses.dataclass(frozen=True)
class WorkerPod:
    """What the pod of each worker asks for.

    Attributes:
      cpu: the processors, as 8 or 500m; '' asks for none.
      memory: as 32Gi; '' asks for none.
      gpus: how many GPUs.
      gpu_resource: what the cluster calls a GPU: nvidia.com/gpu, amd.com/gpu or the name of a
        partition, as nvidia.com/mig-1g.10gb.
      tpus: how many TPU chips. Google's clusters give a pod all chips of its host.
      tpu_type: the label of the TPU's kind, as tpu-v5-lite-podslice.
      tpu_topology: how the chips of the slice are connected, as 2x4.
      node_selector: labels that a node must have.
      tolerations: keys of taints that a node may have.

    Raises:
      ValueError: Kubernetes would refuse an amount or a name.
    """
    cpu: str = ''
    memory: str = ''
    gpus: int = 0
    gpu_resource: str = 'nvidia.com/gpu'
    tpus: int = 0
    tpu_type: str = ''
    tpu_topology: str = ''
    node_selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tolerations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for flag, amount in (('cpu', self.cpu), ('memory', self.memory)):
            if amount and not re.fullmatch(_QUANTITY, amount):
                raise ValueError(f'--{flag}={amount!r} is no amount above 0; write --cpu=8 or '
                                 '--cpu=500m, --memory=32Gi.')
        if not re.fullmatch(_RESOURCE, self.gpu_resource):
            raise ValueError(f'--gpu_resource={self.gpu_resource!r} is no name of a resource; '
                             'write it as nvidia.com/gpu.')
        for key, value in self.node_selector.items():
            if not re.fullmatch(_KEY, key) or not re.fullmatch(f'({_WORD})?', value):
                raise ValueError(f"--node_selector={f'{key}={value}'!r} is no label of a node; "
                                 'write KEY=VALUE, as disk=ssd.')
        for key in self.tolerations:
            if not re.fullmatch(_KEY, key):
                raise ValueError(f'--toleration={key!r} is no key of a taint; write it as '
                                 'nvidia.com/gpu.')
        self._check_tpus()

    def _check_tpus(self) -> None:
        """Raises ValueError for TPUs that no node of a cluster has."""
        if self.tpus and self.gpus:
            raise ValueError(f'--gpus={self.gpus} and --tpus={self.tpus} are of one pod, and no '
                             'node has both; leave one out.')
        for flag, value in (('tpu_type', self.tpu_type), ('tpu_topology', self.tpu_topology)):
            if bool(value) != bool(self.tpus):
                raise ValueError(f'--tpus={self.tpus} with --{flag}={value!r}; TPUs need --tpus, '
                                 '--tpu_type and --tpu_topology, as 4, tpu-v5-lite-podslice and '
                                 '2x4.')
        if self.tpu_topology and not re.fullmatch(_TOPOLOGY, self.tpu_topology):
            raise ValueError(f'--tpu_topology={self.tpu_topology!r} is no topology; write it as '
                             '2x4 or 4x4x4.')
        if self.tpu_type and not re.fullmatch(_WORD, self.tpu_type):
            raise ValueError(f'--tpu_type={self.tpu_type!r} is no kind of TPU; write it as '
                             'tpu-v5-lite-podslice.')

    def check_slice(self, workers: int) -> None:
        """Raises ValueError if so many pods are not all hosts of a slice of TPUs.

        A pod may also have a whole slice for itself.
        """
        num_chips = math.prod(map(int, self.tpu_topology.split('x'))) if self.tpus else 0
        if num_chips in (self.tpus, workers * self.tpus):
            return
        remedy = (f'--workers={num_chips // self.tpus}' if num_chips % self.tpus == 0 else
                  f'--tpus that divide {num_chips}')
        raise ValueError(f'--workers={workers} with --tpus={self.tpus} are {workers * self.tpus} '
                         f'chips, and --tpu_topology={self.tpu_topology} has {num_chips}; workers '
                         f'must be all hosts of one slice: use {remedy}, or another topology.')

    @property
    def limits(self) -> dict[str, str]:
        """What the container may use, and asks for: resource -> amount."""
        amounts = {'cpu': self.cpu, 'memory': self.memory,
                   self.gpu_resource: str(self.gpus or ''), _TPU: str(self.tpus or '')}
        return {resource: amount for resource, amount in amounts.items() if amount}

    @property
    def labels_of_nodes(self) -> dict[str, str]:
        """The labels that a node must have for this pod."""
        of_tpus = {f'{_GKE}-accelerator': self.tpu_type, f'{_GKE}-topology': self.tpu_topology}
        return {**(of_tpus if self.tpus else {}), **self.node_selector}

    @property
    def tolerated(self) -> list[dict[str, str]]:
        """The taints of nodes that keep this pod out no longer."""
        return [{'key': key, 'operator': 'Exists'} for key in self.tolerations]
