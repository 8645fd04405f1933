"""Devices: what --devices says, as one tf.device string a cell.

A list with commas, in the order of the cells; cell k goes to the k-th device:

    cpu:4                        four logical CPU devices of this process, CPU:0 to CPU:3; cpu:2-3 are the last two of them
    gpu, gpu:1, gpu:0-3          all GPUs of this process, one, or several
    tpu                          all TPU cores of this process
    /device:GPU:1                any tf.device string; after workers, /job:worker/task:1/device:CPU:0 and so on choose among their devices,
                                 which otherwise are all taken, worker after worker
    host1:2222,host2:2222        workers: the GPUs of each, or its CPU devices if it has none
    TF_CONFIG, slurm, ...        workers that these name: see addresses.py
    2*gpu:0-3                    two cells on each device, one after the other: GPU 0 has the first two

A device that is named twice without 2* is an error, and so are fewer devices than cells; more may be named than are used.
"""
from __future__ import annotations

import dataclasses
import re

import tensorflow as tf

from lingpipe.cluster import addresses
from lingpipe.cluster.client import wait_for
from lingpipe.cluster.ports import split_address
from lingpipe.process.tensorflow_settings import MAX_DEVICES

_LOCAL = '/job:localhost/replica:0/task:0'
_RANGE = re.compile(r'(\d+)(?:-(\d+))?')


@dataclasses.dataclass(frozen=True)
class Devices:
    """Where cells go.

    Attributes:
      names: one tf.device string a cell.
      workers: 'host:port' of each, by task; none: all devices are of this process.
      num_cpus: how many logical CPU devices this process must make, 0 for what it has.
    """
    names: tuple[str, ...]
    workers: tuple[str, ...] = ()
    num_cpus: int = 0


