"""The trainer: its help, its errors, and what a kill, a signal or a restart does to a run."""
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import trainer
from lingpipe.checkpoint import Checkpointer
from lingpipe.commands import device_setup, experiment_params
from lingpipe.commands.flags import define_flags
from lingpipe.commands.run_options import RunOptions
from lingpipe.layers.weight import Weight
from lingpipe.training import experiment_modules
from lingpipe.training.evaluation_log import EvaluationLog
from lingpipe.training.problem import Problem
from tests.support import kill_often, tiny_experiment
from tests.support.forks import Fork, environment, run_module, run_on_full_disk, run_unread

MODEL = '--model=tests.support.tiny_experiment.Tiny'


def run_here(monkeypatch, *flags):
    """Runs the trainer in this process, on the devices that the process already has."""
    monkeypatch.setattr(device_setup, 'configure', lambda params: None)
    return trainer.main(['trainer', *map(str, flags)])


@pytest.fixture(scope='module')
def trained_once(tmp_path_factory):
    """The logdir of a run of two steps."""
    logdir = tmp_path_factory.mktemp('trained')
    with pytest.MonkeyPatch.context() as patch:
        assert run_here(patch, MODEL, f'--logdir={logdir}', '--steps=2', '--mode=train') == 0
    return logdir


@pytest.fixture
def trained(trained_once, tmp_path):
    """A copy of that logdir, which a test may change."""
    return pathlib.Path(shutil.copytree(trained_once, tmp_path / 'trained'))


def error_of(capsys, monkeypatch, *flags):
    """Returns the one line that a wrong command prints."""
    assert run_here(monkeypatch, *flags) in (1, 2)
    captured = capsys.readouterr()
    assert 'Traceback' not in captured.err
    lines = [line for line in captured.err.splitlines() if line]
    assert len(lines) == 1, lines
    return lines[0]


# Flags.

@pytest.mark.parametrize('script', [trainer.train_script, trainer.inspect_script])
def test_the_commands_find_an_experiment_of_this_folder_beside_decoys(
        monkeypatch, capsys, tmp_path, script):
    """The path begins with the folder of the command, not with the folder in which it runs."""
    for decoy in ('params', 'tasks', 'tools'):
        (tmp_path / f'{decoy}.py').write_text('raise SystemExit("a decoy")')
    (tmp_path / 'mine_here.py').write_text(
        'from tests.support.tiny_experiment import Tiny as Mine\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', sys.path[:])
    monkeypatch.delitem(sys.modules, 'mine_here', raising=False)   # The other command has left it.
    mode = ['--mode=inspect'] if script is trainer.train_script else []
    for model in ('mine_here.Mine', 'image.digits.Dense'):
        monkeypatch.setattr(sys, 'argv', ['lingpipe-train', f'--model={model}', *mode])
        assert script() == 0
        assert 'cell' in capsys.readouterr().out


def test_params_that_a_command_gets_are_frozen():
    params = experiment_params.read_params(RunOptions('train', 'tests.support.tiny_experiment.Tiny',
                                            ('seed=1',), 7))
    assert (params.seed, params.train.num_steps) == (1, 7)
    with pytest.raises(ValueError, match='frozen'):
        params.pipeline.set(devices=('/device:CPU:0', '/device:CPU:1'))


def test_help_prints_every_flag(capsys):
    assert trainer.main(['trainer', '--help']) == 0
    out = capsys.readouterr().out
    assert all(f'--{name}' in out or f'--[no]{name}' in out
               for name in define_flags() if len(name) > 1)


