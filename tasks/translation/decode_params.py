"""DecodeParams: the search for translations, and the lengths of sources and translations."""
from __future__ import annotations

from lingpipe.hyperparams import field
from lingpipe.pipeline.decoding.search_params import SearchParams


class DecodeParams(SearchParams):
    """How lines are translated."""
    extra_length: int = field(
        50, 'A translation has at most so many ids more than its source, and no more than '
            'max_length.', least=0)
    max_source_length: int = field(
        256, 'Longer sources, in ids, their end included, are cut.', least=2)
    group_size: int = field(
        16, 'Sentences of a sentence group, at most; there is one group a cell, and two where more '
            'sentences come.', least=1)
    language: str = field(
        '', 'The language whose tag goes before lines that have none (<de> Guten Tag); empty: no '
            'tag.')
    target_language: str = field(
        '', 'The language of translations, as fra_Latn, if a model of Hugging Face makes them.')