def find(text: str, num_cells: int, wait_s: float, must_exist: bool = True) -> Devices:
    """The devices that `text` names, for num_cells cells; workers are asked what they have, this process has not started TensorFlow yet.

    Args:
      text: see the top of this file.
      num_cells: K, of all replicas together.
      wait_s: how long to wait for workers that do not answer.
      must_exist: whether GPUs and TPUs of this process are looked for; a plan alone does not need them.

    Raises:
      ValueError: a text that says nothing, devices that do not exist, are too few, or have two cells by accident.
      OSError: a worker does not answer.
    """
    items = [_repeat(part.strip()) for part in text.split(',')]
    workers = [address for _, item in items for address in _workers(item)]
    found = wait_for(workers, wait_s) if workers else []
    explicit = {item for _, item in items if item.startswith('/job:worker')}
    names: list[str] = []
    given: dict[str, str] = {}
    for times, item in items:
        item_workers = _workers(item)
        if item_workers:
            devices = [] if explicit else [d for address in item_workers for d in found[workers.index(address)].devices]
        else:
            devices = _local(item, bool(workers), must_exist)
        for device in devices:
            if device in given:
                raise ValueError(f'--devices names {device} twice, by {given[device]} and {item}; write 2*{item} if it is to have two '
                                 f'cells, or name another.')
            given[device] = item
            names += [device] * times
    if explicit:
        _check_exist([name for name in names if name.startswith('/job:worker')], [d for one in found for d in (*one.devices, *one.others)],
                     workers)
    if len(names) < num_cells:
        listed = f' ({", ".join(names)})' if names else ''
        each = -(-num_cells // max(1, len(given)))
        again = ','.join(f'{each}*{item}' if not explicit or not _workers(item) else item for _, item in items)
        raise ValueError(f'{num_cells} cells need {num_cells} devices, but --devices={text} names {len(names)}{listed}; name more, set '
                         f'pipeline.num_cells={max(1, len(names))}, or write {again} for several cells on each.')
    names = names[:num_cells]
    cpus = [int(match[1]) for name in names if not name.startswith('/job:worker') and (match := re.search(r'(?i)\bCPU:(\d+)', name))]
    return Devices(tuple(names), tuple(workers), max(cpus, default=-1) + 1)


def _repeat(part: str) -> tuple[int, str]:
    """(2, 'gpu:0') of '2*gpu:0'."""
    match = re.fullmatch(r'(?:([1-9]\d{0,8})\*)?([^\s*]+)', part)
    times = int(match[1] or 1) if match else 0
    if not match or times > MAX_DEVICES:
        raise ValueError(f'--devices has {part!r}; write a list as gpu:0-3, cpu:4, 2*gpu:0 or host:port,host:port, and at most '
                         f'{MAX_DEVICES} cells on a device.')
    return times, match[2]


def _workers(item: str) -> list[str]:
    """Addresses of the workers that an item names, if it does."""
    if addresses.SOURCES.fullmatch(item):
        return addresses.workers_of(item)
    if item.startswith('/') or re.fullmatch(r'(?i)(cpu|gpu|tpu)(:.*)?', item):
        return []
    try:
        split_address(item)
    except ValueError as error:
        raise ValueError(f'--devices has {item!r}; write cpu:4, gpu:0-3, tpu, a tf.device string that begins with /, host:port for each '
                         f'worker, or TF_CONFIG, slurm or kubernetes:LABEL.') from error
    return [item]


def _local(item: str, has_workers: bool, must_exist: bool) -> list[str]:
    """Full names of devices of this process, or the one that a tf.device string means."""
    if item.startswith('/'):
        try:
            spec = tf.DeviceSpec.from_string(item)
        except ValueError:
            spec = tf.DeviceSpec()
        if not spec.device_type:
            raise ValueError(f'--devices has {item!r}, which names no device; write /device:GPU:0, or /job:worker/task:1/device:GPU:0.')
        if spec.job == 'worker':
            return [spec.replace(replica=0, task=spec.task or 0, device_index=spec.device_index or 0).to_string()]
        item = f'{spec.device_type}:{spec.device_index or 0}'
        return [f'{_LOCAL if has_workers else ""}/device:{item}']
    kind, _, rest = item.partition(':')
    kind = kind.upper()
    if rest and not _RANGE.fullmatch(rest):
        raise ValueError(f'--devices has {item!r}; write {kind.lower()}:2 or {kind.lower()}:0-3.')
    first, last = (int(n) if n else None for n in _RANGE.fullmatch(rest).groups()) if rest else (None, None)   # type: ignore[union-attr]
    if kind == 'CPU':
        indices = range(first or 1) if last is None else range(first or 0, last + 1)
        if rest == '0' or not indices:
            raise ValueError(f'--devices has {item!r}, which is no device; write cpu:N for N devices, N at least 1.')
        if indices[-1] >= MAX_DEVICES:
            raise ValueError(f'--devices has {item!r}, and TensorFlow cannot split a CPU into so many devices; name at most {MAX_DEVICES}.')
    else:
        num = len(tf.config.list_physical_devices(kind))
        if (last or first or 0) >= MAX_DEVICES:
            raise ValueError(f'--devices has {item!r}; no machine has so many {kind}s: name those that it has.')
        indices = range(num) if first is None else range(first, (first if last is None else last) + 1)
        if (must_exist or first is None) and (not num or max(indices, default=num) >= num):
            there = f'{num} {kind}{"" if num == 1 else "s"}'
            raise ValueError(f'--devices={item}, but this machine has {there} that TensorFlow can use; name those, or cpu:N.')
    return [f'{_LOCAL if has_workers else ""}/device:{kind}:{i}' for i in indices]


def _check_exist(wanted: list[str], there: list[str], workers: list[str]) -> None:
    known = {_short(name) for name in there}
    for name in wanted:
        if _short(name) not in known:
            raise ValueError(f'--devices names {name}, but the {len(workers)} workers have {", ".join(there) or "no device"}.')


def _short(name: str) -> str:
    return re.sub(r'/replica:\d+', '', name).lower()
