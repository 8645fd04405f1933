"""Line input: where lines end, and which line an error names."""
from __future__ import annotations

from typing import Any

import pytest

from lingpipe.commands.line_input import read_lines


@pytest.mark.parametrize(('content', 'lines'), [
    (b'', []), (b'a', ['a']), (b'a\n', ['a']), (b'a\n\n', ['a', '']),
    (b'\xef\xbb\xbfa\r\nb\r\n', ['a', 'b']), ('a\u2028b\x0cc\n'.encode(), ['a\u2028b\x0cc'])])
def test_lines_end_at_line_feeds_alone(tmp_path: Any, content: bytes, lines: list[str]) -> None:
    (tmp_path / 'in').write_bytes(content)
    assert read_lines(f'{tmp_path}/in') == lines


def test_line_that_is_too_long_or_not_utf_8_is_named(tmp_path: Any) -> None:
    (tmp_path / 'long').write_text('ab\nabc\n')
    with pytest.raises(ValueError, match=r'line 2 of \S+/long has 3 characters, and '
                                         r'--decode_line_limit=2 is the most; split it'):
        read_lines(f'{tmp_path}/long', line_limit=2)
    (tmp_path / 'bytes').write_bytes(b'a\n\n\xff\n')
    with pytest.raises(ValueError, match=r'line 3 of \S+/bytes is not UTF-8; convert it'):
        read_lines(f'{tmp_path}/bytes')
