"""The flags of the trainer: their names, defaults and help, and the options that they give."""
from __future__ import annotations

import math
import re
from collections.abc import Sequence
from os.path import expanduser  # A shell leaves the ~ of --logdir=~/runs as it is.

from absl import flags

from lingpipe.commands.run_options import MODES, RunOptions, may_be_logdir

# Flags that only some modes read. Another mode would pass over them without a word.
_MODES_OF_FLAGS = {
    'watch': ('eval',),
    'json': ('plan',),
    'timeline': ('train_and_eval', 'train'),
    'decode_input': ('decode',), 'decode_output': ('decode',), 'decode_line_limit': ('decode',),
    'predict_input': ('predict',), 'predict_output': ('predict',),
    'export_path': ('export',), 'format': ('export',), 'export_dtype': ('export',)}


def define_flags() -> flags.FlagValues:
    """Defines all flags. What concerns the experiment is in its Params."""
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
    flags.register_validator(   # type: ignore[no-untyped-call]
        'logdir', may_be_logdir, 'the path is not UTF-8, and TensorFlow opens no other; choose '
        'another directory', flag_values=values)
    flags.DEFINE_string(
        'checkpoint', 'newest', 'newest, best or a step: the checkpoint that eval, decode and the '
        'like take. Training goes on from the newest.', flag_values=values)
    flags.DEFINE_bool(
        'watch', False, 'For --mode=eval: evaluate each new checkpoint of a run beside it, until '
        'the run has ended.', flag_values=values)
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
        'device_type', '', 'For --mode=plan, inspect and --plan=auto: what --devices are, by name, '
        'as h100: their memory, speed and links (pipeline/planning/hardware.py). Default: for a '
        'search of plans, layers are timed on this machine.', flag_values=values)
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
        'export_path', '', 'For --mode=export: the file or, for saved_model, hugging_face and '
        'peft, the directory to write.', flag_values=values)
    flags.DEFINE_string(
        'format', 'saved_model', 'For --mode=export: saved_model, keras, npz, safetensors, '
                                 'hugging_face, peft or onnx.',
        flag_values=values)
    flags.DEFINE_enum(
        'export_dtype', 'float32', ['float32', 'bfloat16', 'float16'],
        'For --format=hugging_face: the type to which weights are rounded in the files.',
        flag_values=values)


def check_mode(values: flags.FlagValues) -> None:
    """Raises flags.Error if a flag is set that the mode does not read."""
    for name, modes in _MODES_OF_FLAGS.items():
        if values[name].present and values.mode not in modes and not values.help:
            needed = ' or '.join(f'--mode={mode}' for mode in modes)
            raise flags.Error(f'--{name} is for {needed}, and this is --mode={values.mode}; write '
                              f'{needed}, or leave --{name} out')


def error_text(error: flags.Error) -> str:
    """Returns the one line that a person reads of an error of absl."""
    line = ' '.join(str(error).split())
    return re.sub(r"\('Non-boolean argument to boolean flag', .*\)$", 'write true or false', line)


def options_of(values: flags.FlagValues, command_line: Sequence[str] = ()) -> RunOptions:
    """The options that parsed flags give; command_line are the flags as they were written."""
    return RunOptions(
        mode=values.mode, model=values.model, overrides=tuple(values.set), num_steps=values.steps,
        logdir=expanduser(values.logdir), devices=values.devices, device_type=values.device_type,
        has_auto_plan=values.plan == 'auto', may_change_statistics=values.change_statistics,
        is_json=values.json, checkpoint=values.checkpoint, has_watch=values.watch,
        allow_change=tuple(values.allow_change), address=values.address,
        hangs_after_s=values.hangs_after_s, has_timeline=values.timeline,
        decode_input=expanduser(values.decode_input),
        decode_output=expanduser(values.decode_output),
        decode_line_limit=values.decode_line_limit,
        predict_input=expanduser(values.predict_input),
        predict_output=expanduser(values.predict_output),
        export_path=expanduser(values.export_path), export_format=values.format,
        export_dtype=values.export_dtype, command_line=tuple(command_line))
