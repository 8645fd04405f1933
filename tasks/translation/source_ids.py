"""Source ids: what a translation reads, the ids of lines with their languages' tags."""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from absl import logging

from lingpipe.tasks.translation.corpus.cleaning import normalized
from lingpipe.tasks.translation.corpus.languages import checked
from lingpipe.tasks.translation.corpus.vocabulary import END, Vocabulary
from lingpipe.wording.counts import are, counted

NUM_NAMED_LINES = 5
_TAG = re.compile(r'<([a-z-]+)>\s*')


def source_ids(vocabulary: Vocabulary, lines: Sequence[str], language: str,
               max_length: int) -> list[list[int]]:
    """Returns the ids of lines, with tag and end; an empty line has no ids.

    Args:
      vocabulary: if it has tags, a line may begin with one: '<de> Guten Tag'. If it has none, such
        a tag is text.
      lines: one sentence each.
      language: the code whose tag goes before lines that have none; empty: no tag.
      max_length: the most ids of a line, its end included; longer ones are cut.

    Raises:
      ValueError: a line's language, or `language`, has no tag in the vocabulary.
    """
    known = vocabulary.tags
    if language and not known:
        raise ValueError(f'task.decode.language={language!r}, but the vocabulary has no tags '
                         'of languages; leave it empty, or train with a vocabulary of '
                         'lingpipe.tools.train_vocabulary --language_tags.')

    usual = [_tag(language, known, 'task.decode.language')] if language else []
    cleaned = [normalized(line) for line in lines]   # Invisible marks hide no tag.
    tags = [_TAG.match(line) if known else None for line in cleaned]
    texts = [normalized(line[tag.end():]) if tag else line
             for line, tag in zip(cleaned, tags, strict=True)]
    first = [[_tag(tag[1], known,
                   f'line {i + 1} begins with {tag[0].strip()}, which is text only after a '
                   'tag')] if tag else usual for i, tag in enumerate(tags)]
    rows = [[*tag, *ids] if ids else []
            for tag, ids in zip(first, vocabulary.encode(texts), strict=True)]
    return [[*row, END] if row else [] for row in shortened(rows, max_length, 1)]


def shortened(rows: Sequence[list[int]], max_length: int, num_others: int) -> list[list[int]]:
    """Returns rows of ids, each cut so that a source has no more than max_length; warns of that.

    Args:
      rows: the ids of lines.
      max_length: task.decode.max_source_length.
      num_others: how many ids more a source has.
    """
    room = max_length - num_others
    if cut := [i for i, row in enumerate(rows) if len(row) > room]:
        logging.warning('task.decode.max_source_length=%d ids has cut %s that %s longer: %s',
                        max_length, counted(len(cut), 'source'), are(len(cut)), line_numbers(cut))
    return [row[:room] for row in rows]


def warn_of_tags(sources: Sequence[Sequence[int]], vocabulary: Vocabulary,
                 has_tags: bool | None) -> None:
    """Warns of tags after the beginning, and of sources that do not begin as those of the run.

    Args:
      sources: as `source_ids` returned them.
      vocabulary: theirs.
      has_tags: whether sources of the run had tags; None: it is not known.
    """
    tags = set(vocabulary.tags.values())
    late = [i for i, ids in enumerate(sources) if not tags.isdisjoint(ids[1:])]
    all_lines = counted(len(sources), 'line')
    if late:
        logging.warning('in %d of %s, a tag of a language stands after the beginning, where it '
                        'is read as that tag and not as text: %s; begin the line with it, or leave '
                        'it out', len(late), all_lines, line_numbers(late))
    if has_tags is None or not tags:
        return
    unlike = [i for i, ids in enumerate(sources) if ids and (ids[0] in tags) != has_tags]
    if unlike and has_tags:
        logging.warning('in %d of %s, the tag of the language is missing, which all sources of the '
                        'run had: %s; begin with it, as <%s>, or set task.decode.language',
                        len(unlike), all_lines, line_numbers(unlike),
                        next(iter(vocabulary.tags)))
    elif unlike:
        logging.warning('in %d of %s there is the tag of a language, but no source of the run '
                        'had one: %s; leave it out', len(unlike), all_lines,
                        line_numbers(unlike))


def _tag(code: str, tags: Mapping[str, int], where: str) -> int:
    """Returns the id of a language's tag; `where` begins the error."""
    try:
        language, = checked([code], tags, "one of the vocabulary's tags")
    except ValueError as error:
        raise ValueError(f'{where}: {error}') from error
    return tags[language]


def line_numbers(indices: Iterable[int]) -> str:
    """Returns the first of the line numbers, counted from 1."""
    numbers = [str(i + 1) for i in sorted(indices)]
    return (f'line{"s" * (len(numbers) > 1)} '
            f'{", ".join(numbers[:NUM_NAMED_LINES])}{", ..." * (len(numbers) > NUM_NAMED_LINES)}')
