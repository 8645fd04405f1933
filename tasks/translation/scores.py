"""Scores: BLEU and chrF of translations, by language and pooled by resources.

They are sacreBLEU's (Post, 2018, arXiv:1804.08771; chrF is of Popovic, 2015). A pool is scored as
one corpus of all its sentences, not by a mean over languages.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from lingpipe.tasks.translation.corpus.prepared import LEVELS
from lingpipe.wording.counts import counted

ALL = 'all'


@dataclasses.dataclass(frozen=True)
class Translated:
    """The translations of one language's sentences.

    Attributes:
      code: the code of the language.
      level: 'high', 'middle' or 'low', or '' if it is not known.
      train: the number of its pairs for training, or 0.
      systems: translations of the same sentences, by the name of the system.
      references: the translations that are expected.
    """
    code: str
    level: str
    train: int
    systems: Mapping[str, Sequence[str]]
    references: Sequence[str]

    def __post_init__(self) -> None:
        for name, lines in self.systems.items():
            if len(lines) != len(self.references):
                raise ValueError(f'{self.code}: {name} has {counted(len(lines), "line")}, but '
                                 f'there are {counted(len(self.references), "reference")}; line n '
                                 'of one must be that of the other.')
        if not self.references:
            raise ValueError(f'{self.code}: there are no references; give one sentence or more.')
        if not any(line.strip() for line in self.references):
            raise ValueError(f'{self.code}: no line of the references has a word; '
                             'give the sentences that translations are compared with.')


def scored(languages: Sequence[Translated]) -> dict[str, Any]:
    """Returns the scores of languages and pools.

    Returns:
      languages: a row for each language, the largest first.
      pools: a row for each level that occurs, and one for 'all'.
      signatures: those of 'bleu' and 'chrf', as sacreBLEU writes them.
      A row has name, level, train, sentences, and {'bleu', 'chrf'} for each system.

    Raises:
      ValueError: sacreBLEU is missing, or languages have different systems.
    """
    if len({tuple(one.systems) for one in languages}) > 1:
        raise ValueError('languages have different systems; give every language the same ones.')
    bleu, chrf = _metrics()
    order = sorted(languages, key=lambda one: (-one.train, one.code))

    def row(name: str, level: str, some: Sequence[Translated]) -> dict[str, Any]:
        """Returns the scores of some languages together."""
        references = [line for one in some for line in one.references]
        scores: dict[str, Any] = {'name': name, 'level': level,
                                  'train': sum(one.train for one in some),
                                  'sentences': len(references)}
        for system in some[0].systems:
            lines = [line for one in some for line in one.systems[system]]
            scores[system] = {'bleu': bleu.corpus_score(lines, [references]).score,
                              'chrf': chrf.corpus_score(lines, [references]).score}
        return scores

    pools = [row(level, level, some) for level in LEVELS
             if (some := [one for one in order if one.level == level])]
    table = {'languages': [row(one.code, one.level, [one]) for one in order],
             'pools': [*pools, row(ALL, '', order)]}
    return {**table,
            'signatures': {'bleu': str(bleu.get_signature()), 'chrf': str(chrf.get_signature())}}


def _metrics() -> Any:
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError as error:
        raise ValueError("scores need sacrebleu: pip install -e '.[translation]' "
                         f"({error}).") from error
    return BLEU(), CHRF()
