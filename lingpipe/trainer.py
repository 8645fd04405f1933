"""Trainer: trains, evaluates or inspects a registered experiment.

    python -m lingpipe.trainer --list
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --mode=inspect --set pipeline.num_cells=8
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --logdir=/tmp/digits
    tensorboard --logdir=/tmp/digits/tensorboard

Exit codes: 0 all done; 1 a mistake, or a training that failed, in one sentence on stderr; 2 wrong flags; 143 and 130 stopped by SIGTERM
and Ctrl-C, with a checkpoint saved, so that whoever started it knows that it is not done: the same command goes on from there.
"""
from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')       # before TensorFlow is imported: errors only

from absl import flags  # noqa: E402

MODES = ('train_and_eval', 'train', 'eval', 'inspect')


def define_flags() -> flags.FlagValues:
    """All flags there are. What is about the experiment is in its Params."""
    values = flags.FlagValues()
    flags.DEFINE_string('model', '', 'The experiment: image.digits.AmoebaNet is class AmoebaNet in params/image/digits.py; or any dotted '
                        'name.', flag_values=values)
    flags.DEFINE_string('logdir', '', 'The directory of checkpoints, summaries and pictures; a training there goes on.', flag_values=values)
    flags.DEFINE_enum('mode', 'train_and_eval', MODES, 'What to do; eval takes the newest checkpoint, inspect shows the plan and runs '
                      'nothing.', flag_values=values)
    flags.DEFINE_bool('list', False, 'Print all experiments.', flag_values=values)
    flags.DEFINE_multi_string('set', [], 'path=value: overrides a value of the Params, as pipeline.num_cells=4; may be repeated.',
                              flag_values=values)
    flags.DEFINE_integer('steps', None, 'Short for --set train.num_steps.', lower_bound=0, flag_values=values)
    flags.DEFINE_bool('timeline', False, 'Time the tasks of a step soon after the start and draw them (train.timeline_step names another).',
                      flag_values=values)
    flags.DEFINE_bool('traceback', False, 'Show where an error comes from.', flag_values=values)
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
        print(f'trainer: {error}; --help lists all flags.', file=sys.stderr)
        return 2
    if values.help:
        print(__doc__ + ''.join(line for line in values.get_help().splitlines(True) if line.startswith(' ')))
        return 0
    try:
        return run(values)
    except (ValueError, ArithmeticError, OSError) as error:
        if values.traceback:
            traceback.print_exc()
        frames = list(traceback.walk_tb(error.__traceback__))
        is_ours = frames[-1][0].f_globals.get('__name__', '').split('.')[0] == 'lingpipe'   # or else it says too little by itself
        print(f'trainer: {error}{"" if is_ours or values.traceback else " (--traceback shows where.)"}', file=sys.stderr)
        return 1


def run(values: flags.FlagValues) -> int:
    """What `main` does once the flags are known."""
    if values.list:
        return print_list()
    if not values.model:
        raise ValueError('--model is missing; --list shows all experiments.')
    params = read_params(values)
    if values.mode == 'inspect':
        return inspect(params)
    if not values.logdir:
        raise ValueError('--logdir is missing; name a directory for checkpoints and summaries.')
    configure(params)
    return evaluate(params, values.logdir) if values.mode == 'eval' else train(params, values)


def print_list() -> int:
    """Prints every experiment with the first line of its docstring; 1 if a module cannot be imported."""
    from lingpipe import registry
    found, broken = registry.find_all()
    width = max(map(len, found), default=0)
    for name, cls in found.items():
        print(f'{name.ljust(width)}  {registry.summary(cls)}')
    for module, error in broken.items():
        print(f'trainer: {module} cannot be imported: {error}', file=sys.stderr)
    return 1 if broken else 0


def read_params(values: flags.FlagValues) -> Any:
    """The experiment's Params with all overrides."""
    from lingpipe import registry
    params = registry.get(values.model)
    for text in values.set:
        path, equals, value = text.partition('=')
        if not equals or not path:
            raise ValueError(f'--set {text} has no value; write --set path=value, as --set pipeline.num_cells=4.')
        params.override(path.strip(), value)
    if values.steps is not None:
        params.train.num_steps = values.steps
    return params.validate()


def configure(params: Any) -> None:
    """Sets TensorFlow's devices and threads for the experiment."""
    import re

    import tensorflow as tf

    from lingpipe import cluster
    pipeline = params.pipeline
    num_gpus = len(tf.config.list_physical_devices('GPU'))
    named = [int(number) for device in pipeline.devices for number in re.findall(r'(?i)\bCPU:(\d+)', device)]
    num_cpus = max(named, default=-1) + 1 if pipeline.devices else pipeline.num_cells if num_gpus < pipeline.num_cells else 0
    cluster.configure(num_cpus, params.intra_op_threads)


