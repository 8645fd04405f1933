"""Trainer: trains, evaluates or inspects a registered experiment.

    python -m lingpipe.trainer --list
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --mode=inspect \\
        --set pipeline.num_cells=8
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --mode=plan --devices=cpu:4
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --logdir=/tmp/digits
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --logdir=/tmp/digits \\
        --devices=127.0.0.1:2222,127.0.0.1:2223
    python -m lingpipe.trainer --mode=worker --address=127.0.0.1:2222
    python -m lingpipe.trainer --model=NAME --logdir=DIR --mode=decode \\
        --decode_input=FILE --decode_output=FILE
    python -m lingpipe.trainer --model=NAME --logdir=DIR --mode=predict \\
        --predict_input=FILE --predict_output=FILE
    python -m lingpipe.trainer --model=NAME --logdir=DIR --mode=export --export_path=PATH
    tensorboard --logdir=/tmp/digits/tensorboard

Exit codes: 0 all done; 1 a mistake, or a run that failed, in one sentence on stderr; 2 wrong flags;
143 and 130 stopped by SIGTERM and Ctrl-C, with a checkpoint saved, so that whoever started it knows
that it is not done: the same command goes on from there; 141 nobody reads what it prints, as in
--list | head (a run goes on).
If a worker is lost during training, evaluation or decoding, the process starts itself again, waits
for the worker and goes on from the last checkpoint.
"""
from __future__ import annotations

import math
import os
import signal
import sys
import traceback
from collections.abc import Sequence

from absl import flags

from lingpipe.commands import early_start
from lingpipe.commands.run_options import MODES, RunOptions
from lingpipe.process import closed_pipe, tensorflow_import
from lingpipe.process.error_text import sentence


def define_flags() -> flags.FlagValues:
    """All flags there are. What is about the experiment is in its Params."""
    values = flags.FlagValues()   # type: ignore[no-untyped-call]   # absl has few types
    _define_flags_of_experiments(values)
    _define_flags_of_devices(values)
    _define_flags_of_decoding(values)
    _define_flags_of_outputs(values)

    flags.DEFINE_bool(
        'list', False, 'Print all experiments.', flag_values=values)
    flags.DEFINE_bool(
        'traceback', False, 'Show where an error comes from.', flag_values=values)
    flags.DEFINE_bool(
        'tensorflow_log', False,
        'Show all that TensorFlow writes to stderr, from its import on.', flag_values=values)
    flags.DEFINE_bool(
        'help', False, 'Print this.', short_name='h', flag_values=values)
    return values


def _define_flags_of_experiments(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        'model', '', 'The experiment: image.digits.AmoebaNet is class AmoebaNet in '
        'params/image/digits.py; or any dotted name.', flag_values=values)
    flags.DEFINE_string(
        'logdir', '', 'The directory of checkpoints, summaries and pictures; a run that is there '
        'already is resumed.', flag_values=values)
    flags.DEFINE_string(
        'checkpoint', 'newest', 'newest, best or a step: the checkpoint that eval, decode and the '
        'like take. Training goes on from the newest.', flag_values=values)
    flags.DEFINE_multi_string(
        'allow_change', [], 'A path of the Params that may differ from the run that goes on, as '
        'task.learner.*; may be repeated. LOGDIR/params_history.txt keeps what has changed.',
        flag_values=values)
    flags.DEFINE_enum(
        'mode', 'train_and_eval', MODES, 'What to do. eval takes --checkpoint; inspect '
        'shows the plan and runs nothing; plan finds the best plans for --devices; worker runs the '
        'cells of runs that name its address; decode translates lines of text, or whatever else '
        'the problem makes of them, with --checkpoint.', flag_values=values)
    flags.DEFINE_multi_string(
        'set', [], 'path=value: overrides a value of the Params, as pipeline.num_cells=4; may be '
        'repeated. pipeline.num_cells=auto, and likewise num_replicas, num_micro_batches and '
        'recompute: as --plan=auto, for this value alone.', flag_values=values)
    flags.DEFINE_enum(
        'plan', 'as_set', ['as_set', 'auto'], 'auto: before a new run begins, the fastest plan '
        'that --mode=plan finds replaces what no --set sets. A run that is resumed keeps its plan.',
        flag_values=values)
    flags.DEFINE_bool(
        'change_statistics', False, 'For --mode=plan and --plan=auto: consider other numbers of '
        'micro-batches and replicas even where BatchNorm or the like would see other examples '
        'together, which changes what is learned.', flag_values=values)
    flags.DEFINE_bool(
        'json', False, 'For --mode=plan: print one JSON object, with the --set flags of every '
        'plan.', flag_values=values)
    flags.DEFINE_integer(
        'steps', None, 'Short for --set train.num_steps.', lower_bound=0, flag_values=values)
    flags.DEFINE_bool(
        'timeline', False, 'Time the tasks of a few steps soon after the start, draw them, and say '
        'where the devices spend their time (train.timeline_step names other steps).',
        flag_values=values)


