"""Writes a file for Kubernetes: workers, the trainer, and a policy that protects their ports.

    python -m lingpipe.tools.launch_kubernetes --workers=4 --image=registry/lingpipe:1 \\
        --claim=training --output=job.yaml \\
        -- --model=image.digits.AmoebaNet --logdir=/training/digits
    kubectl apply -f job.yaml

The workers are a StatefulSet with its headless Service, the trainer is a Job. Workers do not end by
themselves: run `kubectl delete -f job.yaml` when the job is complete. The claim (a
PersistentVolumeClaim) is mounted at /NAME OF THE CLAIM for the trainer alone, since workers need no
files.

TensorFlow's gRPC has no passwords. On clusters whose network supports them, a NetworkPolicy lets
only the pods of this run reach each other.
"""
from __future__ import annotations

import json
import re

from lingpipe.tools import parser, trainer_flags
from lingpipe.tools.command_line import command

# The name of a Service is a label of RFC 1035, and that of a claim a subdomain of RFC 1123. For a
# label of its pods, which has 63 characters at most, a StatefulSet adds a hyphen and ten characters
# of a hash to its name.
_NAME = r'[a-z]([a-z0-9-]{0,50}[a-z0-9])?'
_LABEL = r'[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?'
_CLAIM = rf'(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*'

# github.com/distribution/reference: [host[:port]/]name/name[:tag][@digest].
_HOST = r'[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?'
_PART = r'[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*'
_IMAGE = (rf'(?=.{{1,512}}$)({_HOST}(\.{_HOST})*(:[0-9]{{1,5}})?/)?{_PART}(/{_PART})*'
          r'(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?'
          r'(@[A-Za-z][A-Za-z0-9]*([+._-][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?')

_QUANTITY = r'(?=.*[1-9])[0-9]{1,12}(\.[0-9]{1,9})?(m|k|Ki|[MGTPE]i?)?'   # more than 0

_WAIT_S = 24 * 3600   # for pods that wait for room in the cluster, or for their image

# Text in braces is JSON, which is YAML.
_FILE = '''# Written by lingpipe.tools.launch_kubernetes.
apiVersion: v1
kind: Service
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{app: {name}, role: worker}}
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
    ports:
    - {{protocol: TCP, port: {port}}}
    - {{protocol: TCP, port: {trainer_port}}}
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
      terminationGracePeriodSeconds: 5
      containers:
      - name: worker
        image: {image}
        command: {worker_command}
        ports:
        - {{name: grpc, containerPort: {port}}}
        resources: {resources}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  labels: {{app: {name}}}
spec:
  backoffLimit: 100
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
      containers:
      - name: trainer
        image: {image}
        command: {trainer_command}
        env:
        - name: POD_IP
          valueFrom:
            fieldRef: {{fieldPath: status.podIP}}
        ports:
        - {{name: grpc, containerPort: {trainer_port}}}
        volumeMounts:
        - {{name: files, mountPath: {mount}}}
      volumes:
      - name: files
        persistentVolumeClaim: {{claimName: {claim}}}
'''


