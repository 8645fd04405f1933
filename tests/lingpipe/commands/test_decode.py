"""Decode: what it reads, and that its results replace a file and nothing else."""
from __future__ import annotations

import contextlib
import os
import pathlib
import types
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lingpipe.commands.decode import decode_at
from lingpipe.commands.run_options import RunOptions
from lingpipe.training.problem import Piece
from lingpipe.training.site import THIS_PROCESS


def decode_as_it_is(path: str, lines: list[str]) -> Sequence[str]:
    """Decodes with a problem that returns its input."""
    problem = types.SimpleNamespace(
        decode=lambda program, lines, facts: lines,
        decode_by_pieces=lambda program, lines, facts: map(Piece, range(len(lines)), lines))
    return decoded_by(problem, path, lines)


def decoded_by(problem: Any, path: str, lines: list[str]) -> Sequence[str]:
    """Decodes with a problem."""
    run: Any = types.SimpleNamespace(
        experiment=types.SimpleNamespace(task=problem),
        restored=lambda site: (types.SimpleNamespace(program=None), {'step': 1}))
    return decode_at(THIS_PROCESS, run, RunOptions('decode', decode_output=path), lines)


def test_results_that_cannot_be_written_are_found_before_anything_is_decoded(tmp_path: Any) -> None:
    run: Any = None   # Nothing is asked of it.
    for path in (f'{tmp_path}/nowhere/out', str(tmp_path)):
        with pytest.raises(OSError,
                           match=rf'{path} cannot be written: .*; correct --decode_output'):
            decode_at(THIS_PROCESS, run, RunOptions('decode', decode_output=path), ['a'])
    assert os.listdir(tmp_path) == []


def test_results_replace_a_file_and_nothing_else(tmp_path: Any) -> None:
    """Run by root, --decode_output=/dev/null replaced /dev/null with a file."""
    (tmp_path / 'file').write_text('before')
    os.mkfifo(tmp_path / 'pipe')
    reader = os.open(tmp_path / 'pipe', os.O_RDONLY | os.O_NONBLOCK)
    for name in ('file', 'pipe', 'missing'):
        assert decode_as_it_is(f'{tmp_path}/{name}', ['a', 'b']) == ['a', 'b']
    assert (tmp_path / 'pipe').is_fifo()
    assert os.read(reader, 100) == b'a\nb\n'
    os.close(reader)
    assert (tmp_path / 'file').read_text() == (tmp_path / 'missing').read_text() == 'a\nb\n'
    assert sorted(os.listdir(tmp_path)) == ['file', 'missing', 'pipe']


def test_a_link_and_a_file_of_the_user_stay(tmp_path: pathlib.Path) -> None:
    """The link became a file, and out.new, perhaps the input itself, was removed."""
    (tmp_path / 'out').symlink_to('results')
    (tmp_path / 'results.new').write_text('mine')
    for lines in (['a'], ['b']):
        decode_as_it_is(f'{tmp_path}/out', lines)
    assert (tmp_path / 'out').is_symlink()
    assert (tmp_path / 'results').read_text() == 'b\n'
    assert (tmp_path / 'results.new').read_text() == 'mine'
    assert sorted(os.listdir(tmp_path)) == ['out', 'results', 'results.new']


def test_pieces_are_printed_in_the_order_of_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []

    def pieces() -> Iterator[Piece]:
        """Yields pieces of three results; notes what had been printed before each."""
        for piece in (Piece(1, 'b', False), Piece(0, 'a', False), Piece(0, 'A', False),
                      Piece(1, 'B'), Piece(2, 'c', False), Piece(0, ''), Piece(2, 'C')):
            yield piece
            printed.append(capsys.readouterr().out)

    problem = types.SimpleNamespace(decode_by_pieces=lambda program, lines, facts: pieces())
    assert decoded_by(problem, '', ['1', '2', '3']) == ['aA', 'bB', 'cC']
    assert printed == ['', 'a', 'A', '', '', '\nbB\nc', 'C\n']


def test_results_are_utf_8_whatever_the_locale_says(
        tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python writes ASCII, the first 'é' ended the command with a UnicodeEncodeError."""
    with open(tmp_path / 'printed', 'w', encoding='ascii') as printed:
        monkeypatch.setattr('sys.stdout', printed)
        decode_as_it_is('', ['é', '日'])
    assert (tmp_path / 'printed').read_text(encoding='utf-8') == 'é\n日\n'


def test_results_that_nobody_reads_are_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """In decode | head, an error asked the user to correct --decode_output."""
    reader, writer = os.pipe()
    os.close(reader)
    unread = open(writer, 'w', buffering=1)
    monkeypatch.setattr('sys.stdout', unread)
    with pytest.raises(BrokenPipeError):
        decode_as_it_is('', ['a'])
    with contextlib.suppress(BrokenPipeError):
        unread.close()   # Closing tries to write once more.
