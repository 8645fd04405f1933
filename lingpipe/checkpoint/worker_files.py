"""Worker files: what workers write and read of a checkpoint themselves, in the trainer's folder.

So only names pass through the trainer, whose time and memory do not grow with the network. Workers
must see the folder at the same path, as on NFS or on one machine. Each is asked before it writes
and before it reads; the trainer writes and reads for a worker that does not.

The obvious way is to call SaveV2 on the worker as a single op. But a call of an op without outputs
returns before the op has run, and its error, such as that of a full disk, poisons all ops that the
process calls later. The call of a graph ends with the graph, and its error is its own.
"""
from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from lingpipe.cluster import HOME
from lingpipe.cluster.at_once import at_once
from lingpipe.cluster.client import done_after, host_of, is_broken, is_on_worker
from lingpipe.process import error_text
from lingpipe.process.graph_lifetime import wrap_function

_Graph = Callable[..., Any]
_TEXT = tf.TensorSpec([], tf.string)
_TEXTS = tf.TensorSpec([None], tf.string)


class WorkerError(Exception):
    """A worker cannot write or read a file; the message says which worker, and why."""


def hosts_of(variables: Mapping[str, tf.Variable]) -> dict[str, str]:
    """Returns key -> CPU of its worker, of all variables that are in the memory of workers."""
    return {key: host_of(variable.device) for key, variable in variables.items()
            if is_on_worker(variable.device)}


