"""How pods reach each other: in the open, at their own ports, or by mutual TLS only.

    pod of the trainer                                   pod of worker 1
    trainer -- 127.0.0.1:2224 -- stunnel == network == :2222 stunnel -- 127.0.0.1:2226 -- worker

The containers of a pod share its loopback, and nobody else reaches it. Every pod reaches all
processes there, at the places that link_settings.py gives them. A StatefulSet has one template, so
all workers have the same settings and listen at the same port, after the places.

stunnel is an init container that runs on, which Kubernetes starts before the others and ends after
them (since 1.29). As an extra container it would keep the trainer's Job from ending, and would end
at SIGTERM, when the trainer still has to save what workers hold.

The obvious way is a service mesh such as Istio or Linkerd. Those must be installed for the whole
cluster, by its administrators.
"""
from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import tempfile
from typing import Any

from lingpipe.cluster import user_filter
from lingpipe.tools import link_keys, link_settings
from lingpipe.tools.link_settings import Loopback

WORKER, TRAINER = 'worker', 'trainer'   # the names that certificates have, one a role
DEFAULT_USER = 1000
_MOST_BYTES = 1 << 20   # of a ConfigMap
_LINKS, _TMP = '/links', '/tmp'   # folders in containers

_HEAD = '# Written by lingpipe.tools.launch_kubernetes. Whoever reads it can join the job.\n'
_SECRET = '''apiVersion: v1
kind: Secret
metadata:
  name: {name}-links-{role}
  labels: {labels}
immutable: true
stringData: {files}
'''
_CONFIG_MAP = '''apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}-links
  labels: {labels}
data: {files}
---
'''

# What a container may do: no more than Kubernetes' policy "restricted" lets it. It can write to
# its volumes only.
_CONFINED = {'allowPrivilegeEscalation': False, 'readOnlyRootFilesystem': True,
             'capabilities': {'drop': ['ALL']}}

# A pod has a network of its own, which only its containers use.
_LETS_IN = {'name': user_filter.LET_IN, 'value': 'all'}

Parts = dict[str, Any]   # of an object of Kubernetes, by name

_PAIR = re.compile(r'\\u(d[89ab]..)\\u(d[c-f]..)')   # A character beyond U+FFFF in JSON.


def as_yaml(value: Any) -> str:
    """The value as JSON, which is YAML too, but for characters beyond U+FFFF."""
    def character(pair: re.Match[str]) -> str:
        high, low = int(pair[1], 16) - 0xd800, int(pair[2], 16) - 0xdc00
        return f'\\U{0x10000 + (high << 10) + low:08x}'

    return _PAIR.sub(character, json.dumps(value))


@dataclasses.dataclass(frozen=True)
class OpenPorts:
    """Pods reach each other at the ports of TensorFlow's servers.

    Attributes:
      name: of all objects.
      num_workers: how many pods of workers there are, besides the trainer's.
      port: of the workers; the trainer takes the next one.
    """
    name: str
    num_workers: int
    port: int

    @property
    def own_address(self) -> str:
        """The address at which each worker listens in its own pod."""
        return f'0.0.0.0:{self.port}'

    @property
    def workers(self) -> str:
        """The addresses of all workers, as the trainer's --devices takes them."""
        return ','.join(f'{self.name}-{i}.{self.name}:{self.port}' for i in range(self.num_workers))

    @property
    def trainer(self) -> str:
        """The address of the trainer."""
        return f'$(POD_IP):{self.port + 1}'

    @property
    def open_ports(self) -> list[int]:
        """The ports that other pods of the job may connect to."""
        return [self.port, self.port + 1]

    @property
    def named_pods(self) -> Parts:
        """The labels of the pods that have names in the network."""
        return {'app': self.name, 'role': WORKER}

    @property
    def config_map(self) -> str:
        """An object beside the pods, as YAML: none."""
        return ''

    def of_pod(self, role: str) -> Parts:
        """Returns parts of the spec of a role's pods: none."""
        return {}

    def of_container(self, role: str) -> Parts:
        """Returns parts of the container of a role."""
        is_trainer = role == TRAINER
        ports = [{'name': 'grpc', 'containerPort': self.port + is_trainer}]
        pod_ip = {'name': 'POD_IP', 'valueFrom': {'fieldRef': {'fieldPath': 'status.podIP'}}}
        return {'ports': ports, 'env': [_LETS_IN, pod_ip]}

    def mounts(self) -> list[Parts]:
        """Returns what each container mounts: nothing."""
        return []

    def volumes(self, role: str) -> list[Parts]:
        """Returns the volumes of a role's pods: none."""
        return []


