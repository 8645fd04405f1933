"""Devices: what --devices says, as one tf.device string a cell.

The text is a list with commas, in the order of the cells. Cell k goes to the k-th device:

    cpu:4                      four logical CPU devices of this process, CPU:0 to CPU:3;
                               cpu:2-3 are the last two of them
    gpu, gpu:1, gpu:0-3        all GPUs of this process, one of them, or several
    tpu                        all TPU cores of this process
    /device:GPU:1              any tf.device string
    host1:2222,host2:2222      workers: the GPUs of each, or its CPU devices if it has none
    TF_CONFIG, slurm, ...      the workers that these name; see addresses.py
    2*gpu:0-3                  two consecutive cells on each device: GPU 0 has cells 0 and 1

All devices of the workers are used, one worker after another. To choose among them, name the
workers first and then the devices, as /job:worker/task:1/device:CPU:0.

It is an error to name a device twice without 2*, or to name fewer devices than there are cells.
More devices may be named than are used.
"""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import tensorflow as tf

from lingpipe.cluster import addresses
from lingpipe.cluster.ports import split_address
from lingpipe.cluster.workers import Worker, wait_for
from lingpipe.process.tensorflow_settings import MAX_DEVICES
from lingpipe.wording.counts import counted

_LOCAL = '/job:localhost/replica:0/task:0'
_RANGE = re.compile(r'(\d+)(?:-(\d+))?')


@dataclasses.dataclass(frozen=True)
class Devices:
    """Where cells go.

    Attributes:
      names: one tf.device string a cell.
      workers: 'host:port' of each worker, by task; empty if all devices are of this process.
      num_cpus: how many logical CPU devices this process must make; 0 for what it has.
    """
    names: tuple[str, ...]
    workers: tuple[str, ...] = ()
    num_cpus: int = 0


@dataclasses.dataclass(frozen=True)
class _Item:
    """One part of the list.

    Attributes:
      text: the part without 2*.
      cells_a_device: how many cells each of its devices has.
      workers: 'host:port' of the workers that it names; empty if it names devices.
    """
    text: str
    cells_a_device: int
    workers: tuple[str, ...]


def find(text: str, num_cells: int, wait_s: float, must_exist: bool = True,
         num_devices: int | None = None, num_replicas: int = 1) -> Devices:
    """Returns the devices that `text` names for num_cells cells.

    Workers are asked what they have. TensorFlow need not have started in this process.

    Args:
      text: see the top of this file.
      num_cells: K, of all replicas together.
      wait_s: how long to wait for workers that do not answer.
      must_exist: whether GPUs and TPUs of this process are looked for. A plan alone does not need
        them.
      num_devices: how many devices are enough, if the schedule wants several cells on each. Where
        fewer are named than there are cells, so many are returned.
      num_replicas: R, for the error about too few.

    Raises:
      ValueError: the text is malformed, or names devices that do not exist, are too few, or have
        two cells by accident.
      OSError: a worker does not answer.
    """
    named = _named_by(text, wait_s, must_exist)
    num_enough = num_cells if num_devices is None else num_devices
    if len(named.names) < num_enough:
        raise _too_few(text, named, num_cells, num_enough, num_replicas)
    names = named.names[:num_cells if len(named.names) >= num_cells else num_enough]
    return Devices(names, named.workers, max(_cpu_indices(names), default=-1) + 1)


def find_all(text: str, wait_s: float, must_exist: bool = True) -> Devices:
    """Returns all devices that `text` names; arguments and errors as of `find`."""
    named = _named_by(text, wait_s, must_exist)
    return Devices(named.names, named.workers, max(_cpu_indices(named.names), default=-1) + 1)


def workers_in(text: str) -> tuple[str, ...]:
    """Returns 'host:port' of each worker that `text` names.

    Raises:
      ValueError: the text is malformed.
    """
    return tuple(address for item in _items(text) for address in item.workers)


def without(text: str, addresses: Collection[str]) -> str:
    """Returns `text` without the workers at some addresses; '' if nothing else is named.

    Raises:
      ValueError: the text is malformed, or it names devices by the numbers of workers, which
        would change.
    """
    items = _items(text)
    if _chooses_among_workers(items):
        raise ValueError(f'--devices={text} names devices by the numbers of their workers, which '
                         'change without one of them; name the workers alone.')
    return ','.join(
        name if item.cells_a_device == 1 else f'{item.cells_a_device}*{name}'
        for item in items for name in item.workers or (item.text,) if name not in addresses)


