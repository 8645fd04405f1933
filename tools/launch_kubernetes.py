"""Writes a file for Kubernetes: a StatefulSet of workers with its headless Service, a Job for the trainer, and a NetworkPolicy.

    python -m tools.launch_kubernetes --workers=4 --image=registry/lingpipe:1 --claim=training --output=job.yaml \\
        -- --model=image.digits.AmoebaNet --logdir=/training/digits
    kubectl apply -f job.yaml          # and kubectl delete -f job.yaml when the job is complete: workers do not end by themselves

The claim (a PersistentVolumeClaim) is mounted at /NAME OF THE CLAIM for the trainer alone: workers need no files. TensorFlow's gRPC has no
passwords: the NetworkPolicy lets only pods of this training reach each other, on clusters whose network knows such policies.
"""
from __future__ import annotations

import json

from tools import parser

_WAIT_S = 24 * 3600   # for pods that the cluster has no room for yet, and that an image is fetched for

# Text in braces is JSON, which is YAML.
_FILE = '''# Written by tools.launch_kubernetes.
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


def manifest(workers: int, image: str, claim: str, flags: list[str], *, name: str = 'lingpipe', port: int = 2222, gpus: int = 0,
             cpu: str = '', memory: str = '', worker_devices: str = '') -> str:
    """The text of the file.

    Args:
      workers: how many pods.
      image: a container image with lingpipe, in which `python` finds it.
      claim: of the volume with the logdir.
      flags: the trainer's.
      name: of all objects.
      port: of the workers; the trainer takes the one after it.
      gpus: of each worker.
      cpu, memory: what each worker asks for, as 8 and 32Gi.
      worker_devices: what each worker says it has, if it is not all.
    """
    from tools.launch_local import worker_flags
    limits = {key: value for key, value in (('cpu', cpu), ('memory', memory), ('nvidia.com/gpu', str(gpus) if gpus else '')) if value}
    trainer = ['python', '-m', 'lingpipe.trainer']
    devices = ','.join(f'{name}-{i}.{name}:{port}' for i in range(workers))
    worker = [*trainer, '--mode=worker', f'--address=0.0.0.0:{port}', *_escaped(worker_flags(flags, worker_devices))]
    return _FILE.format(name=name, workers=workers, image=json.dumps(image), claim=json.dumps(claim), mount=json.dumps(f'/{claim}'),
                        port=port, trainer_port=port + 1, resources=json.dumps({'requests': limits, 'limits': limits} if limits else {}),
                        worker_command=json.dumps(worker),
                        trainer_command=json.dumps([*trainer, f'--devices={devices}', f'--address=$(POD_IP):{port + 1}',
                                                    f'--set=train.worker_timeout_s={_WAIT_S}', *_escaped(flags)]))


def _escaped(flags: list[str]) -> list[str]:
    """Kubernetes replaces $(NAME) in commands; $$ is a dollar."""
    return [flag.replace('$', '$$') for flag in flags]


def main(argv: list[str] | None = None) -> None:
    """Parses the flags, and writes or prints the file."""
    p = parser('launch_kubernetes', __doc__)
    p.add_argument('--workers', type=int, default=2)
    p.add_argument('--image', required=True, help='container image with lingpipe')
    p.add_argument('--claim', required=True, help='the PersistentVolumeClaim that the logdir is on, mounted at /CLAIM')
    p.add_argument('--name', default='lingpipe', help='of all objects')
    p.add_argument('--port', type=int, default=2222, help='of the workers; the trainer takes the next')
    p.add_argument('--gpus', type=int, default=0, help='of each worker')
    p.add_argument('--cpu', default='', help='of each worker, as 8')
    p.add_argument('--memory', default='', help='of each worker, as 32Gi')
    p.add_argument('--worker_devices', default='', help='what each worker has; default: all GPUs, or one CPU')
    p.add_argument('--output', default='', help='a file; default: print')
    p.add_argument('flags', nargs='*', help="-- and the trainer's flags, without --devices")
    args = p.parse_args(argv)
    if args.workers < 1 or not args.flags:
        raise SystemExit(f'launch_kubernetes: --workers={args.workers} and {len(args.flags)} flags of the trainer; use 1 worker or more, '
                         'and write the flags after --, as -- --model=NAME --logdir=DIR.')
    text = manifest(args.workers, args.image, args.claim, args.flags, name=args.name, port=args.port, gpus=args.gpus, cpu=args.cpu,
                    memory=args.memory, worker_devices=args.worker_devices)
    if args.output:
        with open(args.output, 'w', encoding='utf-8') as file:
            file.write(text)
    else:
        print(text, end='')


if __name__ == '__main__':
    main()
