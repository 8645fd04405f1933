"""Replacement: what is at the path of an export, or behind it, stays or is replaced whole."""
from __future__ import annotations

import pathlib

from lingpipe.export.replacement import DESCRIPTION, replaced_directory


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