def inspect(params: Any) -> int:
    """Prints the plan; makes no variable and looks for no device, so that it is quick for any network."""
    from lingpipe.overview import overview
    experiment = params.instantiate()
    print(overview(experiment.make_plan(), experiment.params.train_input.batch_size), end='')
    return 0


def train(params: Any, values: flags.FlagValues) -> int:
    """Trains, and evaluates unless mode is train."""
    claim(values.logdir, params)
    experiment = params.instantiate()
    loop = experiment.params.train.instantiate(experiment, values.logdir, has_evaluation=values.mode == 'train_and_eval',
                                               has_timeline=values.timeline)
    outcome = loop.run()
    if outcome.signal:
        return 128 + signal.Signals[outcome.signal].value
    print_outcome(outcome, values.logdir)
    return 0


def claim(logdir: str, params: Any) -> None:
    """Writes LOGDIR/params.txt, or raises ValueError if a training of another experiment is there already."""
    from lingpipe.checkpoint import Checkpointer
    from lingpipe.experiment import Experiment, check_resumable
    path = os.path.join(logdir, 'params.txt')
    if os.path.exists(path) and Checkpointer(os.path.join(logdir, 'checkpoints'), is_writer=False).steps():
        with open(path, encoding='utf-8') as file:
            text = file.read()
        try:
            stored = None if text == params.to_text() else Experiment.Params.from_text(text)
        except ValueError as error:
            raise ValueError(f'{path} cannot be read: {error}; if it is the same experiment, move that file away, or else choose another '
                             f'logdir.') from error
        if stored is not None:
            try:
                check_resumable(stored, params)
            except ValueError as error:
                raise ValueError(f'{logdir} cannot be gone on with: {error}') from error
    try:
        os.makedirs(logdir, exist_ok=True)
        with open(f'{path}.new', 'w', encoding='utf-8') as file:
            file.write(params.to_text())
        os.replace(f'{path}.new', path)
    except OSError as error:
        raise OSError(f'{logdir} cannot be written: {error}; choose another logdir.') from error


def evaluate(params: Any, logdir: str) -> int:
    """Evaluates the newest checkpoint on every eval input; reads the logdir and writes only summaries and pictures."""
    from lingpipe.checkpoint import Checkpointer
    from lingpipe.evaluate import Evaluations, metrics_text
    from lingpipe.summaries import Summaries
    experiment = params.instantiate()
    if not experiment.eval_inputs:
        raise ValueError('eval_inputs is empty; give the experiment one to evaluate on.')
    checkpoints = os.path.join(logdir, 'checkpoints')
    checkpointer = Checkpointer(checkpoints, is_writer=False)
    if not checkpointer.steps():
        raise ValueError(f'{checkpoints} has no checkpoint; train first, or correct --logdir.')
    program = experiment.make_program()
    metadata = checkpointer.restore(program.variables())
    assert metadata is not None
    evaluations = Evaluations(program, experiment.eval_inputs, experiment.task, logdir)
    for name in experiment.eval_inputs:
        evaluation = evaluations.run(name, metadata['step'])
        assert evaluation is not None
        picture = evaluation.picture
        summaries = Summaries(os.path.join(logdir, 'tensorboard', f'eval_{name}'))
        summaries.scalars(metadata['step'], evaluation.metrics)
        if picture:
            summaries.png(metadata['step'], picture.name, picture.path)
        summaries.close()
        print(f'step {metadata["step"]} on {name}: {metrics_text(evaluation.metrics)}')
        if picture:
            print(f'{picture.text}: {picture.path}')
    return 0


def print_outcome(outcome: Any, logdir: str) -> None:
    """The end of a training: results, and where everything is."""
    from lingpipe.evaluate import metrics_text
    print(f'\ndone after {outcome.step} steps')
    rows = [(f'  {name}', metrics_text(metrics)) for name, metrics in outcome.metrics.items()]
    if outcome.best:
        rows.append(('  best', f'{outcome.best[1]:.4g} at step {outcome.best[0]}'))
    if outcome.timeline:
        rows += [('  timeline', outcome.timeline.text()), ('  pictures', f'{outcome.timeline.png}, {outcome.timeline.trace}')]
    rows += [('  picture', f'{picture.text}: {picture.path}') for picture in outcome.pictures.values()]
    rows.append(('  checkpoints', os.path.join(logdir, 'checkpoints')))
    rows.append(('  TensorBoard', f'tensorboard --logdir={os.path.join(logdir, "tensorboard")}'))
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f'{name.ljust(width)}  {text}')


if __name__ == '__main__':
    sys.exit(main(sys.argv))
