"""Decode: gives the problem lines, and writes what it makes of them in the same order.

Nothing but the output is written.
"""
from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from lingpipe.api.run import Run
from lingpipe.commands.line_input import read_lines
from lingpipe.commands.run_options import RunOptions
from lingpipe.training.experiment import Experiment
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

    network, metadata = run.restored(site)
    site.begin(f'decoding with the checkpoint of step {metadata["step"]}')
    results = run.experiment.task.decode(network.program, lines, metadata.get('task', {}))
    assert len(results) == len(lines), (len(results), len(lines))

    try:
        with (open(new_path, 'w', encoding='utf-8') if new_path
              else contextlib.nullcontext(sys.stdout)) as file:
            file.writelines(f'{line}\n' for line in results)
        if new_path != path:
            os.replace(new_path, path)
    except BrokenPipeError:   # as in decode | head
        raise
    except OSError as error:
        raise OSError(f'{path or "standard output"} cannot be written: {error}; correct '
                      f'--decode_output.') from error
    return results


def _path_before_replacement(path: str) -> str:
    """The path that results are written to before they take the place of `path`.

    It is `path` itself where that is '' or something that must not be replaced, as a pipe or
    /dev/null.
    """
    is_regular = os.path.isfile(path) or not os.path.exists(path)
    return f'{path}.new' if path and is_regular else path


def _check_output(path: str, new_path: str) -> None:
    """Raises OSError if the results could not be written.

    Otherwise that would be known only after an hour of decoding.
    """
    try:
        if os.path.isdir(path):
            raise OSError('it is a directory')
        if new_path != path:
            with open(new_path, 'w', encoding='utf-8'):
                pass
            os.remove(new_path)
    except OSError as error:
        raise OSError(f'{path} cannot be written: {error}; correct --decode_output.') from error
