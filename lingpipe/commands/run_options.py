"""Run options: what a person asks the trainer to do, besides what the experiment's Params say."""
from __future__ import annotations

import dataclasses
import os
import typing
from typing import Literal

Mode = Literal['train_and_eval', 'train', 'eval', 'inspect', 'plan', 'worker',
               'decode', 'predict', 'export']
MODES: tuple[Mode, ...] = typing.get_args(Mode)


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """The trainer's flags, checked and typed. The flags themselves say what each value means.

    Attributes:
      mode: the command.
      model: the experiment's name, '' for none.
      overrides: 'path=value' each, for the experiment's Params.
      num_steps: overrides train.num_steps, unless it is None.
      logdir: a directory, or ''.
      devices: what --devices says, '' for nothing.
      device_type: what --devices are, by name; '': they are measured, or not known.
      has_auto_plan: whether the planner chooses what no override sets.
      may_change_statistics: whether the planner may change the examples of a micro-batch though
        layers keep statistics of them.
      is_json: whether --mode=plan prints JSON.
      checkpoint: 'newest', 'best' or a step, for what reads one.
      has_watch: whether eval evaluates each new checkpoint too, until the run has ended.
      allow_change: paths of Params that may differ from those with which the run began; * stands
        for any text.
      address: 'host:port' or a source of it, or ''.
      hangs_after_s: a worker's server that has not answered for so long is started again.
      has_timeline: whether a step is timed soon after the start.
      decode_input, decode_output: paths, '' for the standard input and output.
      decode_line_limit: the most characters of a line.
      predict_input: a path, or the name of an eval input; predict_output: a path, '' for the
        standard output.
      export_path, export_format, export_dtype: where and how the network is written.
      command_line: the flags as they were written, for a process that takes this one's place.
    """
    mode: Mode
    model: str = ''
    overrides: tuple[str, ...] = ()
    num_steps: int | None = None
    logdir: str = ''
    devices: str = ''
    device_type: str = ''
    has_auto_plan: bool = False
    may_change_statistics: bool = False
    is_json: bool = False
    checkpoint: str = 'newest'
    has_watch: bool = False
    allow_change: tuple[str, ...] = ()
    address: str = ''
    hangs_after_s: float = 60.
    has_timeline: bool = False
    decode_input: str = ''
    decode_output: str = ''
    decode_line_limit: int = 10_000
    predict_input: str = ''
    predict_output: str = ''
    export_path: str = ''
    export_format: str = 'saved_model'
    export_dtype: str = 'float32'
    command_line: tuple[str, ...] = ()


def may_be_logdir(path: str) -> bool:
    """Whether a path and those above it are UTF-8, as TensorFlow needs them; '' is no path."""
    try:
        os.path.abspath(path or '/').encode()
    except UnicodeEncodeError:   # Python writes a byte that is no UTF-8 as a surrogate.
        return False
    return True