@pytest.mark.parametrize('flags, error', [
    (['--modle=x'], r"trainer: Unknown command line flag 'modle'\. Did you mean: mode, model"),
    (['--mode=fly'], r'trainer: flag --mode=fly: value should be one of '
                     r"<train_and_eval\|train\|eval\|inspect\|plan\|worker\|"
                     r"decode\|predict\|export>"),
    (['--list=maybe'], r'trainer: flag --list=maybe: write true or false; --help lists'),
    (['--json'], r'trainer: --json is for --mode=plan, and this is --mode=train_and_eval; write '
                 r'--mode=plan, or leave --json out; --help lists all flags\.'),
    (['--mode=inspect', '--timeline'], r'--timeline is for --mode=train_and_eval or --mode=train,'),
    (['model=x'], r"trainer: 'model=x' is no flag; write --model=NAME --logdir=DIR"),
    (['--mode=worker', '--hangs_after_s=0.5'], r'trainer: flag --hangs_after_s=0\.5: '),
    ([], r'trainer: --model is missing; --list shows all experiments\.'),
    ([MODEL], r'trainer: --logdir is missing; name a directory'),
    (['--model=tests.support.tiny_experiment.Tinny'],
     r"trainer: there is no experiment 'tests.support.tiny_experiment.Tinny'"),
    (['--model=../image.Tiny'], r"trainer: there is no experiment '\.\./image\.Tiny'; "),
    ([MODEL, '--set', 'pipeline.num_cells'],
     r'trainer: --set pipeline\.num_cells has no value; write --set path=value'),
    ([MODEL, '--set', 'pipeline.num_cels=2'],
     r"pipeline\.num_cels does not exist: .*did you mean 'num_cells'\?"),
    ([MODEL, '--set', 'pipeline.num_cells=two'],
     r'pipeline\.num_cells=two is not of type int; give a value of type int; auto leaves it to the '
     'planner$'),
    ([MODEL, '--set', 'pipeline.recompute=celll'],
     r"pipeline\.recompute=celll is not .* did you mean 'cell'\? auto leaves it to the planner$"),
    ([MODEL, '--set', 'pipeline.schedule=1f1bb'], r"did you mean '1f1b'\?$"),
    ([MODEL, '--set', 'train.keep=0'], 'train.keep=0 is below 1; use 1 or more'),
    ([MODEL, '--set', 'pipeline.num_micro_batches=3', '--mode=inspect'],
     r'num_micro_batches=3 does not divide the batch of 8 examples'),
    ([MODEL, '--set', 'pipeline.num_replicas=3', '--mode=inspect'],
     r'num_replicas=3 does not divide the batch of 8 examples'),
    ([MODEL, '--set', 'pipeline.num_cells=9', '--mode=inspect'], r'num_cells=9'),
    ([MODEL, '--logdir=/dev/null/x'],
     r'trainer: /dev/null/x cannot be written: .*choose another logdir\.'),
    ([MODEL, '--logdir=/nowhere', '--mode=eval'],
     r'trainer: /nowhere/checkpoints has no checkpoint; train first, or correct the logdir\.'),
    ([MODEL, '--logdir=/nowhere', '--mode=eval', '--checkpoint=last'],
     r'trainer: --checkpoint=last is no checkpoint; write newest, best, or the number of a step'),
    ([MODEL, '--logdir=/nowhere', '--watch'],
     r'trainer: --watch is for --mode=eval, and this is --mode=train_and_eval; write --mode=eval'),
    ([MODEL, '--logdir=/nowhere', '--mode=eval', '--watch', '--checkpoint=3'],
     r'trainer: --checkpoint=3 names one checkpoint, and --watch evaluates all new ones'),
    ([MODEL, '--logdir=/nowhere', '--mode=decode', '--decode_input=/no/file'],
     r'trainer: /no/file cannot be read: .*correct --decode_input\.'),
])
def test_mistake_is_one_sentence(capsys, monkeypatch, flags, error):
    assert re.search(error, error_of(capsys, monkeypatch, *flags))


def test_a_logdir_that_is_not_utf_8_is_a_wrong_flag():
    """TensorFlow refused it in words of its own, after files had been written."""
    process = subprocess.run(   # The errors of a Fork must be UTF-8 too.
        [sys.executable, '-m', 'lingpipe.trainer', MODEL, '--logdir=a\udcffb'], env=environment(),
        stderr=subprocess.PIPE, text=True, check=False)
    assert (process.returncode, process.stderr) == (
        2, r'trainer: flag --logdir=a\udcffb: the path is not UTF-8, and TensorFlow opens no '
           'other; choose another directory; --help lists all flags.\n')


def test_a_mistake_that_the_trainer_itself_finds_needs_no_traceback():
    """Its module is called __main__ in python -m, and was taken for a user's."""
    process = Fork(run_module, 'lingpipe.trainer')
    _, err = process.communicate()
    assert (process.returncode, err) == (
        1, 'trainer: --model is missing; --list shows all experiments.\n')


