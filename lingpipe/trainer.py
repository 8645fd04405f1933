"""Trainer: trains, evaluates or inspects a registered experiment.

    python -m lingpipe.trainer --list
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --mode=inspect \\
        --set pipeline.num_cells=8
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --mode=plan --devices=cpu:4
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --logdir=/tmp/digits
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --logdir=/tmp/digits \\
        --devices=127.0.0.1:2222,127.0.0.1:2223
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --logdir=/tmp/digits \\
        --mode=eval --watch
    python -m lingpipe.trainer --mode=worker --address=127.0.0.1:2222
    python -m lingpipe.trainer --model=NAME --logdir=DIR --mode=decode \\
        --decode_input=FILE --decode_output=FILE
    python -m lingpipe.trainer --model=NAME --logdir=DIR --mode=predict \\
        --predict_input=FILE --predict_output=FILE
    python -m lingpipe.trainer --model=NAME --logdir=DIR --mode=export --export_path=PATH
    tensorboard --logdir=/tmp/digits/tensorboard

Exit codes: 0 all done; 1 a mistake, or a run that failed, in one sentence on stderr; 2 wrong flags;
143, 130 and 129 stopped by SIGTERM, Ctrl-C and SIGHUP, with a checkpoint saved once the run has
begun, even if no step was made, so that whoever started it knows that it is not done: the same
command goes on from there, and a second signal ends it without a checkpoint, as any other signal
does, SIGUSR1 and SIGXCPU included; 141 nobody reads what it prints, as in --list | head (a run or a
watch goes on).
If a worker is lost during training, evaluation or decoding, the trainer waits for the worker and
goes on from the last checkpoint, if need be by starting its process again.
"""
from __future__ import annotations

import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from lingpipe.commands import early_start
from lingpipe.commands.flags import check_mode, define_flags, error_text, options_of
from lingpipe.commands.run_options import RunOptions
from lingpipe.process import closed_pipe, environment, tensorflow_import
from lingpipe.process.error_text import sentence
from lingpipe.wording.keras_words import place_of

if TYPE_CHECKING:
    from lingpipe.training.experiment import Experiment


def main(argv: Sequence[str]) -> int:
    """Runs the command; returns the exit code.

    Args:
      argv: the program's name and its flags.
    """
    closed_pipe.open_standard_files()
    values = define_flags()
    try:
        rest = values(list(argv))[1:]
        if rest:
            raise flags.Error(f'{rest[0]!r} is no flag; write --model=NAME --logdir=DIR, and --set '
                              f'path=value for each override')
        check_mode(values)
    except flags.Error as error:
        text = error_text(error)
        flag = re.search("flag '(\\w+)'", text)
        place = place_of(flag[1]) if flag else ''
        print(f'trainer: {text}; {place or "--help lists all flags."}', file=sys.stderr)
        return 2
    if values.help:
        lines = values.get_help().splitlines(keepends=True)
        print(__doc__ + ''.join(line for line in lines if line.startswith(' ')))
        return 0

    if values.tensorflow_log:
        os.environ[tensorflow_import.LOG_LEVEL] = '0'
    tensorflow_import.quiet(is_own_process=True)
    environment.add_all()
    options = options_of(values, argv[1:])
    command = print_list if values.list else (
        lambda: early_start.run(lambda: run(options), options.command_line))
    try:
        tensorflow_import.check_installed()
        return closed_pipe.ends_quietly(command)
    except KeyboardInterrupt:
        print('trainer: stopped by Ctrl-C.', file=sys.stderr)
        return 130
    except Exception as error:   # Layers, inputs and experiments are anyone's code.
        print(_error_text(error, values.traceback), file=sys.stderr)
        return 1


def _error_text(error: Exception, has_traceback: bool) -> str:
    """What a person reads of an error: one sentence, after the traceback if that is asked for."""
    if has_traceback:
        return ''.join(traceback.format_exception(error)) + f'trainer: {sentence(error)}'
    kinds = ValueError | ArithmeticError | OSError | ImportError
    is_ours = isinstance(error, kinds) and _is_raised_here(error)
    return f'trainer: {sentence(error)}{"" if is_ours else " (--traceback shows where.)"}'