def _define_flags_of_devices(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        'devices', '', 'Where cells go, in their order: cpu:4, gpu:0-3, tpu, tf.device strings, '
        'host1:2222,host2:2222 for workers, TF_CONFIG, slurm or kubernetes:LABEL; 2*gpu:0-3 for '
        'two cells on each. For a worker: what it has, cpu:4 or gpu:0-3. Default: '
        'pipeline.devices, or else GPUs, or else CPUs.', flag_values=values)
    flags.DEFINE_string(
        'device_type', '', 'For --mode=plan and inspect: what --devices are, by name, as h100: '
        'their memory, speed and links (pipeline/planning/hardware.py). Default: for plan, layers '
        'are timed on this machine.', flag_values=values)
    flags.DEFINE_string(
        'address', '', 'host:port, TF_CONFIG or slurm: where a worker listens, and where workers '
        'reach the trainer (default: found out). Whoever reaches it can run anything: there are '
        'no passwords; keep it on a private network.', flag_values=values)
    flags.DEFINE_float(
        'hangs_after_s', 60., 'For a worker: seconds after which its server, if it does not '
        'answer, is killed and starts again. For that long a trainer waits for a server that '
        'hangs.', lower_bound=1., flag_values=values)
    flags.register_validator(   # type: ignore[no-untyped-call]
        'hangs_after_s', math.isfinite, 'give a finite number of seconds', flag_values=values)


def _define_flags_of_decoding(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        'decode_input', '', 'For --mode=decode: the file of lines, UTF-8; default: standard input.',
        flag_values=values)
    flags.DEFINE_string(
        'decode_output', '', 'For --mode=decode: the file of results, a line for every line; '
        'default: standard output.', flag_values=values)
    flags.DEFINE_integer(
        'decode_line_limit', 10_000, 'For --mode=decode: the most characters of a line; a file '
        'with a longer one is refused.', lower_bound=1, flag_values=values)


def _define_flags_of_outputs(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        'predict_input', '', 'For --mode=predict: the examples, as .npz, .npy, .csv, .jsonl or '
        'TFRecords, by the names that the network reads; or the name of an eval input.',
        flag_values=values)
    flags.DEFINE_string(
        'predict_output', '', 'For --mode=predict: the file of outputs, .npz, .csv or .jsonl; '
        'default: JSON lines to standard output.', flag_values=values)
    flags.DEFINE_string(
        'export_path', '', 'For --mode=export: the file or, for saved_model, the directory to '
        'write.', flag_values=values)
    flags.DEFINE_string(
        'format', 'saved_model', 'For --mode=export: saved_model, keras, npz, safetensors or onnx.',
        flag_values=values)


def options_of(values: flags.FlagValues, command_line: Sequence[str] = ()) -> RunOptions:
    """The options that parsed flags give; command_line are the flags as they were written."""
    return RunOptions(
        mode=values.mode, model=values.model, overrides=tuple(values.set), num_steps=values.steps,
        logdir=values.logdir, devices=values.devices, device_type=values.device_type,
        has_auto_plan=values.plan == 'auto', may_change_statistics=values.change_statistics,
        is_json=values.json, checkpoint=values.checkpoint,
        allow_change=tuple(values.allow_change), address=values.address,
        hangs_after_s=values.hangs_after_s, has_timeline=values.timeline,
        decode_input=values.decode_input, decode_output=values.decode_output,
        decode_line_limit=values.decode_line_limit,
        predict_input=values.predict_input, predict_output=values.predict_output,
        export_path=values.export_path, export_format=values.format,
        command_line=tuple(command_line))


def main(argv: Sequence[str]) -> int:
    """Runs the command; returns the exit code.

    Args:
      argv: the program's name and its flags.
    """
    values = define_flags()
    try:
        rest = values(list(argv))[1:]
        if rest:
            raise flags.Error(f'{rest[0]!r} is no flag; write --model=NAME --logdir=DIR, and --set '
                              f'path=value for each override')
    except flags.Error as error:
        print(f'trainer: {" ".join(str(error).split())}; --help lists all flags.', file=sys.stderr)
        return 2
    if values.help:
        lines = values.get_help().splitlines(keepends=True)
        print(__doc__ + ''.join(line for line in lines if line.startswith(' ')))
        return 0

    if values.tensorflow_log:
        os.environ[tensorflow_import.LOG_LEVEL] = '0'
    tensorflow_import.quiet()
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
    package, _, module = str(frame.f_globals.get('__name__', '')).partition('.')
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
        serve(read_params(options) if options.model else None, options)
    params = read_params(options)
    if options.mode == 'plan':
        from lingpipe.commands.plan import plan
        print(plan(params, options), end='')
        return 0
    params = chosen(params, options)
    if options.mode == 'inspect':
        from lingpipe.commands.inspect import inspect
        print(inspect(params, options), end='')
        return 0
    if not options.logdir:
        raise ValueError('--logdir is missing; name a directory for checkpoints and summaries.')
    if options.mode == 'eval':
        from lingpipe.commands.evaluate import evaluate
        evaluate(params, options)
        return 0
    if options.mode == 'decode':
        from lingpipe.commands.decode import decode
        decode(params, options)
        return 0
    if options.mode == 'predict':
        from lingpipe.commands.predict import predict
        predict(params, options)
        return 0
    if options.mode == 'export':
        from lingpipe.commands.export import export
        print(export(params, options))
        return 0

    from lingpipe.commands.train import train
    outcome = train(params, options)
    if outcome.signal:
        return 128 + signal.Signals[outcome.signal].value
    closed_pipe.say(outcome.text(options.logdir).rstrip('\n'), sys.stdout)   # The run is done.
    return 0


def print_list() -> int:
    """Prints every experiment with its docstring's first line; 1 if a module cannot be imported."""
    from lingpipe.training import experiment_class, experiment_modules
    classes_by_name, errors_by_module = experiment_modules.find_all()
    width = max(map(len, classes_by_name), default=0)
    for name, cls in classes_by_name.items():
        print(f'{name.ljust(width)}  {experiment_class.summary(cls)}')
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
