"""Writes a batch script for Slurm: a worker on every node, the trainer on the first.

    python -m lingpipe.tools.launch_slurm --nodes=4 --output=job.sh \\
        -- --model=image.digits.AmoebaNet --logdir=/shared/digits
    sbatch job.sh

With --dry_run the script runs here for two steps, on CPU devices, before it waits in a queue.

Workers and trainer start again when they are killed. Two minutes before the time limit the trainer
gets SIGTERM and saves, and the job is put into the queue again.

TensorFlow's gRPC has no passwords: other users who reach the ports of the nodes reach the workers.
Use nodes of your own (--exclusive, which the script asks for) on a network that only the cluster
reaches. Or encrypt: with --secure_links=FOLDER, every turn of the job makes links between its nodes
(tools.secure_links, which needs stunnel and openssl there), and removes their keys at its end.
FOLDER is on a disk that all nodes see; whoever can read the files of its user there can join.
"""
from __future__ import annotations

import re
import shlex
import sys
import tempfile

from lingpipe import cluster
from lingpipe.tools import dry_run, parser, trainer_flags
from lingpipe.tools.command_line import command, write

_NAME = r'[A-Za-z0-9][A-Za-z0-9_.-]{0,63}'
_GPU_TYPE = r'[A-Za-z0-9_.-]{0,64}'
_TIME = (r'[0-9]{1,8}(:[0-9]{1,2}){0,2}|'
         r'[0-9]{1,4}-[0-9]{1,2}(:[0-9]{1,2}){0,2}')   # man sbatch, --time
_FOLDER = r'/[A-Za-z0-9._/-]+'
_OPTION = r'--?([A-Za-z][A-Za-z-]*)[^\x00-\x1f\x7f]*'

# Options of sbatch that the script has already -> the flag that says their value.
_OWN_OPTIONS = {
    **dict.fromkeys(('job-name', 'J'), '--name'), **dict.fromkeys(('nodes', 'N'), '--nodes'),
    **dict.fromkeys(('time', 't'), '--time'),
    **dict.fromkeys(('requeue', 'no-requeue'), '--no_requeue'), 'gpus-per-node': '--gpus_per_node',
    **dict.fromkeys(('ntasks', 'n', 'ntasks-per-node', 'signal'), '')}

# A backslash at the end of a line joins it with the next one.
_SCRIPT = '''#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time={time}
#SBATCH --signal=B:TERM@120
#SBATCH --{requeue}requeue
#SBATCH --open-mode=append
#SBATCH --output={name}-%j.log
{extra}
# Written by lingpipe.tools.launch_slurm. A worker on every node; the trainer here, on the first.
set -uo pipefail

# A signal may come at any moment, also before there is a trainer and between two of them.
asked=0
restarts=0
trainer=
stop() {{ asked=1; if [ -n "$trainer" ]; then kill -TERM "$trainer" 2>/dev/null; fi; }}
trap stop TERM INT

port={port}
workers=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/\\$/:$port/" | paste -sd, -)
{links}
srun --overlap --ntasks-per-node=1 --kill-on-bad-exit=0 bash -c '{run_links}
  ended=
  trap ended=1 TERM   # The worker ends first.
  while [ -z "$ended" ]; do
    {worker_python} -m lingpipe.trainer --mode=worker \
--address="{worker_address}" {worker_flags}
    sleep 1
  done' &
srun_id=$!

code=143
while [ "$asked" = 0 ]; do
  {python} -m lingpipe.trainer --devices="$workers" \
--address="{trainer_address}" {flags} &
  trainer=$!
  if [ "$asked" = 1 ]; then kill -TERM "$trainer"; fi
  while true; do
    wait "$trainer"
    code=$?
    kill -0 "$trainer" 2>/dev/null || break   # a signal ends wait before the trainer has ended
  done
  trainer=
  if [ "$code" -le 128 ] || [ "$asked" = 1 ] || [ "$restarts" = {max_restarts} ]; then break; fi
  restarts=$((restarts + 1))
  echo "the trainer has ended with exit code $code and is started again"
  code=143   # of the job, if a signal comes before the trainer is started
  sleep 1
done

kill "$srun_id" 2>/dev/null
if [ "$asked" = 1 ] && [ "$code" = 143 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
'''

