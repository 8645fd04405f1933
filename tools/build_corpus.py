"""Prepares a corpus of many languages and English from files, catalogues and data sets.

    python -m lingpipe.tools.build_corpus --output=CORPUS --mediawiki=/tmp/mediawiki
    python -m lingpipe.tools.build_corpus --output=CORPUS --text=de:news.de:news.en \\
        --tab=cy:welsh.tsv:1,0 --gettext=/usr/share/locale
    python -m lingpipe.tools.build_corpus --output=CORPUS --data_dir=DIR \\
        --tfds=ted_multi_translate:train+validation --tfds=opus/de-en/EMEA
    python -m lingpipe.tools.train_vocabulary --corpus=CORPUS --size=16000

The sentences are cleaned, split into a training and a test part by their English, and written to
one folder. Every flag of a source may be repeated. A table says what is dropped and why, with the
first places, and is kept in CORPUS/corpus.json. Mind the licences of what you build from:
MediaWiki's messages are under GPL-2+.
"""
from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import Progress

from lingpipe.tasks.translation.corpus import catalogues, datasets, files, languages, mediawiki
from lingpipe.tasks.translation.corpus.cleaning import Cleaner
from lingpipe.tasks.translation.corpus.pair import Pair
from lingpipe.tasks.translation.corpus.prepared import PreparedCorpus, write
from lingpipe.tasks.translation.corpus.report import Report
from lingpipe.tasks.translation.corpus.vocabulary import Vocabulary
from lingpipe.tools import parser
from lingpipe.tools.command_line import command
from lingpipe.tools.train_vocabulary import ids_text, write_ids
from lingpipe.wording.counts import counted

UPDATE_EVERY = 2000   # pairs between two updates of the progress bar


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Returns the flags."""
    p = parser('build_corpus', __doc__)
    p.add_output_folder('--output', 'folder of the corpus')
    p.add_argument('--text', action='append', default=[], metavar='CODE:FILE:ENGLISH',
                   help='two files, line for line')
    p.add_argument('--tab', action='append', default=[], metavar='CODE:FILE[:I,J]',
                   help='a file with tabs; columns from 0, default 0,1')
    p.add_argument('--gettext', action='append', default=[], metavar='FOLDER',
                   help='of .po and .mo files')
    p.add_argument('--mediawiki', action='append', default=[], metavar='FOLDER',
                   help='of i18n files; see lingpipe.tools.get_mediawiki')
    p.add_argument('--tfds', action='append', default=[], metavar='NAME[:SPLIT]',
                   help='a set of tensorflow-datasets')
    p.add_argument('--data_dir', default=None,
                   help='where sets of tensorflow-datasets are prepared')
    p.add_argument('--download', action='store_true', help='download sets that are not prepared')
    p.add_argument('--languages', default='listed',
                   help="codes with commas; 'listed': 102 of a public translator; 'known': those "
                        'and more')
    p.add_number('--max_words', 60, 'of either sentence', least=1)
    p.add_number('--max_characters', 400, 'of either sentence', least=1)
    p.add_number('--min_words', 1, 'of the English', least=1)
    p.add_number('--test_share', 0.09, 'the part of the English sentences that is never trained on',
                 least=0, below=1)
    p.add_argument('--vocabulary', default='',
                   help='a sentencepiece model that is there: ids are written at once')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    return p.parse_args(argv)


def sources(args: argparse.Namespace, report: Report) -> Iterator[tuple[str, Iterator[Pair]]]:
    """Yields (a name, the pairs) of every source in the flags.

    Raises:
      ValueError: a flag is malformed.
    """
    for flag in args.text:
        code, text, english = _parts(flag, '--text', 'CODE:FILE:ENGLISH', 3, 3)
        yield text, files.text_pairs(code, text, english, report)
    for flag in args.tab:
        code, path, *columns = _parts(flag, '--tab', 'CODE:FILE or CODE:FILE:I,J', 2, 3)
        numbers = (columns or ['0,1'])[0].split(',')
        if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
            raise ValueError(f'--tab={flag} names the columns {columns[0]!r}; write two numbers '
                             'from 0, the sentence first: 0,1.')
        yield path, files.tab_pairs(code, path, report, (int(numbers[0]), int(numbers[1])))
    for folder in args.gettext:
        yield folder, catalogues.catalogue_pairs(folder, report)
    for folder in args.mediawiki:
        yield folder, mediawiki.message_pairs(folder, report)
    for flag in args.tfds:
        name, _, split = flag.partition(':') if flag.count(':') < 2 else flag.rpartition(':')
        yield name, datasets.dataset_pairs(name, split or 'train', args.data_dir, args.download)


def _parts(flag: str, name: str, form: str, least: int, most: int) -> list[str]:
    parts = flag.split(':')
    if not least <= len(parts) <= most or not all(parts):
        raise ValueError(f'{name}={flag} has {counted(len(parts), "part")} between colons; write '
                         f'{name}={form}.')
    return parts


def build(args: argparse.Namespace, console: Console
          ) -> tuple[PreparedCorpus, Report, dict[str, object]]:
    """Returns the corpus, what was dropped, and statistics of ids, or {} without a vocabulary.

    Raises:
      ValueError: no source is named, or a source is refused.
    """
    codes_by_name = {'listed': tuple(languages.LISTED), 'known': tuple(languages.KNOWN)}
    codes = codes_by_name.get(args.languages) or tuple(args.languages.split(','))
    cleaner = Cleaner(codes, args.max_words, args.max_characters, args.min_words)
    vocabulary = Vocabulary(args.vocabulary) if args.vocabulary else None
    if not any((args.text, args.tab, args.gettext, args.mediawiki, args.tfds)):
        raise ValueError('no source is named; use --text, --tab, --gettext, --mediawiki or --tfds '
                         '(see --help).')

    columns = ('{task.description}', '{task.fields[shown]}')
    with Progress(*columns, console=console, transient=True) as bar:
        pairs = cleaned(args, cleaner, bar)
        corpus = write(args.output, pairs, cleaner.report, args.test_share)
    ids = write_ids(corpus, vocabulary, console) if vocabulary else {}
    return corpus, cleaner.report, ids


def cleaned(args: argparse.Namespace, cleaner: Cleaner, bar: Progress) -> Iterator[Pair]:
    """Yields the pairs of all sources that the cleaner keeps, and counts them in the bar."""
    for name, pairs in sources(args, cleaner.report):
        task = bar.add_task(name, total=None, shown='')
        number = 0
        for number, pair in enumerate(cleaner.clean(pairs), 1):
            yield pair
            if number % UPDATE_EVERY == 0:
                bar.update(task, shown=counted(number, 'pair'))
        bar.update(task, shown=counted(number, 'pair'))


@command
def main(argv: list[str] | None = None) -> None:
    """Builds and prints the tables."""
    args = parse(argv)
    corpus, report, ids = build(args, Console(file=sys.stderr))
    if args.json:
        statistics = {'ids': ids} if ids else {}
        print(json.dumps({'output': args.output, **corpus.described, **statistics}))
        return
    print(report.text())
    print(corpus.text())
    if ids:
        print(ids_text(ids))
    else:
        print(f'next: python -m lingpipe.tools.train_vocabulary --corpus={args.output}')


if __name__ == '__main__':
    main()
