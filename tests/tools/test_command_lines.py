"""All tools report mistakes in one sentence before any work, and print one object with --json."""
from __future__ import annotations

import json
import os
import subprocess

import pytest

from lingpipe.process.error_text import blaming
from lingpipe.tools import __main__ as tools_command
from lingpipe.tools import (
    bench_checkpoint,
    bench_decoder,
    bench_generation,
    bench_link,
    bench_pipeline,
    bench_scale,
    bench_text,
    build_corpus,
    check_devices,
    compare_checkpoints,
    compare_keras,
    compare_params,
    get_mediawiki,
    largest_model,
    launch_kubernetes,
    launch_local,
    launch_slurm,
    paper_tables,
    plot_partition,
    repeat,
    score_translations,
    secure_links,
    show_partition,
    show_schedule,
    train_vocabulary,
    try_faults,
)
from tests.support.forks import Fork, run_unread

ALL = [
    bench_checkpoint, bench_decoder, bench_generation, bench_link, bench_pipeline, bench_scale,
    bench_text, build_corpus, check_devices, compare_checkpoints, compare_keras, compare_params,
    get_mediawiki, largest_model, launch_kubernetes, launch_local, launch_slurm, paper_tables,
    plot_partition, repeat, score_translations, secure_links, show_partition, show_schedule,
    train_vocabulary, try_faults]
DENSE = '--model=image.digits.Dense'
TRAINER = ['--', '--model=x', '--logdir=y']


def mistake_of(capsys, tool, *flags):
    """Returns the one line on stderr of a command that must fail."""
    with pytest.raises(SystemExit) as ended:
        tool.main(list(flags))
    printed = capsys.readouterr()
    if isinstance(ended.value.code, str):   # Python prints it at the end of the process.
        assert printed.err == ''
        return ended.value.code
    assert ended.value.code != 0
    line, = printed.err.splitlines()
    return line