# Every node reaches all workers and the trainer on its own loopback, each at another port.
_LINKS = '''
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd, -)
links={folder}/$SLURM_JOB_ID-${{SLURM_RESTART_COUNT:-0}}
trap 'rm -rf "$links"' EXIT
{python} -m lingpipe.tools.secure_links --hosts="$hosts" --output="$links" --port="$port" || exit 1
workers=$(seq -s, -f "127.0.0.1:%g" "$port" "$((port + {nodes} - 1))")
'''
_RUN_LINKS = '''
  place=0
  for host in '"${{hosts//,/ }}"'; do
    if [ "$host" = "$SLURMD_NODENAME" ]; then break; fi
    place=$((place + 1))
  done
  while true; do
    {worker_python} -m lingpipe.tools.secure_links --run="'"$links"'/$SLURMD_NODENAME"
    sleep 1
  done &'''


def _parts_of_links(folder: str, nodes: int, port: int, python: str) -> dict[str, str]:
    """Returns what the script says of links and addresses; '' as the folder means no links."""
    if not folder:
        return {'links': '', 'run_links': '', 'worker_address': '$SLURMD_NODENAME:\'"$port"\'',
                'trainer_address': '$SLURMD_NODENAME:$((port + 1))'}
    if not re.fullmatch(_FOLDER, folder):
        raise ValueError(f'--secure_links={folder!r} is no folder that all nodes see; write an '
                         'absolute path of letters, digits, ., _, - and /.')
    if nodes < 2:
        raise ValueError('--secure_links are between nodes, and --nodes=1 is one; leave it out.')
    if port + nodes > 65535:
        raise ValueError(f'--secure_links of {nodes} nodes need as many ports and one more, and '
                         f'ports end at 65535; choose a smaller one than --port={port}.')
    return {'links': _LINKS.format(folder=folder, nodes=nodes, python=python),
            'run_links': _RUN_LINKS.format(worker_python=_within_quotes(python)),
            'worker_address': '127.0.0.1:$((\'"$port"\' + place))',
            'trainer_address': f'127.0.0.1:$((port + {nodes}))'}


def script(nodes: int, flags: list[str], *, name: str = 'lingpipe', time: str = '24:00:00',
           port: int = 2222, gpus_per_node: int = 0, gpu_type: str = '', worker_devices: str = '',
           python: str = 'python', max_restarts: int = 100, requeue: bool = True,
           links: str = '', extra: tuple[str, ...] = ()) -> str:
    """Returns the text of the batch script.

    Args:
      nodes: the number of nodes, each with a worker.
      flags: those of the trainer.
      name: of the job.
      time: its limit, as sbatch takes it.
      port: of the workers; the trainer takes the next one.
      gpus_per_node: what the job asks for; the workers use them all.
      gpu_type: what the cluster calls their kind, as a100; '' takes any.
      worker_devices: what each worker has, if it is not everything on its node.
      python: the command, as .venv/bin/python.
      max_restarts: how often a trainer that is killed may be started again. Workers always are.
      requeue: whether a job that reaches its time limit, or loses a node, waits in the queue again.
      links: a folder that all nodes see, for the keys of encrypted links; '': no links.
      extra: more lines of #SBATCH, without that word.

    Raises:
      ValueError: sbatch would refuse the name, the time or another line, or the trainer a flag; or
        there is nothing to link.
    """
    _check(name, time, gpu_type, extra)
    if gpu_type and not gpus_per_node:
        raise ValueError(f'--gpu_type={gpu_type} without --gpus_per_node asks for no GPU; give '
                         'both, as --gpu_type=a100 --gpus_per_node=4.')
    gpus = f'{gpu_type}:{gpus_per_node}' if gpu_type else gpus_per_node
    lines = [f'--gpus-per-node={gpus}'] if gpus_per_node else []
    worker_flags = shlex.join(trainer_flags.of_workers(flags, worker_devices))
    return _SCRIPT.format(name=name, nodes=nodes, time=time, port=port, python=shlex.quote(python),
                          max_restarts=max_restarts, requeue='' if requeue else 'no-',
                          worker_python=_within_quotes(shlex.quote(python)),
                          worker_flags=_within_quotes(worker_flags), flags=shlex.join(flags),
                          **_parts_of_links(links, nodes, port, shlex.quote(python)),
                          extra=''.join(f'#SBATCH {line}\n' for line in (*lines, *extra)))


def _within_quotes(text: str) -> str:
    """Returns a text of the shell as it is written between single quotes."""
    return text.replace("'", "'\\''")


