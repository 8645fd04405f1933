"""Replacement: what is at the path of an export, or behind it, stays or is replaced whole."""
from __future__ import annotations

import pathlib

from lingpipe.export.replacement import DESCRIPTION, replaced_directory, replaced_file


def export(path: pathlib.Path, text: str) -> None:
    """Exports a directory whose description is a text."""
    with replaced_directory(str(path), 'correct it') as new:
        (pathlib.Path(new) / DESCRIPTION).write_text(text)


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: pathlib.Path) -> None:
    """The link became a directory, and PATH.old a link that the next export could not remove."""
    (tmp_path / 'disk').mkdir()
    link = tmp_path / 'exported'
    link.symlink_to(tmp_path / 'disk')
    for text in ('first', 'second'):
        export(link, text)
        assert link.is_symlink()
        assert (tmp_path / 'disk' / DESCRIPTION).read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ['disk', 'exported']


def test_a_link_to_a_file_stays_and_the_file_is_replaced(tmp_path: pathlib.Path) -> None:
    """The link became a file, and what it led to kept the results of before."""
    (tmp_path / 'disk.npz').write_text('before')
    link = tmp_path / 'weights.npz'
    link.symlink_to('disk.npz')
    with replaced_file(str(link), 'correct it') as new:
        pathlib.Path(new).write_text('after')
    assert link.is_symlink()
    assert (tmp_path / 'disk.npz').read_text() == 'after'
    assert sorted(path.name for path in tmp_path.iterdir()) == ['disk.npz', 'weights.npz']


def test_what_the_user_has_beside_an_export_stays(tmp_path: pathlib.Path) -> None:
    """Names such as weights.new.npz and model.new were written over or removed."""
    theirs = [tmp_path / name for name in ('weights.new.npz', 'model.new', 'model.old')]
    for path in theirs:
        path.write_text('mine')
    with replaced_file(str(tmp_path / 'weights.npz'), 'correct it') as new:
        pathlib.Path(new).write_text('weights')
    for _ in range(2):
        export(tmp_path / 'model', 'model')
    assert [path.read_text() for path in theirs] == ['mine'] * 3
    assert len(list(tmp_path.iterdir())) == 5