@pytest.mark.parametrize('tool, flags, sentence', [
    (compare_keras, ['--batch=3'], '--batch=3 is odd, and a mini-batch is cut into two; use an'),
    (bench_pipeline, ['--batch=0'], '--batch=0 is below 1; use 1 or more'),
    (bench_pipeline, ['--threads=-1'], '--threads=-1 is below 1; use 1 to 1024'),
    (bench_pipeline, ['--workers=-1'], '--workers=-1 is below 0; use 0 to 1024'),
    (bench_pipeline, ['--steps=ten'], "argument --steps: invalid int value: 'ten'"),
    (bench_pipeline, ['--device_ms=5'],
     "argument --device_ms: '5' has 1 number, not 2; write them with commas between"),
    (bench_pipeline, ['--timeline=/dev/null/x.png'],
     '--timeline=/dev/null/x.png cannot be written: Not a directory; name a file'),
    (bench_pipeline, ['--num_cells=3', '--workers=2'],
     '--num_cells=3 on 3 devices do not divide among --workers=2; use a multiple'),
    (bench_pipeline, ['--compare=gpipe,1f2b'],
     "--compare has '1f2b'; write names with commas between: gpipe,1f1b,interleaved,"),
    (bench_pipeline, ['--compare=gpipe,1f1b'],
     '--compare has 1f1b more than once; --schedule=1f1b takes part anyway'),
    (bench_pipeline, ['--compare=gpipe', '--workers=2'],
     '--compare and --workers exclude each other; leave one of them out'),
    (bench_decoder, ['--dim=0'], '--dim=0 is below 4; use 4 or more'),
    (bench_decoder, ['--num_cells=10000000000000000000000'],
     '--num_cells=10000000000000000000000 is above 1024; use 1 to 1024'),
    (bench_link, ['--links_mb_s=1,0'], '--links_mb_s[1]=0.0 is below 1e-06; use 1e-06 or more'),
    (bench_link, ['--device_ms=nan,1'], '--device_ms[0]=nan is not a number; use 0 to 60000'),
    (bench_scale, ['--sizes=8x32,16'],
     "--sizes has '16'; write KxM, as 8x32,16x64, with 1 to 1024 cells"),
    (show_schedule, ['--forward=-1'], '--forward=-1.0 is below 0; use 0 to 1000000000.0'),
    (show_schedule, ['--num_cells=1000', '--num_micro_batches=1000'],
     'make 1000000 forwards; use at most 100000'),
    (show_schedule, ['--schedule=1f2b'], "schedule '1f2b' is unknown; did you mean '1f1b'?"),
    (show_schedule, ['--weight=3', '--backward=2'],
     '--weight=3 is more than --backward=2, of which it is a part; use less'),
    (compare_params, ['/none/params.txt', 'image.digits.AmoebaNet'],
     '/none/params.txt does not exist; name a file of Params as text, or a registered experiment'),
    (show_schedule, ['--schedule=--'], '--schedule=-- has no value; write one after ='),
    (show_schedule, ['--text=/none/at/all'],
     '--text=/none/at/all cannot be read: No such file or directory; name a file that holds'),
    (show_partition, [DENSE, '--set=pipeline.num_cells'],
     '--set pipeline.num_cells has no value; write --set path=value'),
    (show_partition, [DENSE, '--num_cells=100000'],
     'pipeline.num_cells=100000 is above 4096; use 1 to 4096'),
    (plot_partition, [DENSE, '--output=/dev/null/one.png'],
     '--output=/dev/null/one.png cannot be written: Not a directory; name'),
    (repeat, [DENSE, '--logdir=/nope', '--runs=0'], '--runs=0 is below 1; use 1 or more'),
    (repeat, [DENSE, '--logdir=/nope', '--set=train.keep=0'],
     'train.keep=0 is below 1; use 1 or more'),
    (paper_tables, ['--tables=4'], '--tables[0]=4.0 is above 3; use 1 to 3'),
    (paper_tables, ['--tables=one'],
     "argument --tables: 'one' is no list of numbers; write them with commas between"),
    (train_vocabulary, ['--corpus=/nope', '--threads=-1'],
     '--threads=-1 is below 1; use 1 to 1024'),
    (build_corpus, ['--output=/nope', '--test_share=nan'],
     '--test_share=nan is not a number; use 0 or more and less than 1'),
    (build_corpus, ['--output=/dev/null/x', '--text=de:a:b'],
     '--output=/dev/null/x cannot be a folder: /dev/null is a file'),
    (score_translations, ['--sentences=-1'], '--sentences=-1 is below 0; use 0 or more'),
    (get_mediawiki, ['--output=/dev/null/x'],
     '--output=/dev/null/x cannot be a folder: /dev/null is a file'),
    (check_devices, ['--checks=bits,bit'], "--checks has 'bit'; write names with commas between:"),
    (check_devices, ['--devices=1'], '--devices=1 is below 4; use 4 to 64'),
    (compare_checkpoints, ['/nope', '/nope'], '/nope'),
    (try_faults, ['--logdir=/nope', '--kinds=kill,cat'],
     "--kinds has 'cat'; write names with commas between: kill,"),
    (try_faults, ['--logdir=/nope', '--kinds=kill,cut,kill'],
     '--kinds has kill more than once'),
    (bench_pipeline, ['--dim=3000000000'], '--dim=3000000000 is above 2147483647; use 2147483647'),
    (try_faults, ['--logdir=/nope', '--count=0'], '--count=0 is below 1; use 1 to 1000000'),
    (try_faults, ['--logdir=/dev/null/x'],
     '--logdir=/dev/null/x cannot be a folder: /dev/null is a file'),
    (try_faults, ['--logdir=no_such_folder', '--set=pipeline.num_cells=1'],
     'pipeline.num_cells=1 leaves one of the two workers without a cell; use 2 or more.'),
    (try_faults, ['--kinds=kill'], "--logdir='' is no folder; name one"),
    (launch_local, ['--workers=0', *TRAINER], '--workers=0 is below 1; use 1 to 1024'),
    (secure_links, [], 'there is nothing to do; give --hosts and --output, or --run'),
    (secure_links, ['--hosts=a,b'], "--output='' is no folder; name one"),
    (secure_links, ['--hosts=a,a', '--output=x'], '--hosts=a,a has a host twice, or fewer than'),
    (secure_links, ['--hosts=a,..', '--output=x'], "--hosts has '..'; write names or IPv4"),
    (secure_links, ['--hosts=1.2.3.4,1.2.3.999', '--output=x'],
     "--hosts has '1.2.3.999', which is no IPv4 address; write four numbers from 0 to 255"),
    (secure_links, ['--hosts=proc,b', '--output=/'], '/proc is there already, and keys are never'),
    (largest_model, ['--family=transformer', '--devices=1.5'],
     "argument --devices: '1.5' has a fraction; write whole numbers"),
    (bench_checkpoint, ['--directory=/none'], '--directory=/none is no folder; name one that is'),
    (secure_links, ['--hosts=a,b', '--output=x', '--outer_port=65534'],
     '2 hosts need as many ports and one more, and ports end at 65535; choose smaller ones.'),
    (launch_slurm, ['--port=99999', *TRAINER], '--port=99999 is above 65534; use 1 to 65534'),
    (launch_kubernetes, ['--image=a', '--claim=b', '--gpus=-1', *TRAINER],
     '--gpus=-1 is below 0; use 0 to 1024'),
    (launch_kubernetes, ['--image=a', '--claim=b', '--output=/dev/null/x', *TRAINER],
     '--output=/dev/null/x cannot be written'),
])
def test_a_mistake_is_one_sentence_that_names_the_tool(capsys, tool, flags, sentence):
    line = mistake_of(capsys, tool, *flags)
    assert line.startswith(f'{tool.__name__.removeprefix("lingpipe.tools.")}: ')
    assert sentence in line


def test_whatever_an_experiment_raises_is_one_sentence_and_a_flag_shows_where(capsys, monkeypatch):
    from lingpipe.tools import partition

    def fails(args):
        raise KeyError('units')

    monkeypatch.setattr(partition, 'planned', fails)
    assert (mistake_of(capsys, show_partition, DENSE)
            == "show_partition: KeyError: 'units' (--traceback shows where.)")
    with pytest.raises(SystemExit):
        show_partition.main([DENSE, '--traceback'])
    assert 'in fails' in capsys.readouterr().err


