"""Readers: mini-batches that the process of some devices makes for them, in place of the trainer.

A position determines a mini-batch, and the Params of its input can be sent as text. So the graph of
a step holds that text and is given a position, and an op in the process of the devices makes the
mini-batch there, from the same files (pipeline/execution/batch_source.py adds it). What the op asks
for:

    READ           the mini-batch at a position: the values that the devices of the process read
    FINGERPRINT    what tells the mini-batch at a position from another; see fingerprint.py
    SHAPE          which of the input's specs it has
    TIME           the time, which TensorFlow refuses to tell at times (pipeline/execution/clock.py)

The obvious way is a dataset of tf.data that is placed on the worker. But the trainer would have to
make it, with all arrays that it holds, and the sources that read in Python can run only in the
process that has defined them. So the op calls Python there, as tf.numpy_function does. Its function
is known by a token, which is the first that the process of a server gives out.

A text imports only modules of lingpipe and those that the process has imported already; see
hyperparams/class_names.py.
"""
from __future__ import annotations

import functools
import itertools
import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.input.base import Input
from lingpipe.input.batches import Batches
from lingpipe.input.errors import one_sentence
from lingpipe.input.fingerprint import fingerprint
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.process import tensorflow_settings
from lingpipe.process.error_text import sentence

READ, FINGERPRINT, SHAPE, TIME = b'read', b'fingerprint', b'shape', b'time'
WORKER_TOKEN = 'pyfunc_0'

_NUM_KEPT = 4       # inputs, whose data may be large: that of training and some of evaluations
_MOST_SKIPPED = 64  # mini-batches that other replicas evaluate; farther away, it is faster to begin

# A step that was cut off may leave a call behind, while the trainer asks why the step failed.
_LOCK = threading.Lock()


class Reader:
    """The mini-batches of an input. Those that follow one another are made ahead.

    Where R replicas evaluate mini-batches in turn, a reader is asked for every R-th. Once two gaps
    in a row were equal, it makes no mini-batches in between, if the input is indexed.
    """

    def __init__(self, text: str):
        """
        Args:
          text: of the input's Params.

        Raises:
          ValueError: the text is wrong, or the input cannot be made.
        """
        self.source: Input = Input.Params.from_text(text).instantiate()
        self._batches: Batches | None = None
        self._stride = 1    # self._batches has every stride-th mini-batch.
        self._position = 0  # of the last one that was asked for
        self._gap = 0       # from the one before to it, in mini-batches
        self._last: dict[str, Nested] | None = None

    def batch(self, position: int) -> dict[str, Nested]:
        """Returns the mini-batch at a position; the last one is kept for a second call.

        Raises:
          ValueError: it cannot be made, or the input ends before it.
        """
        if self._last is not None and self._position == position:
            return self._last
        batches, self._batches, self._last = self._batches, None, None   # unless all goes well
        batch_size = self.source.params.batch_size
        gap, rest = divmod(position - self._position, batch_size)
        is_near = batches is not None and not rest and 0 < gap <= _MOST_SKIPPED
        stride = self._stride
        if is_near and gap == self._gap and self.source.is_indexed:
            stride = gap
        elif is_near:
            stride = math.gcd(gap, stride)
        if batches is None or not is_near or stride != self._stride:
            batches, num_skipped = self.source.batches(position, stride), 0
        else:
            num_skipped = gap // stride - 1
        batch = next(itertools.islice(batches, num_skipped, None), None)
        if batch is None:
            raise ValueError(f'{type(self.source).__name__} ends before position {position}; let '
                             'it repeat (num_epochs=none), or train fewer steps.')
        self._batches, self._last = batches, batch
        self._position, self._stride, self._gap = position, stride, gap
        return batch


@functools.cache
def own_token() -> str:
    """Returns the token by which ops in this process call `answer`."""
    return _token_of(answer)