def fprop_that_fails(self, theta, ctx, x):
    raise KeyError('units')


def cost_that_fails(self, x):
    raise TypeError('no units')


@pytest.mark.parametrize('method, replacement, expected', [
    ('fprop', fprop_that_fails,
     r"^trainer: KeyError: 'units' \(in layer model/dense_\d\) \(--traceback shows where\.\)$"),
    ('cost', cost_that_fails,
     r'^trainer: TypeError: no units \(while pricing model/dense_0 for x: .*\)$'),
])
def test_whatever_a_layer_raises_is_one_sentence_that_names_it(
        capsys, monkeypatch, tmp_path, method, replacement, expected):
    monkeypatch.setattr(tiny_experiment.Dense, method, replacement)
    assert re.search(expected, error_of(capsys, monkeypatch, MODEL, f'--logdir={tmp_path}'))


@pytest.mark.parametrize('module, hint', [
    ('lingpipe.layers.mine', ''),
    ('lingpipe.tasks.mine', r' \(--traceback shows where\.\)'),
    ('lingpipe.params.mine', r' \(--traceback shows where\.\)'),
    ('mine', r' \(--traceback shows where\.\)'),
])
def test_an_error_of_a_users_code_says_how_to_find_its_place(
        capsys, monkeypatch, tmp_path, module, hint):
    """Experiments and tasks that were installed below lingpipe lost the hint."""
    names = {'__name__': module}
    exec("def fprop(self, theta, ctx, x):\n    raise ValueError('no units')", names)
    monkeypatch.setattr(tiny_experiment.Dense, 'fprop', names['fprop'])
    assert re.search(rf'^trainer: no units \(in layer model/dense_\d\){hint}$',
                     error_of(capsys, monkeypatch, MODEL, f'--logdir={tmp_path}'))


@pytest.mark.parametrize('run, expected', [
    (run_unread, 'nobody reads the standard output any more. The run goes on'),
    (run_on_full_disk,
     'the standard output cannot be written: No space left on device. The run goes on'),
])
def test_a_training_goes_on_when_its_output_cannot_be_written(tmp_path, run, expected):
    """A run whose output went to a file ended when the disk was full.

    Its own files may be left out in that case.
    """
    process = Fork(run, 'lingpipe.trainer', MODEL, f'--logdir={tmp_path}/log', '--mode=train',
                   '--steps=3', env=environment())
    _, err = process.communicate()
    assert (process.returncode, err) == (0, '')
    log = (tmp_path / 'log' / 'train.log').read_text()
    assert expected in log
    assert 'step 3/3' in log


@pytest.mark.parametrize('run', [run_unread, run_on_full_disk])
def test_a_watch_goes_on_when_its_output_cannot_be_written(trained, run):
    """It ended before it had added to evaluations.jsonl."""
    process = Fork(run, 'lingpipe.trainer', MODEL, f'--logdir={trained}', '--mode=eval', '--watch',
                   '--steps=2', env=environment())
    _, err = process.communicate()
    assert (process.returncode, err) == (0, '')
    assert [line['step'] for line in EvaluationLog(str(trained)).read()] == [1, 2]


@pytest.mark.parametrize('flags', [
    ['--mode=eval'], ['--mode=inspect'], ['--mode=predict', '--predict_input=test']])
def test_a_command_whose_result_finds_no_room_says_where(trained, flags):
    process = Fork(run_on_full_disk, 'lingpipe.trainer', MODEL, f'--logdir={trained}', *flags,
                   env=environment())
    _, err = process.communicate()
    assert (process.returncode, err) == (
        1, 'trainer: standard output cannot be written: No space left on device; make room, or '
           'send it elsewhere.\n')


def test_list_prints_names_and_first_lines(capsys, monkeypatch, tmp_path):
    (tmp_path / 'params').mkdir()
    (tmp_path / 'params' / '__init__.py').write_text('')
    (tmp_path / 'params' / 'tiny.py').write_text(pathlib.Path(tiny_experiment.__file__).read_text())
    (tmp_path / 'params' / 'bad.py').write_text('1 / 0')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(experiment_modules, 'ROOT', 'params')

    for name in list(sys.modules):
        if name == 'params' or name.startswith('params.'):
            monkeypatch.delitem(sys.modules, name)

    before = set(sys.modules)
    try:
        assert trainer.main(['trainer', '--list']) == 1
    finally:
        for name in {name for name in sys.modules
                     if name == 'params' or name.startswith('params.')} - before:
            del sys.modules[name]

    captured = capsys.readouterr()
    assert captured.out == 'tiny.Tiny  Four dense layers learn a linear map.\n'
    assert captured.err == 'trainer: params.bad cannot be imported: division by zero\n'


