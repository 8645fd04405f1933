"""Trainer: trains, evaluates or inspects a registered experiment.

    python -m lingpipe.trainer --list
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --mode=inspect --set pipeline.num_cells=8
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --logdir=/tmp/digits
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --logdir=/tmp/digits --devices=127.0.0.1:2222,127.0.0.1:2223
    python -m lingpipe.trainer --mode=worker --address=127.0.0.1:2222
    python -m lingpipe.trainer --model=NAME --logdir=DIR --mode=decode --decode_input=FILE --decode_output=FILE
    tensorboard --logdir=/tmp/digits/tensorboard

Exit codes: 0 all done; 1 a mistake, or a training that failed, in one sentence on stderr; 2 wrong flags; 143 and 130 stopped by SIGTERM
and Ctrl-C, with a checkpoint saved, so that whoever started it knows that it is not done: the same command goes on from there; 141 nobody
reads what it prints, as in --list | head (a training goes on).
What loses a worker (a training, an evaluation, a decoding) starts its own process again, which waits for the worker and goes on from the
last checkpoint.
"""
from __future__ import annotations

import math
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from absl import flags

from lingpipe.process import closed_pipe, tensorflow_import
from lingpipe.process.error_text import sentence

MODES = ('train_and_eval', 'train', 'eval', 'inspect', 'worker', 'decode')


def define_flags() -> flags.FlagValues:
    """All flags there are. What is about the experiment is in its Params."""
    values = flags.FlagValues()
    flags.DEFINE_string('model', '', 'The experiment: image.digits.AmoebaNet is class AmoebaNet in params/image/digits.py; or any dotted '
                        'name.', flag_values=values)
    flags.DEFINE_string('logdir', '', 'The directory of checkpoints, summaries and pictures; a training there goes on.', flag_values=values)
    flags.DEFINE_enum('mode', 'train_and_eval', MODES, 'What to do; eval takes the newest checkpoint, inspect shows the plan and runs '
                      'nothing, worker runs the cells of trainings that name its address, decode makes lines of '
                      'lines (translations) with the newest checkpoint.', flag_values=values)
    flags.DEFINE_string('devices', '', 'Where cells go, in their order: cpu:4, gpu:0-3, tpu, tf.device strings, host1:2222,host2:2222 '
                        'for workers, TF_CONFIG, slurm or kubernetes:LABEL; 2*gpu:0-3 for two cells on each. Of a worker: what it has, '
                        'cpu:4 or gpu:0-3. Default: pipeline.devices, or else GPUs, or else CPUs.', flag_values=values)
    flags.DEFINE_string('address', '', 'host:port, TF_CONFIG or slurm: where a worker listens, and where workers reach the trainer '
                        '(default: found out). Whoever reaches it can run anything: there are no passwords; keep it on a private network.',
                        flag_values=values)
    flags.DEFINE_float('hangs_after_s', 60., 'Of a worker: seconds after which its server, if it does not answer, is killed and starts '
                       'again. For that long a trainer waits for a server that hangs.', lower_bound=1., flag_values=values)
    flags.register_validator('hangs_after_s', math.isfinite, 'give a finite number of seconds', flag_values=values)
    flags.DEFINE_string('decode_input', '', 'Of --mode=decode: the file of lines, UTF-8; default: standard input.', flag_values=values)
    flags.DEFINE_string('decode_output', '', 'Of --mode=decode: the file of results, a line for every line; default: standard output.',
                        flag_values=values)
    flags.DEFINE_integer('decode_line_limit', 10_000, 'Of --mode=decode: the most characters of a line; a file with a longer one is '
                         'refused.', lower_bound=1, flag_values=values)
    flags.DEFINE_bool('list', False, 'Print all experiments.', flag_values=values)
    flags.DEFINE_multi_string('set', [], 'path=value: overrides a value of the Params, as pipeline.num_cells=4; may be repeated.',
                              flag_values=values)
    flags.DEFINE_integer('steps', None, 'Short for --set train.num_steps.', lower_bound=0, flag_values=values)
    flags.DEFINE_bool('timeline', False, 'Time the tasks of a step soon after the start and draw them (train.timeline_step names another).',
                      flag_values=values)
    flags.DEFINE_bool('traceback', False, 'Show where an error comes from.', flag_values=values)
    flags.DEFINE_bool('tensorflow_log', False, 'Show all that TensorFlow writes to stderr, from its import on.', flag_values=values)
    flags.DEFINE_bool('help', False, 'Print this.', short_name='h', flag_values=values)
    return values