def offer_in_worker(config: tf.compat.v1.ConfigProto,
                    load: Callable[[], object] | None = None) -> None:
    """Lets a trainer's ops call this process, which becomes a worker's server.

    The process must not have started TensorFlow, and can fork no more afterwards.

    Args:
      config: of the server. The bits of what is read may depend on its threads and on Grappler.
      load: imports the classes of inputs. It is called before the first answer, and may start
        TensorFlow.

    Raises:
      RuntimeError: this process has given out tokens before.
    """
    tf.config.threading.set_intra_op_parallelism_threads(config.intra_op_parallelism_threads)
    tensorflow_settings.set_graph_optimizer(
        not config.graph_options.rewrite_options.disable_meta_optimizer)

    @functools.cache
    def prepare() -> None:
        """Leaves the GPUs of a worker to its server. Inputs run on the CPU."""
        tf.config.set_visible_devices([], 'GPU')
        if load:
            load()

    def prepared_answer(what: bytes, *args: Any) -> Any:
        if what != TIME:
            with _LOCK:
                prepare()
        return answer(what, *args)

    token = _token_of(prepared_answer)
    if token != WORKER_TOKEN:
        raise RuntimeError(f'the token is {token}, and trainers expect {WORKER_TOKEN}')


def answer(what: bytes, text: bytes, position: np.ndarray, *names: np.ndarray) -> Any:
    """Answers an op.

    Args:
      what: READ, FINGERPRINT, SHAPE or TIME.
      text: of the input's Params.
      position: int64 scalar.
      *names: for READ: string [n], the values of the mini-batch that are wanted.

    Returns:
      For READ: the leaves of these values, and the seconds that the mini-batch was waited for, as
      float64. For TIME: seconds since the epoch, as float64. Otherwise JSON: {'reply': ...}, or
      {'problem': a sentence}.

    Raises:
      ValueError: for READ, the mini-batch cannot be made.
    """
    if what == TIME:
        return np.float64(time.time())
    with _LOCK:
        if what == READ:
            return _read(text.decode(), int(position), [name.decode() for name in names[0]])
        try:
            reply = {'reply': _REPLIES[what](_reader(text.decode()), int(position))}
        except Exception as error:   # whatever the input's own code raises
            reply = {'problem': sentence(error)}
        return json.dumps(reply).encode()


def _read(text: str, position: int, names: Sequence[str]) -> list[Any]:
    """Returns the leaves of some values of a mini-batch, and how long it was waited for."""
    start_s = time.perf_counter()
    try:
        batch = _reader(text).batch(position)
    except Exception as error:
        raise ValueError(sentence(error)) from error
    wait_s = time.perf_counter() - start_s
    arrays = [leaf.numpy() for name in names for leaf in nested.leaves(batch[name])]
    return [*arrays, np.float64(wait_s)]


@functools.lru_cache(_NUM_KEPT)
def _reader(text: str) -> Reader:
    """Returns the reader of an input, made at first use."""
    with one_sentence('the input'):
        return Reader(text)


def _shape(reader: Reader, position: int) -> int:
    """Returns the index of the first of the input's specs that a mini-batch has."""
    batch = reader.batch(position)
    own = [(tuple(leaf.shape), leaf.dtype) for leaf in nested.leaves(batch)]
    specs = [[(tuple(leaf.shape), leaf.dtype) for leaf in nested.leaves(spec)]
             for spec in reader.source.specs()]
    if own not in specs:
        raise ValueError(f'the mini-batch at position {position} of {type(reader.source).__name__} '
                         'has none of the shapes of its specs(); let all mini-batches have one.')
    return specs.index(own)


def _fingerprint(reader: Reader, position: int) -> dict[str, Any]:
    return fingerprint(reader.source, reader.batch(position))


_REPLIES: dict[bytes, Callable[[Reader, int], Any]] = {FINGERPRINT: _fingerprint, SHAPE: _shape}


def _token_of(function: Callable[..., Any]) -> str:
    token: bytes = _op_calling(function).get_attr('token')
    return token.decode()


@functools.cache
def _op_calling(function: Callable[..., Any]) -> tf.Operation:
    """Returns an op that calls a function; as long as it is there, the token of it is good."""
    with tf.Graph().as_default():
        return tf.numpy_function(function, [], tf.int64).op