def test_inspect_makes_no_weight_and_needs_no_device(capsys, monkeypatch):
    monkeypatch.setattr(Weight, 'initial_value', None)
    monkeypatch.setattr(tf.config, 'list_logical_devices', None)
    billion = ['--set=train_input.dim=16384',
               *[f'--set=task.model.layers[{i}].dim=16384' for i in range(4)]]
    assert trainer.main(['trainer', MODEL, '--mode=inspect', '--set=pipeline.num_cells=5',
                         '--set=pipeline.schedule=gpipe', *billion]) == 0
    out = capsys.readouterr().out
    assert ('1,073,741,824 parameters in 5 cells\n'
            '2 micro-batches of 4 examples; schedule gpipe, recompute cell\n') in out
    assert re.search(r'predicted bubble [\d.]+%, balance 80\.0% \(mean cell / slowest cell\)', out)
    assert re.search(r'^ +3 CPU:3 +1 +2\.147 +268 M ', out, re.MULTILINE)
    assert '\ncell 4: model/loss .. model/loss\n' in out
    assert out.endswith('F0 F1 .. .. .. .. .. .. .. B0 .. B1\n'
                        '.. F0 F1 .. .. .. .. .. B0 .. B1 ..\n'
                        '.. .. F0 F1 .. .. .. B0 .. B1 .. ..\n'
                        '.. .. .. F0 F1 .. B0 .. B1 .. .. ..\n'
                        '.. .. .. .. B0 -- B1 -- .. .. .. ..\n')