def main(argv: Sequence[str]) -> int:
    """Runs the command; returns the exit code.

    Args:
      argv: the program's name and its flags.
    """
    values = define_flags()
    try:
        rest = values(list(argv))[1:]
        if rest:
            raise flags.Error(f'{rest[0]!r} is no flag; write --model=NAME --logdir=DIR, and --set path=value for each override')
    except flags.Error as error:
        print(f'trainer: {" ".join(str(error).split())}; --help lists all flags.', file=sys.stderr)
        return 2
    if values.help:
        print(__doc__ + ''.join(line for line in values.get_help().splitlines(True) if line.startswith(' ')))
        return 0
    if values.tensorflow_log:
        os.environ[tensorflow_import.LOG_LEVEL] = '0'
    tensorflow_import.quiet()
    try:
        tensorflow_import.check_installed()
        return closed_pipe.ends_quietly(lambda: run(values, argv))
    except KeyboardInterrupt:
        print('trainer: stopped by Ctrl-C.', file=sys.stderr)
        return 130
    except Exception as error:   # Layers, inputs and experiments are anyone's code.
        if values.traceback:
            traceback.print_exc()
        is_ours = isinstance(error, ValueError | ArithmeticError | OSError | ImportError) and _is_raised_here(error)
        hint = '' if is_ours or values.traceback else ' (--traceback shows where.)'
        print(f'trainer: {sentence(error)}{hint}', file=sys.stderr)
        return 1


def _is_raised_here(error: BaseException) -> bool:
    """Whether lingpipe raised the error itself, so that its sentence says all there is to say."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get('__name__', '').split('.')[0] == 'lingpipe'


def run(values: flags.FlagValues, argv: Sequence[str]) -> int:
    """What `main` does once the flags are known."""
    if values.list:
        return print_list()
    if values.mode == 'worker':
        from lingpipe.commands.serve import serve
        return serve(read_params(values) if values.model else None, values)
    if not values.model:
        raise ValueError('--model is missing; --list shows all experiments.')
    params = read_params(values)
    if values.mode == 'inspect':
        from lingpipe.commands.inspect import inspect
        return inspect(params, values)
    if not values.logdir:
        raise ValueError('--logdir is missing; name a directory for checkpoints and summaries.')
    if values.mode == 'eval':
        from lingpipe.commands.evaluate import evaluate
        from lingpipe.commands.recovery import Recovery
        return Recovery(values, argv).run(params, lambda watchdog: evaluate(params, values, watchdog))
    if values.mode == 'decode':
        from lingpipe.commands.decode import decode, read_lines
        from lingpipe.commands.recovery import Recovery
        lines = read_lines(values.decode_input, is_needed_again=bool(values.devices), line_limit=values.decode_line_limit)
        return Recovery(values, argv).run(params, lambda watchdog: decode(params, values, lines, watchdog))
    from lingpipe.commands.train import train
    return train(params, values, argv)


def print_list() -> int:
    """Prints every experiment with the first line of its docstring; 1 if a module cannot be imported."""
    from lingpipe.training import registry
    found, broken = registry.find_all()
    width = max(map(len, found), default=0)
    for name, cls in found.items():
        print(f'{name.ljust(width)}  {registry.summary(cls)}')
    for module, error in broken.items():
        print(f'trainer: {module} cannot be imported: {error}', file=sys.stderr)
    return 1 if broken else 0


def read_params(values: flags.FlagValues) -> Any:
    """The experiment's Params with all overrides."""
    from lingpipe.training import registry
    params = registry.get(values.model).override_all(values.set)
    if values.steps is not None:
        params.train.num_steps = values.steps
    return params.validate()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