def _check(name: str, time: str, gpu_type: str, extra: tuple[str, ...]) -> None:
    """Raises ValueError for what sbatch would refuse, or would take for more than one option."""
    if not re.fullmatch(_NAME, name):
        raise ValueError(f'--name={name!r} is no name of a job and of its log; use up to 64 '
                         'letters, digits, _, - and ., a letter or digit first.')
    if not re.fullmatch(_TIME, time):
        raise ValueError(f'--time={time!r} is no limit of sbatch; write minutes, minutes:seconds, '
                         'hours:minutes:seconds, days-hours, days-hours:minutes or '
                         'days-hours:minutes:seconds, as 24:00:00.')
    if not re.fullmatch(_GPU_TYPE, gpu_type):
        raise ValueError(f'--gpu_type={gpu_type!r} is no kind of GPU; write what sinfo --format=%G '
                         'shows between the colons, as a100.')
    for option in extra:
        found = re.fullmatch(_OPTION, option)
        if not found:
            raise ValueError(f'--sbatch={option!r} is no option of sbatch on one line; write it as '
                             '--sbatch=--partition=long.')
        name = found[1] if option.startswith('--') else option[1]   # -N7 is -N 7
        if name in _OWN_OPTIONS:
            flag = _OWN_OPTIONS[name]
            remedy = f'give {flag} in its place' if flag else 'leave it out'
            raise ValueError(f'--sbatch={option} sets what the script sets itself; {remedy}.')


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, and writes or prints the script."""
    p = parser('launch_slurm', __doc__)
    p.add_number('--nodes', 2, 'how many, each with a worker', least=1,
                 most=cluster.MAX_DEVICES)
    p.add_argument('--name', default='lingpipe', help='of the job')
    p.add_argument('--time', default='24:00:00', help='limit of the job')
    p.add_number('--port', 2222, 'of the workers; the trainer takes the next', least=1, most=65534)
    p.add_number('--gpus_per_node', 0, 'that the job asks for', least=0, most=1024)
    p.add_argument('--gpu_type', default='', help='what the cluster calls their kind, as a100')
    p.add_argument('--worker_devices', default='',
                   help='what each worker has; default: all GPUs, or one CPU')
    p.add_number('--max_restarts', 100, 'of the trainer; workers always start again', least=0,
                 most=1_000_000)
    p.add_argument('--no_requeue', action='store_true',
                   help='end with the time limit, and do not wait in the queue again')
    p.add_argument('--python', default='python', help='the command, as .venv/bin/python')
    p.add_argument('--secure_links', default='', metavar='FOLDER',
                   help='encrypt what nodes send each other, with keys in this shared folder')
    p.add_argument('--sbatch', action='append', default=[], metavar='OPTION',
                   help='one more option, as --sbatch=--partition=long')
    p.add_output('--output', '', 'a file; default: print')
    p.add_argument('--dry_run', action='store_true',
                   help='run the script here, on CPUs, for two steps, without links; write '
                        'nothing')
    p.add_argument('flags', nargs='*', help="-- and the trainer's flags, without --devices")
    args = p.parse_args(argv)
    trainer_flags.check(args.flags)
    trainer_flags.check_worker_devices(args.worker_devices)
    if not args.python.isprintable() or not args.python:
        p.error(f'--python={args.python!r} is no command; name one, as .venv/bin/python')

    def text(flags: list[str], devices: str, python: str) -> str:
        """Returns the script for these flags of the trainer, devices of each worker, and Python."""
        return script(args.nodes, flags, name=args.name, time=args.time, port=args.port,
                      gpus_per_node=args.gpus_per_node, gpu_type=args.gpu_type,
                      worker_devices=devices, python=python, max_restarts=args.max_restarts,
                      requeue=not args.no_requeue,
                      links='' if args.dry_run else args.secure_links, extra=tuple(args.sbatch))

    if args.dry_run:
        dry_run.check(args.nodes)
        with tempfile.TemporaryDirectory() as logdir:
            flags = [*args.flags, *dry_run.trainer_flags(logdir)]
            devices = dry_run.devices(args.worker_devices, args.gpus_per_node)
            sys.exit(dry_run.slurm(lambda python: text(flags, devices, python), args.nodes,
                                   args.port))
    write(text(args.flags, args.worker_devices, args.python), args.output)


if __name__ == '__main__':
    main()
