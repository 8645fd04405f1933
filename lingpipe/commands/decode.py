"""Decode: gives the problem lines, and writes what it makes of them in the same order.

Nothing but the output is written. Standard output gets each result while it is being made.
"""
from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence

from lingpipe.api.run import Run
from lingpipe.checkpoint.side_files import free_name
from lingpipe.commands.line_input import read_lines
from lingpipe.commands.run_options import RunOptions
from lingpipe.process.error_text import reason
from lingpipe.training.experiment import Experiment
from lingpipe.training.problem import Piece
from lingpipe.training.site import Site


def decode(params: Experiment.Params, options: RunOptions) -> Sequence[str]:
    """Decodes the lines of --decode_input; writes the results to --decode_output and returns them.

    This process is replaced by another if a worker is lost.
    """
    lines = read_lines(options.decode_input, is_needed_again=bool(options.devices),
                       line_limit=options.decode_line_limit)
    with Run(params, options, is_writer=False, is_trainer=True) as run:
        return run.at_site(lambda site: decode_at(site, run, options, lines))


def decode_at(site: Site, run: Run, options: RunOptions, lines: list[str]) -> Sequence[str]:
    """Decodes lines with the newest checkpoint, on devices that are set up already."""
    path = options.decode_output
    new_path = _path_before_replacement(path)
    _check_output(path, new_path)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding='utf-8')   # as the input is, whatever the locale says

    network, metadata = run.restored(site)
    site.begin(f'decoding with the checkpoint of step {metadata["step"]}')
    task, facts = run.experiment.task, metadata.get('task', {})
    if path or options.devices:
        # A lost worker may have another process decode everything once more.
        results = task.decode(network.program, lines, facts)
        assert len(results) == len(lines), (len(results), len(lines))
        _write(path, new_path, results)
        return results
    return _printed(task.decode_by_pieces(network.program, lines, facts), len(lines))


def _write(path: str, new_path: str, results: Sequence[str]) -> None:
    """Writes all results, to `new_path` first, which is _path_before_replacement(path)."""
    try:
        with _writing(path):
            with (open(new_path, 'w', encoding='utf-8') if new_path
                  else contextlib.nullcontext(sys.stdout)) as file:
                file.writelines(f'{line}\n' for line in results)
            if new_path != path:
                os.replace(new_path, os.path.realpath(path))   # A link stays.
    except OSError:
        if new_path != path:
            with contextlib.suppress(OSError):
                os.remove(new_path)
        raise


def _printed(pieces: Iterator[Piece], num_lines: int) -> Sequence[str]:
    """Prints the results in the order of the lines, each piece as soon as it is its turn."""
    texts, are_whole = [''] * num_lines, [False] * num_lines
    current = 0   # the first line whose result is not whole
    for number, text, is_last in pieces:
        texts[number] += text
        are_whole[number] = is_last
        if number == current:
            _print(text)
        if number == current and is_last:
            _print('\n')
            current += 1
            while current < num_lines and are_whole[current]:
                _print(f'{texts[current]}\n')
                current += 1
            if current < num_lines:
                _print(texts[current])
    assert current == num_lines, (current, num_lines)
    return texts


def _print(text: str) -> None:
    with _writing(''):
        sys.stdout.write(text)
        sys.stdout.flush()


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    """Adds to an OSError what could not be written."""
    try:
        yield
    except BrokenPipeError:   # as in decode | head
        raise
    except OSError as error:
        raise OSError(f'{path or "standard output"} cannot be written: {reason(error)}; correct '
                      f'--decode_output.') from error


def _path_before_replacement(path: str) -> str:
    """The path that results are written to before they take the place of `path`.

    It is `path` itself where that is '' or something that must not be replaced, as a pipe or
    /dev/null. Otherwise it is a name that nothing has, since a file PATH.new may be the user's own.
    """
    is_regular = os.path.isfile(path) or not os.path.exists(path)
    return free_name(f'{os.path.realpath(path)}.new') if path and is_regular else path


def _check_output(path: str, new_path: str) -> None:
    """Raises OSError if the results could not be written.

    Otherwise that would be known only after an hour of decoding.
    """
    with _writing(path):
        if os.path.isdir(path):
            raise OSError('it is a directory')
        if new_path != path:
            with open(new_path, 'w', encoding='utf-8'):
                pass
            os.remove(new_path)