def manifest(workers: int, image: str, claim: str, flags: list[str], *, name: str = 'lingpipe',
             port: int = 2222, gpus: int = 0, cpu: str = '', memory: str = '',
             worker_devices: str = '') -> str:
    """Returns the text of the file.

    Args:
      workers: the number of pods with a worker.
      image: a container image with lingpipe, in which `python` finds it.
      claim: of the volume with the logdir.
      flags: those of the trainer.
      name: of all objects.
      port: of the workers; the trainer takes the next one.
      gpus: of each worker.
      cpu, memory: what each worker asks for, as 8 and 32Gi.
      worker_devices: what each worker has, if it is not everything in its pod.

    Raises:
      ValueError: Kubernetes would refuse a name, the image or an amount, or the trainer a flag.
    """
    _check(name, image, claim, cpu, memory)
    limits = {}
    if cpu:
        limits['cpu'] = cpu
    if memory:
        limits['memory'] = memory
    if gpus:
        limits['nvidia.com/gpu'] = str(gpus)

    python = ['python', '-m', 'lingpipe.trainer']
    worker_flags = trainer_flags.of_workers(flags, worker_devices)
    worker = [*python, '--mode=worker', f'--address=0.0.0.0:{port}', *_escaped(worker_flags)]
    devices = ','.join(f'{name}-{i}.{name}:{port}' for i in range(workers))
    trainer = [*python, f'--devices={devices}', f'--address=$(POD_IP):{port + 1}',
               f'--set=train.worker_timeout_s={_WAIT_S}', *_escaped(flags)]
    return _FILE.format(
        name=name, workers=workers, image=json.dumps(image), claim=json.dumps(claim),
        mount=json.dumps(f'/{claim}'), port=port, trainer_port=port + 1,
        resources=json.dumps({'requests': limits, 'limits': limits} if limits else {}),
        worker_command=json.dumps(worker), trainer_command=json.dumps(trainer))


def _escaped(flags: list[str]) -> list[str]:
    """Returns the flags with $$ for each $, since Kubernetes replaces $(NAME) in commands."""
    return [flag.replace('$', '$$') for flag in flags]


def _check(name: str, image: str, claim: str, cpu: str, memory: str) -> None:
    """Raises ValueError for what Kubernetes would refuse."""
    if not re.fullmatch(_NAME, name):
        raise ValueError(f'--name={name!r} is no name of a Service and a StatefulSet; use up to 52 '
                         'small letters, digits and -, a letter first and no - at the end.')
    if not re.fullmatch(_CLAIM, claim):
        raise ValueError(f'--claim={claim!r} is no name of a PersistentVolumeClaim; use small '
                         'letters, digits, - and ., a letter or digit first and last.')
    if not re.fullmatch(_IMAGE, image):
        raise ValueError(f'--image={image!r} is no container image; write registry/name:tag, in '
                         'small letters but for the tag.')
    for flag, amount in (('cpu', cpu), ('memory', memory)):
        if amount and not re.fullmatch(_QUANTITY, amount):
            raise ValueError(f'--{flag}={amount!r} is no amount above 0; write --cpu=8 or '
                             '--cpu=500m, --memory=32Gi.')


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, and writes or prints the file."""
    p = parser('launch_kubernetes', __doc__)
    p.add_number('--workers', 2, 'how many pods', least=1, most=100_000)
    p.add_argument('--image', required=True, help='container image with lingpipe')
    p.add_argument('--claim', required=True,
                   help='the PersistentVolumeClaim that the logdir is on, mounted at /CLAIM')
    p.add_argument('--name', default='lingpipe', help='of all objects')
    p.add_number('--port', 2222, 'of the workers; the trainer takes the next', least=1, most=65534)
    p.add_number('--gpus', 0, 'of each worker', least=0, most=1024)
    p.add_argument('--cpu', default='', help='of each worker, as 8')
    p.add_argument('--memory', default='', help='of each worker, as 32Gi')
    p.add_argument('--worker_devices', default='',
                   help='what each worker has; default: all GPUs, or one CPU')
    p.add_output('--output', '', 'a file; default: print')
    p.add_argument('flags', nargs='*', help="-- and the trainer's flags, without --devices")
    args = p.parse_args(argv)
    trainer_flags.check(args.flags)
    trainer_flags.check_worker_devices(args.worker_devices)

    text = manifest(args.workers, args.image, args.claim, args.flags, name=args.name,
                    port=args.port, gpus=args.gpus, cpu=args.cpu, memory=args.memory,
                    worker_devices=args.worker_devices)
    if args.output:
        with open(args.output, 'w', encoding='utf-8') as file:
            file.write(text)
    else:
        print(text, end='')


if __name__ == '__main__':
    main()
