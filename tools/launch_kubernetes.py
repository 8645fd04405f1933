"""Writes a file for Kubernetes: workers, the trainer, and a policy that protects their ports.

    python -m lingpipe.tools.launch_kubernetes --workers=4 --image=registry/lingpipe:1 \\
        --claim=training --output=job.yaml \\
        -- --model=image.digits.AmoebaNet --logdir=/training/digits
    kubectl apply -f job.yaml

With --dry_run the commands of that file run here for two steps, on CPU devices, before the cluster
sees them.

The workers are a StatefulSet with its headless Service, the trainer is a Job. Workers do not end by
themselves: run `kubectl delete -f job.yaml` when the job is complete. The claim (a
PersistentVolumeClaim) is mounted at /NAME OF THE CLAIM for the trainer alone, which therefore
writes and reads the variables of all workers in checkpoints. With --share_claim workers mount it
too, and write their own; it must then allow ReadWriteMany.

On GKE, workers with TPUs are the hosts of one slice, as --workers=4 --tpus=4
--tpu_type=tpu-v5-lite-podslice --tpu_topology=4x4. TPUs have never run lingpipe yet.

TensorFlow's gRPC has no passwords. On clusters whose network supports them, a NetworkPolicy lets
only the pods of this run reach each other. Or encrypt: with --secure_links=FOLDER, pods reach each
other by mutual TLS only, which stunnel carries in each of them, and no process has root's rights.
FOLDER/secrets.yaml gets the keys; whoever can read it can join. Apply it with the job:

    kubectl apply -f FOLDER/secrets.yaml -f job.yaml
"""
from __future__ import annotations

import argparse
import pathlib
import posixpath
import re
import sys
import tempfile

from lingpipe.tools import dry_run, parser, trainer_flags
from lingpipe.tools.command_line import check_folder, command, write
from lingpipe.tools.kubernetes_network import (
    DEFAULT_USER,
    TRAINER,
    WORKER,
    OpenPorts,
    PodLinks,
    as_yaml,
    new_secrets,
    write_secrets,
)
from lingpipe.tools.kubernetes_pod import SUBDOMAIN, SYSTEM_FOLDERS, WorkerPod

# The name of a Service is a label of RFC 1035, and that of a claim a subdomain of RFC 1123. For a
# label of its pods, which has 63 characters at most, a StatefulSet adds a hyphen and ten characters
# of a hash to its name.
_NAME = r'[a-z]([a-z0-9-]{0,50}[a-z0-9])?'

# github.com/distribution/reference: [host[:port]/]name/name[:tag][@digest].
_HOST = r'[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?'
_PART = r'[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*'
_IMAGE = (rf'(?=.{{1,512}}$)({_HOST}(\.{_HOST})*(:[0-9]{{1,5}})?/)?{_PART}(/{_PART})*'
          r'(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?'
          r'(@[A-Za-z][A-Za-z0-9]*([+._-][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?')

_MOST_BYTES_OF_FLAG = 32 * 4096 - 1   # MAX_ARG_STRLEN of Linux, with pages of 4 KiB
_WAIT_S = 24 * 3600   # for pods that wait for room in the cluster, or for their image

# Text in braces is JSON, which is YAML. A bare name such as `on` would be no text.
_FILE = '''# Written by lingpipe.tools.launch_kubernetes.
{config_map}apiVersion: v1
kind: Service
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {named_pods}
  ports:
  - {{name: grpc, port: {port}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  podSelector:
    matchLabels: {{app: {name}}}
  policyTypes: [Ingress]
  ingress:
  - from:
    - podSelector:
        matchLabels: {{app: {name}}}
    ports: {open_ports}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  serviceName: {name}
  replicas: {workers}
  podManagementPolicy: Parallel
  selector:
    matchLabels: {{app: {name}, role: worker}}
  template:
    metadata:
      labels: {{app: {name}, role: worker}}
    spec:
      terminationGracePeriodSeconds: 120
      automountServiceAccountToken: false
      {worker_pod}
      nodeSelector: {node_selector}
      tolerations: {tolerations}
      containers:
      - name: worker
        image: {image}
        command: {worker_command}
        resources: {resources}
        {worker_container}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  backoffLimit: {max_restarts}
  podFailurePolicy:
    rules:
    - action: FailJob
      onExitCodes: {{containerName: trainer, operator: In, values: [1, 2]}}
  template:
    metadata:
      labels: {{app: {name}, role: trainer}}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 120
      automountServiceAccountToken: false
      {trainer_pod}
      containers:
      - name: trainer
        image: {image}
        command: {trainer_command}
        {trainer_container}
'''