def test_inspect_fits_into_80_columns_and_needs_no_gpu(capsys):
    flags = ['--mode=inspect', '--model=image.imagenet.AmoebaNetD18x256', '--devices=gpu:0-7',
             '--set=task.model.layers[1].num_filters=1024']   # 1.9 G weights.
    assert trainer.main(['trainer', *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    end = lines.index('')
    assert [line[:10].strip() for line in lines[:6]] == [
        'fits', 'temporary', 'waiting', 'speed-up', 'bubble', 'to change']
    assert {line[:10].strip() for line in lines[6:end]} == {'seconds', 'devices', ''}
    assert max(map(len, lines[:end])) <= 80
    lines = lines[end + 1:]
    assert lines[0].split() == ['cell', 'device', 'layers', 'GFLOPs', 'params', 'state', 'MB',
                                'held', 'MB', 'peak', 'MB', 'sent', 'MB', 'share']
    assert [line.split()[:2] for line in lines[1:9]] == [[str(k), f'GPU:{k}'] for k in range(8)]
    assert max(len(line) for line in lines if not line.startswith('cell ')) <= 80


# Logdirs.

def test_train_and_eval_prints_results_and_places(capsys, monkeypatch, tmp_path):
    assert run_here(monkeypatch, MODEL, f'--logdir={tmp_path}', '--steps=6', '--timeline') == 0
    end = capsys.readouterr().out.split('done after 6 steps\n')[1]
    assert re.search(r'^  test +loss [\d.]+  error [\d.]+$', end, re.MULTILINE)
    assert re.search(r'^  timeline +bubble of step 6: measured [\d.]+% \(median of 4 steps, .*\), '
                     r'predicted [\d.]+% from FLOPs', end, re.MULTILINE)
    for place in ('timeline/step-00000006.png', 'timeline/step-00000006.json', 'checkpoints',
                  'tensorboard', 'params.txt'):
        assert (tmp_path / place).exists() and (place in end or place == 'params.txt')


def test_eval_gives_the_numbers_of_the_end_of_the_training(capsys, monkeypatch, tmp_path):
    run_here(monkeypatch, MODEL, f'--logdir={tmp_path}', '--steps=3')
    trained: Any = re.search(r'^  test +(loss .*)$', capsys.readouterr().out, re.MULTILINE)
    assert run_here(monkeypatch, MODEL, f'--logdir={tmp_path}', '--mode=eval',
                    '--set=pipeline.num_cells=1') == 0
    assert capsys.readouterr().out == f'step 3 on test: {trained[1]}\n'


def test_watch_evaluates_every_checkpoint_once_and_marks_the_best(capsys, monkeypatch, tmp_path):
    run_here(monkeypatch, MODEL, f'--logdir={tmp_path}', '--steps=6', '--mode=train',
             '--set=train.checkpoint_every_steps=2')
    flags = (MODEL, f'--logdir={tmp_path}', '--mode=eval', '--watch', '--set=train.keep=1')
    capsys.readouterr()
    assert run_here(monkeypatch, *flags) == 0
    log = EvaluationLog(str(tmp_path)).read()
    assert [(line['step'], line['input']) for line in log] == [(s, 'test') for s in (2, 4, 6)]
    printed = capsys.readouterr().out
    assert f'step 4 on test: loss {log[1]["loss"]:.4g}  error' in printed
    best = min(log, key=lambda line: line['loss'])['step']
    assert Checkpointer(str(tmp_path / 'checkpoints'), is_writer=False).best()[0] == best

    assert run_here(monkeypatch, *flags) == 0
    assert capsys.readouterr().out == 'the run has ended, and all its checkpoints are evaluated\n'


def test_decode_writes_what_the_task_makes_of_every_line(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(Problem, 'facts', lambda self, source: {'seen': 3})
    run_here(monkeypatch, MODEL, f'--logdir={tmp_path}', '--steps=2')
    monkeypatch.setattr(Problem, 'decode', lambda self, program, lines, facts: [
        f'{line}/{facts["seen"]}' for line in lines])
    (tmp_path / 'in').write_bytes('b\n\na\u2028c\r\n'.encode())
    capsys.readouterr()
    assert run_here(monkeypatch, MODEL, f'--logdir={tmp_path}', '--mode=decode',
                    f'--decode_input={tmp_path}/in') == 0
    assert capsys.readouterr().out == 'b/3\n/3\na\u2028c/3\n'
    assert run_here(monkeypatch, MODEL, f'--logdir={tmp_path}', '--mode=decode',
                    f'--decode_input={tmp_path}/in', f'--decode_output={tmp_path}/out') == 0
    assert (tmp_path / 'out').read_text() == 'b/3\n/3\na\u2028c/3\n'


def test_decoded_line_that_is_too_long_is_named_before_anything_is_decoded(
        capsys, monkeypatch, tmp_path):
    (tmp_path / 'in').write_text(f'a\n{"b" * 1_000_000}\nc\n')
    flags = MODEL, f'--logdir={tmp_path}', '--mode=decode', f'--decode_input={tmp_path}/in'
    assert error_of(capsys, monkeypatch, *flags) == (
        f'trainer: line 2 of {tmp_path}/in has 1,000,000 characters, and --decode_line_limit=10000 '
        f'is the most; split it into sentences, a line each, or raise that flag.')
    assert ('has no checkpoint'
            in error_of(capsys, monkeypatch, *flags, '--decode_line_limit=1000000'))


def test_worker_has_the_patience_of_its_flag(monkeypatch):
    served = []
    monkeypatch.setattr(
        'lingpipe.cluster.server.serve',
        lambda address, config, hangs_after_s, _: served.append((address, hangs_after_s)))
    for flags in ([], ['--hangs_after_s=7']):
        trainer.main(['trainer', '--mode=worker', '--devices=cpu:1', '--address=127.0.0.1:1',
                      *flags])
    assert served == [('127.0.0.1:1', 60.), ('127.0.0.1:1', 7.)]


def test_weights_are_refused_an_input_that_they_do_not_understand(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(Problem, 'facts', lambda self, source: {'seen': 3})
    run_here(monkeypatch, MODEL, f'--logdir={tmp_path}', '--steps=2')

    def check(self, facts, source):
        if facts != self.facts(source):
            raise ValueError(f'they were trained with {facts}; use that')

    monkeypatch.setattr(Problem, 'check_facts', check)
    monkeypatch.setattr(Problem, 'facts', lambda self, source: {'seen': 4})
    for flag in ('--steps=3', '--mode=eval'):
        assert ("they were trained with {'seen': 3}; use that"
                in error_of(capsys, monkeypatch, MODEL, f'--logdir={tmp_path}', flag))


def test_decode_is_refused_by_a_task_that_makes_no_text(capsys, monkeypatch, trained, tmp_path):
    (tmp_path / 'in').write_bytes(b'a\n\xff\n')
    flags = (MODEL, f'--logdir={trained}', '--mode=decode', f'--decode_input={tmp_path}/in')
    assert re.search(r'line 2 of .*/in is not UTF-8; convert it',
                     error_of(capsys, monkeypatch, *flags))
    (tmp_path / 'in').write_bytes(b'a\n')
    assert re.search(
        r'Problem has no decode\(\), so that it cannot answer lines of text; use --mode=predict',
        error_of(capsys, monkeypatch, *flags))


def test_logdir_of_another_experiment_is_refused_and_kept(capsys, monkeypatch, trained):
    before = (trained / 'params.txt').read_text()
    for override in ('seed=3', 'task.learner.clip_norm=1', 'train_input.seed=1',
                     'pipeline.num_micro_batches=4', 'intra_op_threads=2'):
        path, value = override.split('=')
        error = error_of(capsys, monkeypatch, MODEL, f'--logdir={trained}', '--steps=4',
                         f'--set={override}')
        assert re.search(
            rf'cannot resume training in {trained}: it holds a run whose {re.escape(path)} \(was '
            rf'[\w.]+, is {value}[.0]*\) differ.* Set them back, or choose another logdir',
            error)
    assert (trained / 'params.txt').read_text() == before


def test_cells_schedule_and_lengths_may_change(monkeypatch, trained):
    assert run_here(monkeypatch, MODEL, f'--logdir={trained}', '--steps=3',
                    '--set=pipeline.num_cells=4', '--set=pipeline.schedule=gpipe',
                    '--set=pipeline.recompute=none', '--set=train.keep=1') == 0
    assert 'pipeline.num_cells : 4\n' in (trained / 'params.txt').read_text()


# Processes.

def checkpoint_of(logdir, step):
    """Returns the arrays of a checkpoint by name."""
    reader = tf.train.load_checkpoint(f'{logdir}/checkpoints/step-{step:08d}/variables')
    return {name: reader.get_tensor(name)
            for name in reader.get_variable_to_shape_map() if name.startswith('variables/')}


@pytest.mark.slow
def test_training_killed_ten_times_has_the_bits_of_an_uninterrupted_one(monkeypatch, tmp_path):
    flags = [MODEL, '--mode=train', '--steps=60', '--set=pipeline.num_cells=1']
    killed = Fork(kill_often.main, f'{tmp_path}/killed', 10, 0, flags, env=environment())
    out, err = killed.communicate(timeout=200)
    assert killed.returncode == 0, err
    assert out.count('killed at') == 10
    assert run_here(monkeypatch, f'--logdir={tmp_path}/whole', *flags) == 0
    found, expected = checkpoint_of(tmp_path / 'killed', 60), checkpoint_of(tmp_path / 'whole', 60)
    assert found.keys() == expected.keys() and len(found) == 16
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


@pytest.mark.slow
def test_sigterm_saves_and_the_same_command_goes_on(tmp_path):
    command = ['lingpipe.trainer', MODEL, '--logdir=log', '--mode=train',
               '--set=train.checkpoint_every_steps=100000']
    process = subprocess.Popen([sys.executable, '-m', *command, '--steps=100000'],
                               env=environment(), cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)

    log, deadline = tmp_path / 'log' / 'train.log', time.monotonic() + 60
    while not (log.exists() and 'step 2/' in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)

    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    stopped: Any = re.search(r'SIGTERM: stopped after step (\d+), whose checkpoint is saved; the '
                             r'same command goes on from there\n',
                             out)
    assert process.returncode == 143, err
    assert err == ''   # TensorFlow is quiet

    step = int(stopped[1])
    again = Fork(run_module, *command, f'--steps={step + 2}', env=environment(), cwd=tmp_path)
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert f'going on after step {step}, from log/checkpoints' in out
    assert f'done after {step + 2} steps' in out
