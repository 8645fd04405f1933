"""InitializeFrom: the weights of another run, from which a new run starts."""
from __future__ import annotations

import re

from lingpipe.checkpoint.chosen_step import check_name
from lingpipe.hyperparams import Params, field
from lingpipe.wording.counts import counted


class InitializeFrom(Params):
    """The weights that a new run starts from; see checkpoint.initialize."""
    directory: str = field(
        '', "Another experiment's logdir, its checkpoints, or one of them; or a file of weights, "
            ".npz, .safetensors, .keras or .weights.h5; or a folder of Hugging Face with "
            "config.json; empty: all weights start from scratch.")
    adapters: str = field(
        '', "A folder of peft, whose adapters come with the weights of their model in `directory`; "
            'empty: no such folder.')
    checkpoint: str = field(
        'newest', "newest, best or a step: which of the directory's checkpoints is taken.")
    rules: tuple[tuple[str, str | None], ...] = field(
        (('weights/(.*)', r'weights/\1'),),
        "(regular expression, replacement) pairs; the first that matches the whole of a variable's "
        "key says which of theirs is taken ('weights/encoder/(.*)' -> "
        r"'weights/model/encoder/\1'); none takes nothing.")

    def check(self) -> None:
        """Raises ValueError for adapters alone, a malformed rule or checkpoint name."""
        if self.adapters and not self.directory:
            raise ValueError(f'adapters={self.adapters!r} come with the weights of their model, '
                             'and directory is empty; name the folder of this model in directory.')
        check_name(self.checkpoint, 'checkpoint')
        for pattern, replacement in self.rules:
            try:
                compiled = re.compile(pattern)
            except re.error as error:
                raise ValueError(f'rules: {pattern!r} is not a regular expression: {error}; '
                                 f'correct it') from error
            try:
                if match := re.match(f'{pattern}|', ''):  # It matches the empty text, too.
                    match.expand(replacement or '')
            except (re.error, IndexError) as error:
                raise ValueError(
                    f'rules: {replacement!r} cannot replace {pattern!r}: {error}; the expression '
                    f'has {counted(compiled.groups, "group")}, which \\1 and so on stand '
                    'for') from error
