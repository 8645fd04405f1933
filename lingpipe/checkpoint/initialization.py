"""Initialization: weights from another experiment's checkpoint, or from a file of weights."""
from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from lingpipe.checkpoint import files, hugging_face, weight_files
from lingpipe.checkpoint.checkpointer import Checkpointer
from lingpipe.checkpoint.chosen_step import NEWEST, step_named
from lingpipe.checkpoint.facts import STEP_NAME, DamagedError, Metadata, read_facts
from lingpipe.checkpoint.parts import Kinds
from lingpipe.checkpoint.peft_adapters import PeftAdapters
from lingpipe.checkpoint.unreadable import is_directory
from lingpipe.checkpoint.worker_files import WorkerFiles
from lingpipe.wording.counts import are, counted

Rules = Sequence[tuple[str, str | None]]   # (regular expression, replacement); see `initialize`
# Why a variable is not taken, where that is no surprise.
_NO_RULE, _BY_RULE = 'no rule for it', 'by a rule'
_NEW = 'an adapter that is not there, and begins as in a run from scratch'
# The key of a matrix of an adapter (layers/low_rank.py), beside that of the weight that it adapts.
_ADAPTER = re.compile(r'(?:weights|ema)/(?P<weight>.*)_adapter/(?P<matrix>[ab])')


@dataclasses.dataclass(frozen=True)
class Initialization:
    """What `initialize` did.

    Attributes:
      source: the directory of the checkpoint, or the file.
      taken: the key of each variable that was assigned -> the key in the checkpoint.
      not_taken: the key of each other variable -> why it was not assigned.
    """
    source: str
    taken: dict[str, str]
    not_taken: dict[str, str]

    @property
    def missing(self) -> dict[str, str]:
        """The part of `not_taken` for which a rule names something that is not to be had."""
        return {key: why for key, why in self.not_taken.items()
                if why not in (_NO_RULE, _BY_RULE, _NEW)}

    def text(self) -> str:
        """Returns a line for every variable, those that were not taken first."""
        num_taken = len(self.taken)
        of_all = counted(num_taken + len(self.not_taken), 'variable')
        lines = [f'{num_taken} of {of_all} {are(num_taken)} taken from {self.source}.']
        lines += [f'  not taken  {key}: {why}' for key, why in self.not_taken.items()]
        for key, source_key in self.taken.items():
            source = f' from {source_key}' if source_key != key else ''
            lines.append(f'  taken      {key}{source}')
        return '\n'.join(lines) + '\n'


def initialize(variables: Mapping[str, tf.Variable], source_dir: str, rules: Rules,
               check: Callable[[Metadata, Mapping[str, str]], None]
               = lambda metadata, taken: None, checkpoint: str = NEWEST,
               adapters: Container[str] = ()) -> Initialization:
    """Assigns some variables from another experiment's checkpoint, or from a file of weights.

    Args:
      variables: by key.
      source_dir: the logdir of the other experiment, its directory of checkpoints (the newest that
        is whole is used), or one checkpoint; or a file, see weight_files.py; or a folder of
        Hugging Face, see hugging_face.py, whose tensors and the variables must then fit each other.
      rules: (regular expression, replacement). The first expression that matches the whole key of a
        variable says which tensor of the checkpoint is taken, with groups as in re.sub
        (r'encoder/(.*)', r'model/encoder/\\1'). With a replacement of None, nothing is taken.
        Variables without a rule stay as they are. A weight that was frozen has no average: where
        its average is named, the weight is taken.
      check: a function of the checkpoint's metadata and of the keys that are going to be assigned,
        each with its key in the checkpoint, called before any is. It raises ValueError to refuse.
      checkpoint: 'newest', 'best' or a step, of those in `source_dir`.
      adapters: keys of variables that need not be there, and then begin as in a run from scratch.

    Raises:
      ValueError: there is no such checkpoint, a rule matches no key, nothing could be taken, a
        weight would be taken without its adapter, or `check` refuses; or a folder of Hugging Face
        does not fit, or has adapters of peft.
    """
    for pattern, _ in rules:
        if not any(re.fullmatch(pattern, key) for key in variables):
            raise ValueError(f'the rule {pattern!r} matches none of '
                             f'{counted(len(variables), "variable")}; they look like '
                             f'{", ".join(list(variables)[:3])}. A rule must match the whole path: '
                             'correct or remove it.')

    hugging_face.check_no_adapters(source_dir)
    if weight_files.is_weight_file(source_dir):
        return _initialize_from_file(variables, source_dir, rules, check, adapters)
    if hugging_face.is_folder(source_dir):
        return _initialize_from_folder(variables, source_dir, rules, check, adapters)
    for path, facts in _whole_ones(source_dir, checkpoint):
        metadata = facts['metadata']
        report = _planned(variables, path, facts['variables'], rules, adapters)
        _check_adapters(report, facts['variables'], metadata)
        check(metadata, report.taken)
        try:
            pairs = ((variables[key], source_key) for key, source_key in report.taken.items())
            files.assign(path, facts['variables'], pairs, WorkerFiles())
            return report
        except DamagedError as error:
            logging.warning('checkpoint %s is damaged and not used: %s', path, error)
    raise AssertionError('_whole_ones has raised an error')