@dataclasses.dataclass(frozen=True)
class PodLinks:
    """The links of a job's pods.

    Attributes:
      name: of all objects.
      num_workers: how many pods of workers there are, besides the trainer's.
      port: at which every stunnel listens in the network.
      image: has the command stunnel.
      user: the id of the user of all processes.

    Raises:
      ValueError: the port is root's, there are too few ports, or more workers than a ConfigMap
        has room for.
    """
    name: str
    num_workers: int
    port: int
    image: str
    user: int = DEFAULT_USER

    def __post_init__(self) -> None:
        if self.port < 1024:
            raise ValueError(f'--port={self.port} with --secure_links is one of those below 1024, '
                             'which only root may listen at; choose another.')
        if self.loopback.last_port + 1 > 65535:
            raise ValueError(f'--secure_links of {self.num_workers} workers need as many ports and '
                             f'three more, and ports end at 65535; choose a smaller one than '
                             f'--port={self.port}.')
        num_bytes = len(self.config_map)
        if num_bytes > _MOST_BYTES:
            raise ValueError(f'--secure_links of {self.num_workers} workers need {num_bytes} bytes '
                             f'of settings, and a ConfigMap holds {_MOST_BYTES}; use fewer '
                             'workers.')

    @property
    def loopback(self) -> Loopback:
        """The addresses of workers and trainer in every pod."""
        return Loopback(self.num_workers, self.port + 1)

    @property
    def own_address(self) -> str:
        """The address at which each worker listens in its own pod."""
        return self.loopback.address(self.num_workers + 1)

    @property
    def workers(self) -> str:
        """The addresses of all workers, as the trainer's --devices takes them."""
        return self.loopback.workers

    @property
    def trainer(self) -> str:
        """The address of the trainer."""
        return self.loopback.trainer

    @property
    def open_ports(self) -> list[int]:
        """The ports that other pods of the job may connect to."""
        return [self.port]

    @property
    def named_pods(self) -> Parts:
        """The labels of the pods that have names in the network."""
        return {'app': self.name}

    def host(self, place: int) -> str:
        """Returns the name of the pod of worker number `place`, or the trainer's after the last."""
        pod = TRAINER if place == self.num_workers else f'{self.name}-{place}'
        return f'{pod}.{self.name}'

    def settings(self, role: str) -> str:
        """Returns what stunnel is told in the pods of a role."""
        is_trainer = role == TRAINER
        listens_at = self.loopback.trainer if is_trainer else self.own_address
        parts = [link_settings.BOTH_ENDS,
                 link_settings.inward('here', f'0.0.0.0:{self.port}', listens_at)]
        for place in range(self.num_workers + (not is_trainer)):
            owner = TRAINER if place == self.num_workers else WORKER
            parts += [f'[to-{place}]\naccept = {self.loopback.address(place)}\n',
                      link_settings.outward(f'{self.host(place)}:{self.port}', owner),
                      'delay = yes\n']   # A pod that starts again has another address.
        return ''.join(parts)

    @property
    def config_map(self) -> str:
        """The ConfigMap with the settings of both roles, as YAML."""
        files = {f'{role}.conf': self.settings(role) for role in (WORKER, TRAINER)}
        labels = {'app': self.name}
        return _CONFIG_MAP.format(name=self.name, labels=as_yaml(labels), files=as_yaml(files))

    def of_pod(self, role: str) -> Parts:
        """Returns parts of the spec of a role's pods."""
        identity = {'hostname': TRAINER, 'subdomain': self.name} if role == TRAINER else {}
        return {**identity,
                'securityContext': {'runAsNonRoot': True, 'runAsUser': self.user,
                                    'runAsGroup': self.user, 'fsGroup': self.user,
                                    'seccompProfile': {'type': 'RuntimeDefault'}},
                'initContainers': [self._sidecar()]}

    def _sidecar(self) -> Parts:
        """Returns the container that runs stunnel."""
        return {'name': 'links', 'image': self.image, 'restartPolicy': 'Always',
                'command': ['stunnel', 'stunnel.conf'], 'workingDir': _LINKS,
                'ports': [{'name': 'tls', 'containerPort': self.port}],
                'securityContext': _CONFINED,
                'volumeMounts': [{'name': 'links', 'mountPath': _LINKS, 'readOnly': True}]}

    def of_container(self, role: str) -> Parts:
        """Returns parts of the container of a role."""
        return {'securityContext': _CONFINED, 'env': [_LETS_IN, {'name': 'HOME', 'value': _TMP}]}

    def mounts(self) -> list[Parts]:
        """Returns what each container mounts."""
        return [{'name': 'tmp', 'mountPath': _TMP}]

    def volumes(self, role: str) -> list[Parts]:
        """Returns the volumes of a role's pods: what stunnel reads, and temporary files."""
        sources = [{'secret': {'name': f'{self.name}-links-{role}'}},
                   {'configMap': {'name': f'{self.name}-links',
                                  'items': [{'key': f'{role}.conf', 'path': 'stunnel.conf'}]}}]
        return [{'name': 'links', 'projected': {'defaultMode': 0o440, 'sources': sources}},
                {'name': 'tmp', 'emptyDir': {}}]


def new_secrets(name: str, days: int = link_keys.DAYS) -> str:
    """Makes keys, and returns the Secrets of both roles as YAML; each has its own key only.

    Args:
      name: of the job's objects.
      days: how long the certificates are valid.

    Raises:
      OSError: openssl is missing or fails.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        link_keys.make((WORKER, TRAINER), folder, days)
        texts = [_SECRET.format(name=name, labels=as_yaml({'app': name}), role=role,
                                files=as_yaml(_files(folder / role)))
                 for role in (WORKER, TRAINER)]
    return _HEAD + '---\n'.join(texts)


def _files(folder: pathlib.Path) -> dict[str, str]:
    """Returns the text of each file of a folder."""
    return {path.name: path.read_text(encoding='utf-8') for path in sorted(folder.iterdir())}


def write_secrets(name: str, path: pathlib.Path) -> None:
    """Writes Secrets with new keys to a file that only this user can read.

    Raises:
      OSError: the file is there already, or openssl is missing or fails.
    """
    if path.exists():
        raise OSError(f'{path} is there already, and keys are never replaced; remove it, or name '
                      'another --secure_links.')
    text = new_secrets(name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    link_keys.write(path, text)
