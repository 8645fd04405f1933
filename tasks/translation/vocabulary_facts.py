"""Vocabulary facts: which vocabulary a run was trained with, and that no other takes its place.

A checkpoint holds the facts: the file of the vocabulary, the hash of its content, and whether
sources had tags.
"""
from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

from lingpipe.input import Input
from lingpipe.layers.base import Layer
from lingpipe.tasks.translation.corpus.vocabulary import Vocabulary


def facts_of(source: Input) -> dict[str, Any]:
    """Returns what decoding must know of the input, if it has a vocabulary.

    It is the file of the vocabulary, the hash of its content and, if the input says so, whether
    sources begin with the tag of their language.
    """
    path = getattr(getattr(source, 'corpus', None), 'vocabulary_path', '')
    if not os.path.exists(path):
        return {}
    has_tags = getattr(source.params, 'language_tags', None)
    return {'vocabulary': os.path.abspath(path), 'sha256': sha256_of(path),
            **({} if has_tags is None else {'language_tags': has_tags})}


def check_facts(facts: Mapping[str, Any], source: Input, model: Layer.Params) -> None:
    """Checks that the input's vocabulary fits the weights and the network.

    Raises:
      ValueError: the vocabulary is not that of the weights, or its number of ids is not that of
        the network.
    """
    now = facts_of(source)
    if not now:
        return
    if facts and now['sha256'] != facts['sha256']:
        raise ValueError(f'{text_of_another(now, facts)}; put theirs back, or choose another '
                         'logdir.')

    size = Vocabulary(now['vocabulary']).size
    vocab_size: int = getattr(model, 'vocab_size', size)
    if size != vocab_size:
        raise ValueError(
            f'{now["vocabulary"]} has {size:,} ids, but task.model.vocab_size={vocab_size:,}, '
            f'and they must be equal; set task.model.vocab_size={size}, or give the corpus a '
            f'vocabulary of {vocab_size:,} ids: python -m lingpipe.tools.train_vocabulary '
            f'--corpus={os.path.dirname(now["vocabulary"])} --size={vocab_size}.')


def check_taken(facts: Mapping[str, Any], keys: Iterable[str], source: Input,
                network: Layer) -> None:
    """Checks that no weight with a part for each id comes from a run with another vocabulary.

    Raises:
      ValueError: a weight does.
    """
    now = facts_of(source)
    if text := text_of_taken(now, facts, keys, network):
        raise ValueError(
            f'{text}, or make the corpus ids of that vocabulary: python '
            f'-m lingpipe.tools.train_vocabulary --corpus={os.path.dirname(now["vocabulary"])} '
            f'--vocabulary={facts["vocabulary"]}.')


def vocabulary_of(path: str, facts: Mapping[str, Any], model: Layer.Params) -> Vocabulary:
    """Returns the vocabulary of the run with these facts, or a copy of it.

    Args:
      path: the file of the copy; empty: the facts name the file.
      facts: of the run.
      model: the network.

    Raises:
      ValueError: no file of the vocabulary is known, or the file has other ids than the
        network.
    """
    path = path_of_run(path, facts)
    vocabulary = Vocabulary(path)
    vocab_size: int = getattr(model, 'vocab_size', vocabulary.size)
    if vocabulary.size != vocab_size:
        raise ValueError(f'{path} has {vocabulary.size:,} ids, but '
                         f'task.model.vocab_size={vocab_size:,}; set task.vocabulary to the '
                         'vocabulary that the run used.')
    check_is_of_run(path, facts)
    return vocabulary


# What the problem of texts (tasks/text/task.py) shares, whose inputs keep other facts.


def text_of_another(now: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """The beginning of the error about an input whose vocabulary is not that of the weights.

    Args:
      now: the facts of the input.
      facts: those with which the weights were trained.
    """
    return (f'{now["vocabulary"]} is not the vocabulary that the weights were trained with, '
            f'{facts["vocabulary"]}: its SHA-256 is {now["sha256"][:12]}..., and that of '
            f'theirs {facts["sha256"][:12]}...')


def text_of_taken(now: Mapping[str, Any], facts: Mapping[str, Any], keys: Iterable[str],
                  network: Layer) -> str:
    """The beginning of the error about tables of ids from a run with another vocabulary.

    It is '' if there are no such tables, or if the vocabulary is the same.

    Args:
      now: the facts of the input.
      facts: those of the other run.
      keys: of the variables that are taken from it.
      network: has the tables.
    """
    if not now or facts.get('sha256', now['sha256']) == now['sha256']:
        return ''
    keys = list(keys)
    tables = [layer.path for layer in network.layers()
              if layer.own_weights and hasattr(layer.params, 'vocab_size')]
    taken = [path for path in tables if any(f'/{path}/' in key for key in keys)]
    if not taken:
        return ''
    return (f'{", ".join(taken)} would be taken from a run with the vocabulary '
            f'{facts["vocabulary"]}, whose ids mean other pieces than those of '
            f'{now["vocabulary"]}; put ".*/({"|".join(taken)})/.*" -> none first in '
            'initialize_from.rules')


def path_of_run(path: str, facts: Mapping[str, Any]) -> str:
    """Returns the path of a copy of a run's vocabulary, if there is one, or else of the original.

    Raises:
      ValueError: neither is known, or the path is that of a folder.
    """
    path = path or facts.get('vocabulary', '')
    if not path:
        raise ValueError('task.vocabulary is empty, and the checkpoint names none; name the '
                         'file of the vocabulary that the run used.')
    if os.path.isdir(path):
        raise ValueError(f'task.vocabulary={path} is a folder, and a vocabulary is a file; name '
                         'the one in it, such as tokenizer.json.')
    return path


def check_is_of_run(path: str, facts: Mapping[str, Any]) -> None:
    """Raises ValueError if the file of a vocabulary is not the one that a run used."""
    if facts and sha256_of(path) != facts['sha256']:
        raise ValueError(f'{path} is not the vocabulary that the run used, '
                         f'{facts["vocabulary"]}: its SHA-256 is {sha256_of(path)[:12]}..., that '
                         f'of the run {facts["sha256"][:12]}...; set task.vocabulary to a '
                         'copy of that one.')


def sha256_of(path: str) -> str:
    """The SHA-256 of a file's content."""
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()