def manifest(workers: int, image: str, claim: str, flags: list[str], *, name: str = 'lingpipe',
             port: int = 2222, pod: WorkerPod | None = None, worker_devices: str = '',
             max_restarts: int = 100, shares_claim: bool = False, links_image: str = '',
             user: int = DEFAULT_USER) -> str:
    """Returns the text of the file.

    Args:
      workers: the number of pods with a worker.
      image: a container image with lingpipe, in which `python` finds it.
      claim: of the volume with the logdir.
      flags: those of the trainer.
      name: of all objects.
      port: of the workers; the trainer takes the next one. With links, the port of every stunnel.
      pod: what each worker asks for; by default nothing.
      worker_devices: what each worker has, if it is not everything in its pod.
      max_restarts: how often the trainer may be started again. Workers always are.
      shares_claim: whether workers mount the claim too, and write their own part of checkpoints.
      links_image: a container image with stunnel, which encrypts; '': no links.
      user: the id of the user of all processes, if there are links.

    Raises:
      ValueError: Kubernetes would refuse a name or an image, or the trainer a flag; or the pods are
        not all hosts of a slice of TPUs, or too many for links or for the command of the trainer.
    """
    _check(name, image, claim)
    pod = pod or WorkerPod()
    pod.check_slice(workers)
    network: OpenPorts | PodLinks = OpenPorts(name, workers, port)
    if links_image:
        _check_image('--links_image', links_image)
        network = PodLinks(name, workers, port, links_image, user)

    python = ['python', '-m', 'lingpipe.trainer']
    worker_flags = trainer_flags.of_workers(flags, worker_devices)
    worker = [*python, '--mode=worker', f'--address={network.own_address}',
              *_escaped(worker_flags)]
    trainer = [*python, f'--devices={network.workers}', f'--address={network.trainer}',
               f'--set=train.worker_timeout_s={_WAIT_S}', *_escaped(flags)]
    _check_devices(trainer[len(python)])
    resources = {'requests': pod.limits, 'limits': pod.limits} if pod.limits else {}
    open_ports = [{'protocol': 'TCP', 'port': number} for number in network.open_ports]
    return _FILE.format(
        name=as_yaml(name), workers=workers, image=as_yaml(image), port=port,
        max_restarts=max_restarts, config_map=network.config_map,
        named_pods=as_yaml(network.named_pods), open_ports=as_yaml(open_ports),
        resources=as_yaml(resources),
        node_selector=as_yaml(pod.labels_of_nodes), tolerations=as_yaml(pod.tolerated),
        worker_command=as_yaml(worker), trainer_command=as_yaml(trainer),
        **_parts(network, WORKER, claim if shares_claim else ''), **_parts(network, TRAINER, claim))


def _parts(network: OpenPorts | PodLinks, role: str, claim: str) -> dict[str, str]:
    """Returns what a role's pods and containers have besides commands and resources, as YAML.

    The claim is mounted, unless it is ''.
    """
    mounts = [{'name': 'files', 'mountPath': f'/{claim}'}] if claim else []
    files = [{'name': 'files', 'persistentVolumeClaim': {'claimName': claim}}] if claim else []
    in_pod = {**network.of_pod(role), 'volumes': [*files, *network.volumes(role)]}
    in_container = {**network.of_container(role), 'volumeMounts': [*mounts, *network.mounts()]}
    return {f'{role}_{place}': f'\n{" " * indent}'.join(f'{key}: {as_yaml(value)}'
                                                       for key, value in parts.items())
            for place, indent, parts in (('pod', 6, in_pod), ('container', 8, in_container))}


def _escaped(flags: list[str]) -> list[str]:
    """Returns the flags with $$ for each $, since Kubernetes replaces $(NAME) in commands."""
    return [flag.replace('$', '$$') for flag in flags]


def _check(name: str, image: str, claim: str) -> None:
    """Raises ValueError for what Kubernetes would refuse."""
    if not re.fullmatch(_NAME, name):
        raise ValueError(f'--name={name!r} is no name of a Service and a StatefulSet; use up to 52 '
                         'small letters, digits and -, a letter first and no - at the end.')
    if not re.fullmatch(SUBDOMAIN, claim):
        raise ValueError(f'--claim={claim!r} is no name of a PersistentVolumeClaim; use small '
                         'letters, digits, - and ., a letter or digit first and last.')
    if claim in SYSTEM_FOLDERS:
        raise ValueError(f'--claim={claim} would be mounted at /{claim}, in place of what the '
                         'image has there; put the logdir on a claim of another name.')
    _check_image('--image', image)


def _check_devices(flag: str) -> None:
    """Raises ValueError if Linux would not start a program with this flag."""
    num_bytes = len(flag)
    if num_bytes > _MOST_BYTES_OF_FLAG:
        raise ValueError(f"the addresses of all workers are {num_bytes} bytes in the trainer's "
                         f'command, and Linux takes {_MOST_BYTES_OF_FLAG} in one flag; use fewer '
                         '--workers, or a shorter --name.')


def _check_image(flag: str, image: str) -> None:
    """Raises ValueError for what is no reference of an image."""
    if not re.fullmatch(_IMAGE, image):
        raise ValueError(f'{flag}={image!r} is no container image; write registry/name:tag, in '
                         'small letters but for the tag.')


def _check_logdir(claim: str, logdir: str) -> None:
    """Raises ValueError for a logdir that would be lost with the trainer's pod."""
    mount = pathlib.PurePosixPath('/', claim)
    path = pathlib.PurePosixPath(posixpath.normpath(logdir))
    if '://' not in logdir and not path.is_relative_to(mount):
        raise ValueError(f'--logdir={logdir} is not on the claim, which is mounted at {mount}, and '
                         f'would be lost with its pod; write --logdir={mount}/NAME.')


