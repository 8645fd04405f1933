"""Pairs become rows of their languages, as transformers makes them."""
from __future__ import annotations

import pathlib
from typing import Any

import pytest

from lingpipe.tasks.translation.translation_examples import translation_examples
from tests.support import tiny_tokenizers

PAD, END, DEU, FRA = 1, 2, 17, 19


def test_a_row_has_both_languages_and_the_ends(tmp_path: pathlib.Path) -> None:
    path = tiny_tokenizers.write(tmp_path, 'nllb')
    examples = translation_examples(path, [('ab c', 'd'), ('', 'c ab')], 'deu_Latn', 'fra_Latn', 5)
    assert {name: array.tolist() for name, array in examples.items()} == {
        'source': [[DEU, 14, 15, END, PAD], [DEU, END, PAD, PAD, PAD]],
        'target': [[END, FRA, 16, PAD, PAD], [END, FRA, 15, 14, PAD]],
        'label': [[FRA, 16, END, PAD, PAD], [FRA, 15, 14, END, PAD]],
        'weight': [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]}
    assert {name: array.dtype.name for name, array in examples.items()} == {
        'source': 'int32', 'target': 'int32', 'label': 'int32', 'weight': 'float32'}


def test_legacy_sources_end_with_their_language_and_labels_still_begin_with_it(
        tmp_path: pathlib.Path) -> None:
    path = tiny_tokenizers.write(tmp_path, 'nllb', legacy_behaviour=True)
    examples = translation_examples(path, [('ab', 'd')], 'deu_Latn', 'fra_Latn', 3)
    assert [examples[name].tolist() for name in ('source', 'target', 'label')] == [
        [[14, END, DEU]], [[END, FRA, 16]], [[FRA, 16, END]]]


def test_a_long_pair_is_cut_before_its_end(tmp_path: pathlib.Path, caplog: Any) -> None:
    path = tiny_tokenizers.write(tmp_path, 'nllb')
    examples = translation_examples(
        path, [('ab c d', 'd c ab'), ('c', 'd')], 'deu_Latn', 'fra_Latn', 4)
    assert examples['source'].tolist() == [[DEU, 14, 15, END], [DEU, 15, END, PAD]]
    assert examples['label'].tolist() == [[FRA, 16, 15, END], [FRA, 16, END, PAD]]
    assert caplog.messages == ['1 pair is cut at length=4 ids']


@pytest.mark.parametrize('pairs, language, length, words', [
    ([], 'deu_Latn', 4, 'there are no pairs to learn from; give'),
    (['ab'], 'deu_Latn', 4, "pair 1 is 'ab', but a pair is two texts, .*; write it so"),
    ([('a', 'b'), ('a', 'b', 'c')], 'deu_Latn', 4, 'pair 2 is .*, but a pair is two texts'),
    ([('a', None)], 'deu_Latn', 4, 'pair 1 is .*, but a pair is two texts'),
    ([('a', 'b')], 'de', 4, "source_language='de' is no language of the tokenizer; "),
    ([('a', 'b')], 'deu_Latn', 2, 'length=2 has no room for a language, an id and the end; use 3')])
def test_what_cannot_be_learned_from_is_refused(
        pairs: Any, language: str, length: int, words: str, tmp_path: pathlib.Path) -> None:
    path = tiny_tokenizers.write(tmp_path, 'nllb')
    with pytest.raises(ValueError, match=words):
        translation_examples(path, pairs, language, 'fra_Latn', length)