def test_a_measurement_that_fails_says_why_and_no_more(monkeypatch):
    """The reason once came after the whole command line of the process that measures."""
    errors = 'a warning\nbench_pipeline: 2 cells need 2 layers; --help lists all flags.\n'
    monkeypatch.setattr(subprocess, 'run', lambda *args, **options: subprocess.CompletedProcess(
        args, 2, '', errors))
    with pytest.raises(ValueError, match='^2 cells need 2 layers$'):
        bench_pipeline.measured([])


def test_an_error_of_a_layer_names_the_layer_and_keeps_its_lines(monkeypatch):
    """The sentence of a ValueError once lacked the layer that the trainer names."""
    from lingpipe.tools import partition

    def fails(args):
        with blaming('model/dense_0'):
            raise ValueError('the units are wrong:\nunits  0')

    monkeypatch.setattr(partition, 'planned', fails)
    with pytest.raises(SystemExit) as ended:
        show_partition.main([DENSE])
    assert (ended.value.code == 'show_partition: the units are wrong:\nunits  0 (in layer '
                                'model/dense_0)')


def test_an_output_that_was_not_there_is_not_there_after_a_mistake(capsys, tmp_path):
    kept = tmp_path / 'kept.yaml'
    kept.write_text('before')
    for path in (kept, tmp_path / 'new.yaml'):
        mistake_of(capsys, launch_kubernetes, '--image=A', '--claim=b', f'--output={path}',
                   *TRAINER)
    assert kept.read_text() == 'before'
    assert os.listdir(tmp_path) == ['kept.yaml']


@pytest.mark.usefixtures('few_rounds')
@pytest.mark.parametrize('tool, flags', [
    (show_schedule, ['--num_cells=2', '--num_micro_batches=2', '--png=one.png']),
    (show_partition, [DENSE]),
    (plot_partition, [DENSE, '--output=one.png', '--measure']),
    (compare_params, ['image.digits.Dense', 'image.digits.AmoebaNet']),
    (score_translations, ['--file=de:ours.txt:theirs.txt', '--output=one.png']),
    (build_corpus, ['--output=corpus', '--text=de:ours.txt:theirs.txt', '--test_share=0']),
])
def test_with_json_the_standard_output_is_one_object(capfd, monkeypatch, tmp_path, tool, flags):
    monkeypatch.chdir(tmp_path)
    for name in ('ours', 'theirs'):
        (tmp_path / f'{name}.txt').write_text(
            f'write the name of the page {name}\nsave the whole file {name}\n')
    tool.main([*flags, '--json'])
    found = json.loads(capfd.readouterr().out)
    assert isinstance(found, dict)
    if '--measure' in flags:
        assert all(row['ms'] > 0 for row in found['layers'])


@pytest.mark.parametrize('name, flags', [('lingpipe.tools.show_partition', [DENSE]),
                                         ('lingpipe.trainer', ['--list'])])
def test_a_reader_that_leaves_early_is_no_error(name, flags):
    """show_partition | head once ended in a BrokenPipeError."""
    process = Fork(run_unread, name, *flags)
    _, err = process.communicate()
    assert (process.returncode, err) == (141, '')


@pytest.mark.parametrize('name', ['1f1b', 'interleaved', 'zb_h2', 'zb_v', 'dual_pipe_v', 'auto'])
def test_a_schedule_that_is_shown_can_be_given_as_text(capsys, tmp_path, name):
    show_schedule.main([f'--schedule={name}', '--num_cells=4', '--num_micro_batches=3'])
    shown = capsys.readouterr().out
    path = tmp_path / 'schedule.txt'
    path.write_text(shown)
    show_schedule.main([f'--text={path}'])
    assert capsys.readouterr().out == shown


# lingpipe-tools.

def test_lingpipe_tools_lists_every_tool_and_nothing_else(capsys):
    assert tools_command.main([]) == 0
    title, empty, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [
        tool.__name__.removeprefix('lingpipe.tools.') for tool in ALL]
    assert all(len(line.split()) > 3 for line in lines)


def test_lingpipe_tools_runs_a_tool_with_its_flags(capsys):
    flags = ['--num_cells=2', '--num_micro_batches=2']
    assert tools_command.main(['show_schedule', *flags]) == 0
    printed = capsys.readouterr().out
    show_schedule.main(flags)
    assert printed == capsys.readouterr().out


def test_lingpipe_tools_says_which_name_is_near(capsys):
    assert tools_command.main(['show_schedul']) == 2
    assert capsys.readouterr().err == (
        "tools: there is no tool 'show_schedul'; did you mean show_schedule?\n")
    assert tools_command.main(['stacks']) == 2   # a module beside the tools
    assert capsys.readouterr().err == (
        "tools: there is no tool 'stacks'; without a name it lists all.\n")