class WorkerFiles:
    """Lets workers write and read; keeps the graphs, and what the log was told."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[Any, ...], _Graph] = {}
        self._told: set[str] = set()

    # Who shares a folder.

    def hosts_that_write(self, folder: str, hosts: Mapping[str, str]) -> dict[str, str]:
        """Returns the entries of `hosts` whose workers can write files that this process reads.

        Args:
          folder: an absolute path.
          hosts: key -> CPU of its worker.

        Raises:
          OSError: this process cannot write there.
          tf.errors.OpError: a worker is lost.
        """
        if not hosts:
            return {}
        name = os.path.join(folder, uuid.uuid4().hex)   # No cache of NFS knows such a name.
        with open(name, 'w', encoding='utf-8') as file:
            file.write(name)
        sharing = self._sharing('writes', hosts, lambda host: self._exchanges(host, name))
        os.remove(name)
        return sharing

    def hosts_that_read(self, path: str, hosts: Mapping[str, str]) -> dict[str, str]:
        """Returns the entries of `hosts` whose workers find in a file what this process finds.

        Args:
          path: of the file.
          hosts: key -> CPU of its worker.

        Raises:
          OSError: this process cannot read the file.
          tf.errors.OpError: a worker is lost.
        """
        if not hosts:
            return {}
        with open(path, 'rb') as file:
            content = file.read()
        return self._sharing('reads', hosts, lambda host: self._finds(host, path, content))

    def _sharing(self, does: str, hosts: Mapping[str, str], shares: Callable[[str], bool]
                 ) -> dict[str, str]:
        """Asks all workers at once; the log hears once of those that share no folder."""
        all_hosts = sorted(set(hosts.values()))
        answers = at_once(shares, [(host,) for host in all_hosts])
        sharing = {host for host, answer in zip(all_hosts, answers, strict=True) if answer}
        others = [host for host in all_hosts if host not in sharing]
        if others and does not in self._told:
            self._told.add(does)
            logging.warning(
                '%s not see the checkpoints of this run: the trainer %s the variables there, and '
                'needs time and memory for them; put --logdir on a file system that all workers '
                'have at the same path', _listed(others), does)
        return {key: host for key, host in hosts.items() if host in sharing}

    def _exchanges(self, host: str, name: str) -> bool:
        """Whether a worker reads what this process has written there, and the other way round."""
        answer = f'{name}-{_name(host).replace(" ", "-")}'
        try:
            if not self._finds(host, name, name.encode()):
                return False
            self._run(host, self._graph(_write_file, host), answer, name)
            with open(answer, encoding='utf-8') as file:
                has_answered = file.read() == name
            os.remove(answer)
            return has_answered
        except (OSError, WorkerError):
            return False

    def _finds(self, host: str, path: str, content: bytes) -> bool:
        """Whether a file has this content on a worker."""
        try:
            return bool(self._run(host, self._graph(_is_content, host), os.path.abspath(path),
                                  content))
        except WorkerError:
            return False

    # Writing and reading.

    def save(self, host: str, prefix: str, names: Sequence[str], values: Sequence[tf.Tensor]
             ) -> None:
        """Lets a worker write values, which are in its memory, to the files PREFIX.*.

        Raises:
          WorkerError: it cannot.
          tf.errors.OpError: the worker is lost.
        """
        graph = self._graph(_save, host, *(value.dtype for value in values))
        self._run(host, graph, prefix, list(names), *values)

    def restore(self, host: str, prefix: str, names: Sequence[str],
                variables: Sequence[tf.Variable], dtypes: Sequence[str]) -> None:
        """Lets a worker assign its variables from the files PREFIX.*.

        Args:
          host: its CPU.
          prefix: an absolute path.
          names: of the tensors in the files.
          variables: each gets the tensor of one name.
          dtypes: of the tensors.

        Raises:
          WorkerError: it cannot; some variables may be assigned.
          tf.errors.OpError: the worker is lost.
        """
        self._run(host, _restore(host, prefix, names, variables, dtypes))

    def _graph(self, make: Callable[..., _Graph], *args: Any) -> _Graph:
        """Returns make(*args), which is called once."""
        key = (make, *args)
        if key not in self._graphs:
            self._graphs[key] = make(*args)
        return self._graphs[key]

    def _run(self, host: str, graph: _Graph, *args: Any) -> Any:
        """Calls a graph; the error of a file becomes a WorkerError."""
        with tf.device(HOME):
            tensors = [arg if isinstance(arg, tf.Tensor) else tf.constant(arg) for arg in args]
        try:
            return graph(*tensors)
        except tf.errors.OpError as error:
            if is_broken(error):
                raise
            reason = re.sub(r'^\w+: (\(\d+\) \w+: +)?| \(at [^)]*\)$', '',
                            error_text.sentence(error))
            raise WorkerError(f'{_name(host)}: {reason}') from error


def _wrapped(body: Callable[..., Any], *specs: tf.TensorSpec) -> _Graph:
    graph: _Graph = wrap_function(body, list(specs))
    return graph


def _is_content(host: str) -> _Graph:
    """(path, content) -> whether the file has it on the worker."""
    def body(path: tf.Tensor, content: tf.Tensor) -> tf.Tensor:
        with tf.device(host):
            is_equal = tf.equal(tf.io.read_file(path), content)
        with tf.device(HOME):
            return tf.identity(is_equal)
    return _wrapped(body, _TEXT, _TEXT)


def _write_file(host: str) -> _Graph:
    """(path, content) -> nothing that counts; the worker has written the file."""
    def body(path: tf.Tensor, content: tf.Tensor) -> tf.Tensor:
        with tf.device(host):
            written = tf.raw_ops.WriteFile(filename=path, contents=content)
        return done_after(written)
    return _wrapped(body, _TEXT, _TEXT)


def _save(host: str, *dtypes: tf.DType) -> _Graph:
    """(prefix, names, *values) -> nothing that counts; the worker has written the values."""
    def body(prefix: tf.Tensor, names: tf.Tensor, *values: tf.Tensor) -> tf.Tensor:
        with tf.device(host):
            saved = tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, tensors=values,
                                      shape_and_slices=[''] * len(dtypes))
        return done_after(saved)
    return _wrapped(body, _TEXT, _TEXTS, *(tf.TensorSpec(None, dtype) for dtype in dtypes))


def _restore(host: str, prefix: str, names: Sequence[str], variables: Sequence[tf.Variable],
             dtypes: Sequence[str]) -> _Graph:
    """() -> nothing that counts; the worker has assigned the variables."""
    def body() -> tf.Tensor:
        """Reads the values on the worker, and assigns each where its variable is."""
        with tf.device(host):
            values = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=list(names),
                                          shape_and_slices=[''] * len(names),
                                          dtypes=[tf.as_dtype(dtype) for dtype in dtypes])
        assigned = []
        for variable, value in zip(variables, values, strict=True):
            with tf.device(variable.device):
                assigned.append(tf.raw_ops.AssignVariableOp(
                    resource=variable.handle, value=tf.cast(value, variable.dtype)))
        return done_after(*assigned)
    return _wrapped(body)


def _name(host: str) -> str:
    """Returns 'worker 1'."""
    return f'worker {tf.DeviceSpec.from_string(host).task}'


def _listed(hosts: Iterable[str]) -> str:
    """Returns 'worker 1 does' or 'worker 1, worker 2 do'."""
    names = [_name(host) for host in hosts]
    return f'{", ".join(names)} {"does" if len(names) == 1 else "do"}'
