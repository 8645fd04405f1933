"""Marked blocks of the documents run and print what the documents say, and the errors exist."""
from __future__ import annotations

import ast
import functools
import os
import pathlib
import re
import shlex
import subprocess
import sys
import types

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks, holds, quoted_words
from tests.support.forks import Fork, run_module

RUNNABLE = [page for page in PAGES if any(block.mark in ('run', 'fails') for block in blocks(page))]


def name_of(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize('page', RUNNABLE, ids=name_of)
def test_marked_blocks_do_what_their_page_says(
        page: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType(f'page_{page.stem.replace("-", "_")}')
    monkeypatch.setitem(sys.modules, module.__name__, module)   # as a notebook is __main__
    monkeypatch.chdir(tmp_path)
    namespace = vars(module)
    output = ''
    for block in blocks(page):
        if block.mark == 'file':
            (tmp_path / block.name).write_text(block.text, encoding='utf-8')
        elif block.mark == 'prints':
            assert holds(output, block.text), f'line {block.line} of the page, but:\n{output}'
        elif block.language == 'python' and block.mark == 'run':
            source = '\n' * block.line + block.text   # An error names the line of the page.
            exec(compile(source, name_of(page), 'exec'), namespace)
        elif block.language == 'bash' and block.mark in ('run', 'fails'):
            output = run(block, tmp_path)


def run(block: Block, directory: pathlib.Path) -> str:
    """Runs a command where the page's files are, and returns all that it prints.

    A single command of lingpipe runs in a fork, which need not import TensorFlow; anything else is
    bash's, with this Python first on the path.
    """
    commands = block.text.replace('\\\n', ' ').splitlines()
    words = shlex.split(commands[0])
    if len(commands) == 1 and words[:2] == ['python', '-m'] and not {'|', '&&', ';'} & set(words):
        environment = {**os.environ, 'PYTHONPATH': str(directory)}
        fork = Fork(run_module, *words[2:], env=environment, cwd=directory)
        output = ''.join(fork.communicate(timeout=120))
        code = fork.returncode
    else:
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ['PATH']])
        done = subprocess.run(['bash', '-euo', 'pipefail', '-c', block.text], cwd=directory,
                              env={**os.environ, 'PATH': path}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        output, code = done.stdout, done.returncode

    must_fail = block.mark == 'fails'
    assert (code != 0) == must_fail, f'exit code {code} of\n{block.text}\n{output}'
    return output


QUOTED = [(name_of(page), words) for page in PAGES for words in quoted_words(page)]


@functools.cache
def texts_in_the_source() -> str:
    """Returns all strings of lingpipe and its tasks, with adjacent literals joined."""
    texts = []
    for path in [*(ROOT / 'lingpipe').rglob('*.py'), *(ROOT / 'tasks').rglob('*.py')]:
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if isinstance(node, ast.Constant):
                texts.append(str(node.value))
            elif isinstance(node, ast.JoinedStr):
                texts.append(''.join(str(part.value) if isinstance(part, ast.Constant) else '{}'
                                     for part in node.values))
    return '\n'.join(texts)


@pytest.mark.parametrize(('page', 'words'), QUOTED, ids=[words for _, words in QUOTED])
def test_explained_errors_are_in_the_source(page: str, words: str) -> None:
    assert words in texts_in_the_source(), f'{page} explains an error that nothing raises'


@pytest.mark.parametrize('page', PAGES, ids=name_of)
def test_named_files_exist(page: pathlib.Path) -> None:
    text = page.read_text(encoding='utf-8')
    named = re.findall(r'`((?:lingpipe|tasks|params|tools|tests|docs)/[\w/.-]+)`', text)
    missing = [path for path in named if not (ROOT / path).exists() and 'NAME' not in path]
    assert not missing


def test_a_comment_that_marks_nothing_is_refused(tmp_path: pathlib.Path) -> None:
    page = tmp_path / 'page.md'
    page.write_text('Text.\n\n<!-- runs -->\n```bash\ntrue\n```\n', encoding='utf-8')
    with pytest.raises(ValueError, match='page.md:3: this comment marks no block'):
        blocks(page)


def test_expected_lines_must_come_in_their_order() -> None:
    assert holds('a\nb\nc\n', 'a\n...\nc\n')
    assert not holds('a\nb\nc\n', 'c\na\n')
