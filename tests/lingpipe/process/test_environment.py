"""Environment: what a program leaves to the next, and what is added before threads are there."""
from __future__ import annotations

import ast
import os
import pathlib
import subprocess
import sys

import pytest

import lingpipe
from lingpipe.process import environment

# The program leaves two variables, changes one, and gives the place to a second one. That takes one
# and leaves it to a third one no more.
PROGRAM = """
import os, sys
from lingpipe.process import environment
names = 'LINGPIPE_A', 'LINGPIPE_B'
number = int(sys.argv[1])
if number == 1:
    for name in names:
        environment.leave(name, 'old')
    environment.leave(names[1], 'new')
    print(*(os.environ.get(name) for name in names))   # The list of variables did not move.
print(*map(environment.left, names))
if number == 2:
    print(environment.take(names[0]))
if number < 3:
    environment.start_program([sys.executable, *sys.orig_argv[1:-1], str(number + 1)])
"""


def test_what_a_program_leaves_the_next_one_finds_until_it_takes_it() -> None:
    process = subprocess.run([sys.executable, '-c', PROGRAM, '1'], capture_output=True, text=True,
                             timeout=60, check=True)
    assert process.stdout.split('\n') == ['None None', 'old new', 'old new', 'old', ' new', '']


def test_the_trainer_takes_the_place_with_its_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = []
    monkeypatch.setattr(os, 'execve', lambda *program: programs.append(program))
    monkeypatch.setenv('SET_BEFORE', 'yes')
    environment.leave('LINGPIPE_A', 'a')
    environment.start_trainer(['--model=a'])
    assert environment.take('LINGPIPE_A') == 'a'
    (path, command, variables), = programs
    assert command == [path, '-m', 'lingpipe.trainer', '--model=a']
    assert variables['SET_BEFORE'] == 'yes' and variables['LINGPIPE_A'] == 'a'


def test_what_a_user_has_set_for_grpc_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('GRPC_DNS_RESOLVER', 'ares')
    monkeypatch.setenv(environment.REUSE_PORT, 'true')
    monkeypatch.setenv('grpc_proxy', 'http://proxy:1')
    environment.add_all()
    assert os.environ['GRPC_DNS_RESOLVER'] == 'ares'
    assert os.environ[environment.REUSE_PORT] == 'true'
    assert os.environ['grpc_proxy'] == ''


def test_no_other_module_adds_a_variable_while_threads_may_run() -> None:
    """Adding one moves the list that other threads may be reading: the trainer died of SIGSEGV."""
    added = set()
    root = pathlib.Path(lingpipe.__file__).parent
    for path in root.rglob('*.py'):
        tree = ast.parse(path.read_text())
        places = [node for node in ast.walk(tree)
                  if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
                  and ast.unparse(node.value) == 'os.environ'
                  or isinstance(node, ast.Call)
                  and ast.unparse(node.func) in ('os.putenv', 'os.environ.setdefault',
                                                 'os.environ.update')]
        added |= {(path.relative_to(root).as_posix(), ast.unparse(node)) for node in places}
    assert {place for place in added if not place[0].endswith('environment.py')} == {
        # The first thing that the trainer does, and a value that changes.
        ('process/tensorflow_import.py', "os.environ.setdefault(LOG_LEVEL, '2')"),
        ('trainer.py', 'os.environ[tensorflow_import.LOG_LEVEL]'),
        ('cluster/address_filter.py', 'os.environ[environment.REUSE_PORT]')}