@dataclasses.dataclass(frozen=True)
class _Named:
    """What a list names.

    Attributes:
      items: its parts.
      names: a tf.device string for every cell that there is room for.
      num_devices: how many different devices these are.
      workers: 'host:port' of each worker.
    """
    items: Sequence[_Item]
    names: tuple[str, ...]
    num_devices: int
    workers: tuple[str, ...]


def _named_by(text: str, wait_s: float, must_exist: bool) -> _Named:
    """Reads a list and asks its workers what they have."""
    items = _items(text)
    worker_addresses = [address for item in items for address in item.workers]
    workers = wait_for(worker_addresses, wait_s) if worker_addresses else []
    names_by_item = _names_by_item(items, dict(zip(worker_addresses, workers, strict=True)),
                                   must_exist)

    names = [name for item, item_names in names_by_item for name in item_names
             for _ in range(item.cells_a_device)]
    if _chooses_among_workers(items) and (workers or must_exist):
        _check_exist(names, workers)
    num_devices = sum(len(item_names) for _, item_names in names_by_item)
    return _Named(items, tuple(names), num_devices, tuple(worker_addresses))


def _items(text: str) -> list[_Item]:
    """Reads a list."""
    return [_item(part.strip()) for part in text.split(',')]


def _item(part: str) -> _Item:
    """Reads one part of the list, such as '2*gpu:0'."""
    match = re.fullmatch(r'(?:([1-9]\d{0,8})\*)?([^\s*]+)', part)
    cells_a_device = int(match[1] or 1) if match else 0
    if not match or cells_a_device > MAX_DEVICES:
        raise ValueError(f'--devices has {part!r}; write a list as gpu:0-3, cpu:4, 2*gpu:0 or '
                         f'host:port,host:port, and at most {MAX_DEVICES} cells on a device.')
    return _Item(match[2], cells_a_device, tuple(_workers(match[2])))


def _workers(text: str) -> list[str]:
    """Returns the addresses of the workers that an item names; none if it names devices."""
    if addresses.SOURCES.fullmatch(text):
        return addresses.workers_of(text)
    if text.startswith('/') or re.fullmatch(r'(?i)(cpu|gpu|tpu)(:.*)?', text):
        return []
    try:
        split_address(text)
    except ValueError as error:
        if text.startswith('['):   # IPv6
            raise
        raise ValueError(f'--devices has {text!r}; write cpu:4, gpu:0-3, tpu, a tf.device string '
                         'that begins with /, host:port for each worker, or TF_CONFIG, slurm or '
                         'kubernetes:LABEL.') from error
    return [text]


def _chooses_among_workers(items: Sequence[_Item]) -> bool:
    """Whether devices of workers are named, so that the others of the workers are not used."""
    return any(item.text.startswith('/job:worker') for item in items)


def _names_by_item(items: Sequence[_Item], workers: Mapping[str, Worker], must_exist: bool
                   ) -> list[tuple[_Item, list[str]]]:
    """Returns each item with its devices. Raises ValueError for a device of two items.

    Args:
      items: all of the list.
      workers: by address.
      must_exist: as for `find`.
    """
    uses_all_of_workers = not _chooses_among_workers(items)
    item_of: dict[str, _Item] = {}
    names_by_item = []
    for item in items:
        if not item.workers:
            names = _named(item.text, bool(workers), must_exist)
        elif uses_all_of_workers:
            names = [name for address in item.workers for name in workers[address].devices]
        else:
            names = []

        for name in names:
            if name in item_of:
                raise ValueError(f'--devices names {name} twice, by {item_of[name].text} and '
                                 f'{item.text}; write 2*{item.text} if it is to have two cells, or '
                                 'name another.')
            item_of[name] = item
        names_by_item.append((item, names))
    return names_by_item


def _named(text: str, has_workers: bool, must_exist: bool) -> list[str]:
    """Returns full names of the devices that an item without workers names."""
    if text.startswith('/'):
        return [_full_name(text, has_workers)]

    kind, _, numbers = text.partition(':')
    kind = kind.upper()
    match = _RANGE.fullmatch(numbers)
    if numbers and not match:
        raise ValueError(f'--devices has {text!r}; write {kind.lower()}:2 or {kind.lower()}:0-3.')
    first = int(match[1]) if match else None
    last = int(match[2]) if match and match[2] else None

    if kind == 'CPU':
        indices = _cpu_range(text, first, last)
    else:
        indices = _accelerator_range(text, kind, first, last, must_exist)
    return [f'{_LOCAL if has_workers else ""}/device:{kind}:{i}' for i in indices]


