"""Trainer: trains, evaluates or inspects a registered experiment.

    python -m lingpipe.trainer --list
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --mode=inspect --set pipeline.num_cells=8
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --logdir=/tmp/digits
    python -m lingpipe.trainer --model=image.digits.AmoebaNet --logdir=/tmp/digits --devices=127.0.0.1:2222,127.0.0.1:2223
    python -m lingpipe.trainer --mode=worker --address=127.0.0.1:2222
    python -m lingpipe.trainer --model=NAME --logdir=DIR --mode=decode --decode_input=FILE --decode_output=FILE
    tensorboard --logdir=/tmp/digits/tensorboard

Exit codes: 0 all done; 1 a mistake, or a training that failed, in one sentence on stderr; 2 wrong flags; 143 and 130 stopped by SIGTERM
and Ctrl-C, with a checkpoint saved, so that whoever started it knows that it is not done: the same command goes on from there.
A training that loses a worker starts its own process again, which waits for the worker and goes on from the last checkpoint.
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

MODES = ('train_and_eval', 'train', 'eval', 'inspect', 'worker', 'decode')
_FRUITLESS = 'LINGPIPE_FRUITLESS_STARTS'   # environment variable 'STEP NUMBER': how often it has started again from that step
_MAX_FRUITLESS = 10


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
    flags.DEFINE_string('decode_input', '', 'Of --mode=decode: the file of lines, UTF-8; default: standard input.', flag_values=values)
    flags.DEFINE_string('decode_output', '', 'Of --mode=decode: the file of results, a line for every line; default: standard output.',
                        flag_values=values)
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
        return run(values, argv)
    except (ValueError, ArithmeticError, OSError) as error:
        if values.traceback:
            traceback.print_exc()
        frames = list(traceback.walk_tb(error.__traceback__))
        is_ours = frames[-1][0].f_globals.get('__name__', '').split('.')[0] == 'lingpipe'   # or else it says too little by itself
        print(f'trainer: {error}{"" if is_ours or values.traceback else " (--traceback shows where.)"}', file=sys.stderr)
        return 1


def run(values: flags.FlagValues, argv: Sequence[str]) -> int:
    """What `main` does once the flags are known."""
    if values.list:
        return print_list()
    if values.mode == 'worker':
        return serve(values)
    if not values.model:
        raise ValueError('--model is missing; --list shows all experiments.')
    params = read_params(values)
    if values.mode == 'inspect':
        return inspect(params, values)
    if not values.logdir:
        raise ValueError('--logdir is missing; name a directory for checkpoints and summaries.')
    if values.mode == 'eval':
        place(params, values)
        return evaluate(params, values.logdir)
    if values.mode == 'decode':
        return decode(params, values)
    from lingpipe.cluster.workers import LostWorkerError
    try:
        return train(params, values, argv)
    except LostWorkerError as error:
        start_again(str(error), values.logdir, argv)
        raise AssertionError from error


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


def place(params: Any, values: flags.FlagValues) -> Any:
    """Finds the devices, sets TensorFlow up for them, and connects to workers.

    Returns:
      The Connection, or None if all devices are of this process.
    """
    if not values.devices:
        configure(params)
        return None
    import tensorflow as tf

    from lingpipe import cluster
    from lingpipe.cluster import devices, hosts, workers
    found = devices.find(values.devices, params.pipeline.num_devices, params.train.worker_timeout_s)
    params.pipeline.devices = found.names
    cluster.configure(found.num_cpus, params.intra_op_threads)
    if any('TPU' in name for name in found.names) and not found.workers:
        tf.tpu.experimental.initialize_tpu_system(tf.distribute.cluster_resolver.TPUClusterResolver('local'))
    if not found.workers:
        return None
    address = hosts.own_address(values.address) if hosts.SOURCES.fullmatch(values.address) else values.address
    return workers.Connection(found.workers, address, params.train.worker_timeout_s)


def serve(values: flags.FlagValues) -> int:
    """A worker; it ends with a signal. --model and --set say how many threads an op has, as in the training."""
    if not values.address:
        raise ValueError('--address is missing; name the address that the worker listens at, as 127.0.0.1:2222.')
    from lingpipe.cluster import hosts, server
    params = read_params(values) if values.model else None
    config = server.session_config(values.devices, params.intra_op_threads if params else 1,
                                   params.pipeline.use_graph_optimizer if params else False)
    server.serve(hosts.own_address(values.address) if hosts.SOURCES.fullmatch(values.address) else values.address, config)


def inspect(params: Any, values: flags.FlagValues) -> int:
    """Prints the plan; makes no variable, so that it is quick for any network. Only --devices is looked for."""
    from lingpipe.overview import overview
    if values.devices:
        from lingpipe.cluster import devices
        params.pipeline.devices = devices.find(values.devices, params.pipeline.num_devices, params.train.worker_timeout_s).names
    experiment = params.instantiate()
    print(overview(experiment.make_plan(), experiment.params.train_input.batch_size), end='')
    return 0


def train(params: Any, values: flags.FlagValues, argv: Sequence[str]) -> int:
    """Trains, and evaluates unless mode is train.

    Raises:
      LostWorkerError: a worker is gone.
    """
    claim(values.logdir, params)
    connection = place(params, values)
    if connection is None:
        return run_loop(params, values, None)
    import tensorflow as tf

    from lingpipe.cluster.watchdog import Watchdog
    watchdog = Watchdog(connection, params.train.step_timeout_s, lambda why: start_again(why, values.logdir, argv))
    try:
        return run_loop(params, values, watchdog)
    except tf.errors.OpError as error:
        lost = connection.lost(error)
        if lost is None:
            raise
        raise lost from error
    finally:
        watchdog.stop()


def run_loop(params: Any, values: flags.FlagValues, watchdog: Any) -> int:
    """The training itself."""
    experiment = params.instantiate()
    loop = experiment.params.train.instantiate(experiment, values.logdir, has_evaluation=values.mode == 'train_and_eval',
                                               has_timeline=values.timeline, watchdog=watchdog)
    outcome = loop.run()
    if outcome.signal:
        return 128 + signal.Signals[outcome.signal].value
    print_outcome(outcome, values.logdir)
    return 0


def start_again(why: str, logdir: str, argv: Sequence[str]) -> None:
    """Replaces this process by another with the same command: TensorFlow can neither drop a lost worker nor stop waiting for one.

    It ends with exit code 1 instead when _MAX_FRUITLESS starts in a row have found no newer checkpoint.
    """
    import fcntl

    from lingpipe.checkpoint import Checkpointer
    step = max(Checkpointer(os.path.join(logdir, 'checkpoints'), is_writer=False).steps(), default=0)
    before, _, number = os.environ.get(_FRUITLESS, '').partition(' ')
    num_starts = int(number) + 1 if before == str(step) else 1
    is_last = num_starts > _MAX_FRUITLESS
    end = f'{_MAX_FRUITLESS} starts have not come further: look at the workers' if is_last else 'the trainer starts again from there'
    line = f'{why}; the last checkpoint is of step {step}: {end}'
    with open(os.path.join(logdir, 'train.log'), 'a', encoding='utf-8') as file:
        file.write(line + '\n')
    print(line, flush=True)
    sys.stderr.flush()
    if is_last:
        os._exit(1)
    os.environ[_FRUITLESS] = f'{step} {num_starts}'
    for name in os.listdir('/proc/self/fd') if os.path.isdir('/proc/self/fd') else ():
        if int(name) > 2:
            try:
                fcntl.fcntl(int(name), fcntl.F_SETFD, fcntl.FD_CLOEXEC)   # a server's socket must not outlive it
            except OSError:
                pass
    os.execv(sys.executable, [sys.executable, '-m', 'lingpipe.trainer', *argv[1:]])


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
    from lingpipe.evaluate import Evaluations, metrics_text
    from lingpipe.summaries import Summaries
    experiment = params.instantiate()
    if not experiment.eval_inputs:
        raise ValueError('eval_inputs is empty; give the experiment one to evaluate on.')
    program, metadata = restored(experiment, logdir)
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


def restored(experiment: Any, logdir: str) -> tuple[Any, dict[str, Any]]:
    """The experiment's program with the weights of the newest checkpoint, and the checkpoint's metadata."""
    from lingpipe.checkpoint import Checkpointer
    checkpoints = os.path.join(logdir, 'checkpoints')
    checkpointer = Checkpointer(checkpoints, is_writer=False)
    if not checkpointer.steps():
        raise ValueError(f'{checkpoints} has no checkpoint; train first, or correct --logdir.')
    program = experiment.make_program()
    metadata = checkpointer.restore(program.variables())
    assert metadata is not None
    return program, metadata


def decode(params: Any, values: flags.FlagValues) -> int:
    """Gives the task the lines and writes what it makes of them, in the same order; only the output is written."""
    import contextlib
    lines = read_lines(values.decode_input)
    place(params, values)
    experiment = params.instantiate()
    program, metadata = restored(experiment, values.logdir)
    found = experiment.task.decode(program, lines, metadata.get('task', {}))
    assert len(found) == len(lines), (len(found), len(lines))
    path = values.decode_output
    try:
        with open(f'{path}.new', 'w', encoding='utf-8') if path else contextlib.nullcontext(sys.stdout) as file:
            file.writelines(f'{line}\n' for line in found)
        if path:
            os.replace(f'{path}.new', path)
    except OSError as error:
        raise OSError(f'{path or "standard output"} cannot be written: {error}; correct --decode_output.') from error
    return 0


def read_lines(path: str) -> list[str]:
    """The lines of a file, or of standard input, without their ends."""
    try:
        if not path:
            content = sys.stdin.buffer.read()
        else:
            with open(path, 'rb') as file:
                content = file.read()
        lines = content.decode('utf-8-sig').split('\n')   # and at no other character that Unicode calls the end of a line
    except OSError as error:
        raise OSError(f'{path} cannot be read: {error}; correct --decode_input.') from error
    except UnicodeDecodeError as error:
        line = content[:error.start].count(b'\n') + 1
        raise ValueError(f'line {line} of {path or "standard input"} is not UTF-8; convert it, as with iconv -t UTF-8.') from error
    return [line.removesuffix('\r') for line in (lines if lines[-1] else lines[:-1])]


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
