"""The trainer's flags are these, and each reaches the options."""
from lingpipe.commands.flags import define_flags, options_of
from lingpipe.commands.run_options import MODES, RunOptions


def test_flags_are_these():
    flags = define_flags()
    assert sorted(flags) == ['address', 'allow_change', 'change_statistics', 'checkpoint',
                             'decode_input', 'decode_line_limit', 'decode_output', 'device_type',
                             'devices', 'export_dtype', 'export_path', 'format', 'h',
                             'hangs_after_s', 'help', 'json', 'list', 'logdir', 'mode', 'model',
                             'plan', 'predict_input', 'predict_output', 'set', 'steps',
                             'tensorflow_log', 'timeline', 'traceback', 'watch']
    assert list(MODES) == ['train_and_eval', 'train', 'eval', 'inspect', 'plan', 'worker',
                           'decode', 'predict', 'export']


def test_options_are_the_flags():
    flags = ['--mode=decode', '--model=tests.support.tiny_experiment.Tiny', '--set=seed=1',
             '--set', 'train.keep=2', '--steps=3',
             '--logdir=log', '--devices=cpu:2', '--address=a:1', '--hangs_after_s=4', '--timeline',
             '--decode_input=in', '--decode_output=out', '--decode_line_limit=5',
             '--device_type=h100', '--plan=auto', '--change_statistics', '--json',
             '--predict_input=x', '--predict_output=y', '--export_path=z', '--format=npz',
             '--export_dtype=float16', '--checkpoint=best', '--allow_change=seed',
             '--allow_change=task.*']
    values = define_flags()
    values(['trainer', *flags])
    assert options_of(values, flags) == RunOptions(
        mode='decode', model='tests.support.tiny_experiment.Tiny',
        overrides=('seed=1', 'train.keep=2'), num_steps=3, logdir='log', devices='cpu:2',
        address='a:1', hangs_after_s=4., has_timeline=True, decode_input='in', decode_output='out',
        decode_line_limit=5, device_type='h100', has_auto_plan=True, may_change_statistics=True,
        is_json=True, predict_input='x', predict_output='y', export_path='z', export_format='npz',
        export_dtype='float16', checkpoint='best', allow_change=('seed', 'task.*'),
        command_line=tuple(flags))


def test_paths_may_begin_with_the_home_directory(monkeypatch):
    """A shell expands only the ~ at the beginning of a word."""
    monkeypatch.setenv('HOME', '/home/me')
    values = define_flags()
    values(['trainer', '--logdir=~/runs', '--export_path=~/out'])
    options = options_of(values)
    assert (options.logdir, options.export_path) == ('/home/me/runs', '/home/me/out')