def _is_raised_here(error: BaseException) -> bool:
    """Whether lingpipe raised the error itself, so that its sentence says all there is to say.

    Experiments and tasks are anyone's code, although they install as lingpipe.params and
    lingpipe.tasks.
    """
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    name = str(frame.f_globals.get('__name__', ''))
    if name == '__main__':   # It is this file, by python -m; or a user's script.
        name = getattr(frame.f_globals.get('__spec__'), 'name', '')
    package, _, module = name.partition('.')
    return package == 'lingpipe' and module.partition('.')[0] not in ('params', 'tasks')


def run(options: RunOptions) -> int:
    """Runs the command that the options name; returns the exit code.

    Commands are imported here, since TensorFlow takes seconds.
    """
    if not options.model and options.mode != 'worker':
        raise ValueError('--model is missing; --list shows all experiments.')
    from lingpipe.commands.experiment_params import chosen, read_params
    if options.mode == 'worker':
        from lingpipe.commands.serve import serve
        serve(options)
    params = read_params(options)
    if options.mode == 'plan':
        from lingpipe.commands.plan import plan
        closed_pipe.show(plan(params, options), end='')
        return 0
    params = chosen(params, options)
    if options.mode == 'inspect':
        from lingpipe.commands.inspect import inspect
        closed_pipe.show(inspect(params, options), end='')
        return 0
    if not options.logdir:
        raise ValueError('--logdir is missing; name a directory for checkpoints and summaries.')
    if options.mode in ('train', 'train_and_eval'):
        return _train(params, options)
    return _use_checkpoint(params, options)


def _train(params: Experiment.Params, options: RunOptions) -> int:
    """Trains, and says what the run came to; returns the exit code."""
    from lingpipe.commands.train import train
    outcome = train(params, options)
    if outcome.signal:
        return _code_of_signal(outcome.signal)
    closed_pipe.say(outcome.text(options.logdir).rstrip('\n'), sys.stdout)   # The run is done.
    return 0


def _use_checkpoint(params: Experiment.Params, options: RunOptions) -> int:
    """Runs a command that begins with a checkpoint and does not train; returns the exit code."""
    if options.mode == 'eval':
        from lingpipe.commands.evaluate import evaluate, watch
        if options.has_watch:
            signal_name = watch(params, options)
            return _code_of_signal(signal_name) if signal_name else 0
        evaluate(params, options)
    elif options.mode == 'decode':
        from lingpipe.commands.decode import decode
        decode(params, options)
    elif options.mode == 'predict':
        from lingpipe.commands.predict import predict
        predict(params, options)
    else:
        from lingpipe.commands.export import export
        closed_pipe.show(export(params, options))
    return 0


def _code_of_signal(name: str) -> int:
    """The exit code of a process that a signal has ended, as shells say it."""
    return 128 + signal.Signals[name].value


def print_list() -> int:
    """Prints every experiment with its docstring's first line; 1 if a module cannot be imported."""
    from lingpipe.training import experiment_class, experiment_modules
    classes_by_name, errors_by_module = experiment_modules.find_all()
    width = max(map(len, classes_by_name), default=0)
    for name, cls in classes_by_name.items():
        closed_pipe.show(f'{name.ljust(width)}  {experiment_class.summary(cls)}')
    for module, error in errors_by_module.items():
        print(f'trainer: {module} cannot be imported: {error}', file=sys.stderr)
    return 1 if errors_by_module else 0


def train_script() -> int:
    """The command lingpipe-train: as python -m lingpipe.trainer, which finds modules here too."""
    if not sys.flags.safe_path:
        sys.path.insert(0, os.getcwd())
    return main(sys.argv)


def inspect_script() -> int:
    """The command lingpipe-inspect: lingpipe-train with --mode=inspect."""
    sys.argv.append('--mode=inspect')
    return train_script()


if __name__ == '__main__':
    sys.exit(main(sys.argv))