def _full_name(text: str, has_workers: bool) -> str:
    """Returns the full name of the device that a tf.device string means."""
    try:
        spec = tf.DeviceSpec.from_string(text)
    except ValueError:
        spec = tf.DeviceSpec()
    if not spec.device_type:
        raise ValueError(f'--devices has {text!r}, which names no device; write /device:GPU:0, or '
                         '/job:worker/task:1/device:GPU:0.')

    index = spec.device_index or 0
    if spec.job == 'worker':
        full = spec.replace(replica=0, task=spec.task or 0, device_index=index)
        return str(full.to_string())
    return f'{_LOCAL if has_workers else ""}/device:{spec.device_type}:{index}'


def _cpu_range(text: str, first: int | None, last: int | None) -> range:
    """Returns the indices of 'cpu' (None, None), 'cpu:4' (4, None) or 'cpu:2-3' (2, 3)."""
    indices = range(first or 1) if last is None else range(first or 0, last + 1)
    if first == 0 and last is None or not indices:
        raise ValueError(f'--devices has {text!r}, which is no device; write cpu:N for N devices, '
                         'N at least 1.')
    if indices[-1] >= MAX_DEVICES:
        raise ValueError(f'--devices has {text!r}, and TensorFlow cannot split a CPU into so many '
                         f'devices; name at most {MAX_DEVICES}.')
    return indices


def _accelerator_range(text: str, kind: str, first: int | None, last: int | None, must_exist: bool
                       ) -> range:
    """Returns the indices of 'gpu' (None, None), 'gpu:1' (1, None) or 'gpu:0-3' (0, 3)."""
    num_devices = len(tf.config.list_physical_devices(kind))
    if (last or first or 0) >= MAX_DEVICES:
        raise ValueError(f'--devices has {text!r}; no machine has so many {kind}s: name those that '
                         'it has.')

    if first is None:
        indices = range(num_devices)
    else:
        indices = range(first, (first if last is None else last) + 1)
        if not indices:
            raise ValueError(f'--devices has {text!r}, which ends before it begins; write '
                             f'{kind.lower()}:{last}-{first}.')
    exist = num_devices > 0 and max(indices, default=num_devices) < num_devices
    if (must_exist or first is None) and not exist:
        there = counted(num_devices, kind)
        raise ValueError(f'--devices={text}, but this machine has {there} that TensorFlow can use; '
                         f'name those, or cpu:N; others, as {kind.lower()}:0-7, can be planned '
                         'for by --mode=plan or inspect.')
    return indices


def _check_exist(names: Sequence[str], workers: Sequence[Worker]) -> None:
    """Raises ValueError for a device of a worker that does not have it."""
    existing = [name for worker in workers for name in (*worker.devices, *worker.others)]
    existing_short = {_short(name) for name in existing}
    for name in names:
        if name.startswith('/job:worker') and _short(name) not in existing_short:
            raise ValueError(f'--devices names {name}, but the devices of '
                             f'{counted(len(workers), "worker")} are '
                             f'{", ".join(existing) or "none"}.')


def _short(name: str) -> str:
    return re.sub(r'/replica:\d+', '', name).lower()


def _too_few(text: str, named: _Named, num_cells: int, num_enough: int, num_replicas: int
             ) -> ValueError:
    """Returns the error for too few devices, with a text that would be enough."""
    names = named.names
    listed = f' ({", ".join(names)})' if names else ''
    cells_a_device = -(-num_cells // max(1, named.num_devices))
    keeps_workers = _chooses_among_workers(named.items)
    enough = ','.join(item.text if keeps_workers and item.workers
                      else f'{cells_a_device}*{item.text}' for item in named.items)
    num_there = max(1, len(names))
    settings = []
    if num_there < num_replicas:
        settings.append(f'pipeline.num_replicas={num_there}')
    if num_cells > num_replicas:
        settings.append(f'pipeline.num_cells={max(1, num_there // num_replicas)}')
    what = counted(num_cells, 'cell')
    if num_replicas > 1:
        what = (f'{counted(num_replicas, "replica")} with '
                f'{counted(num_cells // num_replicas, "cell")} each')
    return ValueError(f'{what} need {counted(num_enough, "device")}, but '
                      f'--devices={text} names {len(names)}{listed}; name more, set '
                      f'{" and ".join(settings)}, or write {enough} for several cells on each.')


def _cpu_indices(names: Sequence[str]) -> Iterator[int]:
    """Yields the indices of the CPU devices of this process."""
    for name in names:
        match = re.search(r'(?i)\bCPU:(\d+)', name)
        if match and not name.startswith('/job:worker'):
            yield int(match[1])