def _selector(labels: list[str]) -> dict[str, str]:
    """Returns what --node_selector says, each as KEY=VALUE."""
    selector = {}
    for label in labels:
        key, equals, value = label.partition('=')
        if not equals:
            raise ValueError(f'--node_selector={label!r} has no =; write KEY=VALUE, as disk=ssd.')
        selector[key] = value
    return selector


def _flags(argv: list[str] | None) -> argparse.Namespace:
    """Returns the flags, of which those of the trainer and of workers are checked."""
    p = parser('launch_kubernetes', __doc__)
    p.add_number('--workers', 2, 'how many pods', least=1, most=100_000)
    p.add_argument('--image', required=True, help='container image with lingpipe')
    p.add_argument('--claim', required=True,
                   help='the PersistentVolumeClaim that the logdir is on, mounted at /CLAIM')
    p.add_argument('--share_claim', action='store_true',
                   help='mount it for workers too, which then write their own part of checkpoints; '
                        'it must allow ReadWriteMany')
    p.add_argument('--secure_links', default='', metavar='FOLDER',
                   help='encrypt what pods send each other; the keys go to FOLDER/secrets.yaml')
    p.add_argument('--links_image', default='',
                   help='container image with stunnel, for --secure_links; default: --image')
    p.add_number('--user', DEFAULT_USER, 'id of the user of all processes, for --secure_links',
                 least=1, most=2**31 - 1)
    p.add_argument('--name', default='lingpipe', help='of all objects')
    p.add_number('--port', 2222, 'of the workers; the trainer takes the next', least=1, most=65534)
    p.add_argument('--cpu', default='', help='of each worker, as 8')
    p.add_argument('--memory', default='', help='of each worker, as 32Gi')
    p.add_number('--gpus', 0, 'of each worker', least=0, most=1024)
    p.add_argument('--gpu_resource', default='nvidia.com/gpu',
                   help='what the cluster calls a GPU, as amd.com/gpu')
    p.add_number('--tpus', 0, 'chips of each worker', least=0, most=1024)
    p.add_argument('--tpu_type', default='', help='their kind, as tpu-v5-lite-podslice')
    p.add_argument('--tpu_topology', default='', help='of the slice, as 2x4')
    p.add_argument('--node_selector', action='append', default=[], metavar='KEY=VALUE',
                   help='a label that nodes of workers must have; may be repeated')
    p.add_argument('--toleration', action='append', default=[], metavar='KEY',
                   help='a taint that nodes of workers may have; may be repeated')
    p.add_number('--max_restarts', 100, 'of the trainer; workers always start again', least=0,
                 most=1_000_000)
    p.add_argument('--worker_devices', default='',
                   help='what each worker has; default: all GPUs, or one CPU')
    p.add_output('--output', '', 'a file; default: print')
    p.add_argument('--dry_run', action='store_true',
                   help='run the commands here, on CPUs, for two steps; write nothing')
    p.add_argument('flags', nargs='*', help="-- and the trainer's flags, without --devices")
    args = p.parse_args(argv)
    if args.secure_links:
        check_folder('--secure_links', args.secure_links)
    elif args.links_image or args.user != DEFAULT_USER:
        p.error('--links_image and --user are for --secure_links, which is missing; give it a '
                'folder, or leave them out')
    trainer_flags.check(args.flags)
    trainer_flags.check_worker_devices(args.worker_devices)
    _check_logdir(args.claim, trainer_flags.parsed(args.flags).logdir)
    return args


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, and writes or prints the file."""
    args = _flags(argv)
    pod = WorkerPod(args.cpu, args.memory, args.gpus, args.gpu_resource, args.tpus, args.tpu_type,
                    args.tpu_topology, _selector(args.node_selector), tuple(args.toleration))

    def text(flags: list[str], devices: str) -> str:
        """Returns the manifest for these flags of the trainer and devices of each worker."""
        return manifest(args.workers, args.image, args.claim, flags, name=args.name,
                        port=args.port, pod=pod, worker_devices=devices,
                        max_restarts=args.max_restarts, shares_claim=args.share_claim,
                        links_image=args.secure_links and (args.links_image or args.image),
                        user=args.user)

    if args.dry_run:
        dry_run.check(args.workers)
        with tempfile.TemporaryDirectory() as logdir:
            job = text([*args.flags, *dry_run.trainer_flags(logdir)],
                       dry_run.devices(args.worker_devices, args.gpus or args.tpus))
            if args.secure_links:
                sys.exit(dry_run.kubernetes_with_links(job, new_secrets(args.name), args.name,
                                                       args.workers))
            sys.exit(dry_run.kubernetes(job, args.name, args.workers, args.port))
    job = text(args.flags, args.worker_devices)
    if args.secure_links:
        write_secrets(args.name, pathlib.Path(args.secure_links) / 'secrets.yaml')
    write(job, args.output)


if __name__ == '__main__':
    main()