def with_adapters(report: Initialization, variables: Mapping[str, tf.Variable],
                  adapters: PeftAdapters) -> Initialization:
    """Assigns the adapters of a folder of peft, after `initialize` has taken the weights.

    Args:
      report: what `initialize` did.
      variables: by key, with all adapters of the folder.
      adapters: fit the network.
    """
    of_adapters = Initialization(adapters.path, {key: key for key in adapters.shapes}, {})
    _assign(variables, of_adapters, adapters.read)
    return Initialization(
        f'{report.source} and {adapters.path}',
        report.taken | {key: adapters.tensor_of(key) for key in adapters.shapes},
        {key: why for key, why in report.not_taken.items() if key not in adapters.shapes})


def _initialize_from_file(variables: Mapping[str, tf.Variable], path: str, rules: Rules,
                          check: Callable[[Metadata, Mapping[str, str]], None],
                          adapters: Container[str]) -> Initialization:
    weights = weight_files.read_weights(path)
    kinds = {key: {'shape': list(array.shape), 'dtype': array.dtype.name}
             for key, array in weights.items()}
    metadata = weight_files.read_metadata(path)
    report = _planned(variables, path, kinds, rules, adapters)
    _check_adapters(report, kinds, metadata)
    check(metadata, report.taken)
    _assign(variables, report, weights.__getitem__)
    return report


def _initialize_from_folder(variables: Mapping[str, tf.Variable], path: str, rules: Rules,
                            check: Callable[[Metadata, Mapping[str, str]], None],
                            adapters: Container[str]) -> Initialization:
    folder = hugging_face.Folder(path)
    report = _planned(variables, path, folder.kinds, rules, adapters)
    check({'task': {hugging_face.FACT: folder.config}}, report.taken)
    folder.check_used(report.missing, report.taken.values(), set(report.not_taken))
    _assign(variables, report, folder.read)
    return report


def _assign(variables: Mapping[str, tf.Variable], report: Initialization,
            read: Callable[[str], np.ndarray]) -> None:
    """Gives variables their values one by one; `read` returns that of a key."""
    for key, source_key in report.taken.items():
        with tf.device(variables[key].device):
            variables[key].assign(tf.cast(read(source_key), variables[key].dtype))


def _planned(variables: Mapping[str, tf.Variable], path: str, saved: Kinds, rules: Rules,
             adapters: Container[str]) -> Initialization:
    """Returns what the rules take from the checkpoint `path`; see `initialize`."""
    report = Initialization(path, {}, {})
    for key, variable in variables.items():
        match, replacement = next(((match, replacement) for pattern, replacement in rules
                                   if (match := re.fullmatch(pattern, key))), (None, None))
        if match is None:
            report.not_taken[key] = _NO_RULE
            continue
        if replacement is None:
            report.not_taken[key] = _BY_RULE
            continue

        source_key = _of_average(match.expand(replacement), saved)
        kind = saved.get(source_key)
        shape = variable.shape.as_list()
        if kind is None and key in adapters:
            report.not_taken[key] = _NEW
        elif kind is None:
            report.not_taken[key] = f'there is no {source_key}'
        elif kind['shape'] != shape:
            report.not_taken[key] = f'its shape is {shape}, and {kind["shape"]} there'
        elif _would_lose(kind['dtype'], variable.dtype):
            report.not_taken[key] = f'its dtype is {variable.dtype.name}, and {kind["dtype"]} there'
        else:
            report.taken[key] = source_key

    if not report.taken:
        reasons = [f'{key}: {why}' for key, why in report.not_taken.items()][:3]
        raise ValueError(f'nothing could be taken from {path}, whose keys look like '
                         f'{", ".join(list(saved)[:3])}: correct the rules. A file of another '
                         r"program may need ('weights/model/(.*)', r'weights/\1'). "
                         f'{"; ".join(reasons)}.')
    return report


def _check_adapters(report: Initialization, saved: Iterable[str], metadata: Metadata) -> None:
    """Raises ValueError if a weight is taken without what its adapter has learned.

    A rule may leave out an adapter that the network has.

    Args:
      report: what is taken.
      saved: the keys that there are.
      metadata: knows which adapters are those of weights of other layers (layers/low_rank.py).
    """
    tied = metadata.get('tied_adapters', {})
    taken = {_without_group(theirs): ours for ours, theirs in report.taken.items()}
    for key in saved:
        match = _ADAPTER.fullmatch(key)
        if not match or _without_group(key) in taken:
            continue
        weight = tied.get(match['weight'], match['weight'])
        if weight not in taken:
            continue
        # What a tied weight is called here is not known, but as there.
        beside = taken[weight] if weight == match['weight'] else f'weights/{match["weight"]}'
        ours = f'{beside}_adapter/{match["matrix"]}'
        why = report.not_taken.get(ours, 'the network has no such adapter')
        if why != _BY_RULE:
            raise ValueError(
                f'{report.source} has {key}, without which its weights are not what it learned, '
                f'and it cannot be taken: {why}; give the network the same adapters '
                '(task.model.adapters of a LanguageModel or a Transformer), or begin with a '
                'hugging_face export of that run, which merges them into the weights.')


def _without_group(key: str) -> str:
    """The path of the weight in a key of itself or of its average."""
    return key.removeprefix('weights/').removeprefix('ema/')


def _would_lose(given: str, wanted: tf.DType) -> bool:
    """Whether a dtype lacks fractions, an imaginary part or other numbers than 0 and 1."""
    def rank(dtype: tf.DType) -> int:
        return 3 if dtype.is_complex else 2 if dtype.is_floating else 1 if dtype.is_integer else 0

    return rank(tf.as_dtype(given)) > rank(wanted)


def _of_average(key: str, saved: Kinds) -> str:
    """The key itself, or that of the weight if its average is named and it has none.

    A weight that was frozen has no average, where others have.
    """
    weight_key = f'weights/{key.removeprefix("ema/")}'
    has_none = key.startswith('ema/') and key not in saved and weight_key in saved
    return weight_key if has_none and any(other.startswith('ema/') for other in saved) else key


def find_whole(source_dir: str) -> tuple[str, dict[str, Any]]:
    """Returns the directory and the facts of the newest checkpoint that is whole.

    Args:
      source_dir: a logdir, a directory of checkpoints, or one checkpoint.

    Raises:
      ValueError: there is none that can be read.
    """
    return next(_whole_ones(source_dir, NEWEST))


def _whole_ones(source_dir: str, checkpoint: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields what find_whole returns for every checkpoint there, the newest first.

    A checkpoint that is named, as the best or by its step, is the only one.

    Raises:
      ValueError: another checkpoint is asked for, and there is none.
    """
    one = STEP_NAME.fullmatch(os.path.basename(os.path.normpath(source_dir)))
    if one:
        candidates = [source_dir]
        if checkpoint not in (NEWEST, str(int(one[1]))):
            raise ValueError(f'{source_dir} is one checkpoint already, and checkpoint={checkpoint} '
                             'names another one; leave one of the two out.')
    else:
        subfolder = os.path.join(source_dir, 'checkpoints')
        folder = subfolder if is_directory(subfolder) else source_dir
        reader = Checkpointer(folder, is_writer=False)
        step = step_named(reader, checkpoint)
        steps = reader.steps()[::-1] if step is None else [step]
        if step is not None and step not in reader.steps():
            listed = ', '.join(map(str, reader.steps())) or 'none'
            raise ValueError(f'{source_dir} has no checkpoint of step {step}; there are: {listed}.')
        candidates = [reader.path(step) for step in steps]

    failures = []
    for path in candidates:
        try:
            facts = read_facts(path)
        except DamagedError as error:
            failures.append(f'{path}: {error}')
            logging.warning('checkpoint %s is damaged and not used: %s', path, error)
            continue
        yield path, facts
    raise ValueError(f'{source_dir} has no checkpoint that can be read; name a logdir, its '
                     f'checkpoints or one step-... in it. {" ".join(failures)}'.rstrip())
