"""Trains one sentencepiece vocabulary for all languages of a prepared corpus.

    python -m lingpipe.tools.train_vocabulary --corpus=CORPUS --size=16000
    python -m lingpipe.tools.train_vocabulary --corpus=CORPUS --vocabulary=OTHER/vocabulary.model

It is trained on sentences of the training part, with languages drawn by temperature. The ids of all
sentences are written too. The second command takes an existing vocabulary and only writes ids.
"""
from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.progress import Progress

from lingpipe.tasks.translation.corpus.prepared import PreparedCorpus
from lingpipe.tasks.translation.corpus.vocabulary import Vocabulary, encode_corpus, sample, train
from lingpipe.tools import parser
from lingpipe.tools.command_line import command
from lingpipe.wording.counts import counted


def write_ids(corpus: PreparedCorpus, vocabulary: Vocabulary, console: Console) -> dict[str, Any]:
    """Writes ids and the vocabulary into the corpus, and returns the statistics of ids."""
    total = 2 * sum(int(corpus.rows(split)[-1]) for split in ('train', 'test'))
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task('ids', total=total)
        return encode_corpus(corpus, vocabulary, lambda n: bar.advance(task, n))


def ids_text(ids: dict[str, Any]) -> str:
    """Returns a table of what encode_corpus returned."""
    names = ('sentences', 'ids', 'p50', 'p90', 'p99', 'max')
    heading = ''.join(f'{name:>12}' for name in names)
    lines = [f'{ids["vocab_size"]:,} ids  {heading}{"bytes":>8}']
    for side in ('source', 'english'):
        numbers = ''.join(f'{ids[side][name]:12,}' for name in names)
        lines.append(f'{side:10}     {numbers}{ids[side]["bytes_share"]:8.2%}')
    return '\n'.join(lines)


@command
def main(argv: list[str] | None = None) -> None:
    """Trains, encodes and prints statistics."""
    p = parser('train_vocabulary', __doc__)
    p.add_argument('--corpus', required=True,
                   help='folder that lingpipe.tools.build_corpus made')
    p.add_argument('--vocabulary', default='', help='use this model; none is trained')
    p.add_number('--size', 16000, 'number of ids', least=1)
    p.add_argument('--kind', choices=['unigram', 'bpe'], default='unigram')
    p.add_number('--temperature', 5., 'of the sample', least=1, is_finite=False)
    p.add_number('--sentences', 200_000, 'in the sample', least=1)
    p.add_number('--english_share', 0.2, 'of the sample', least=0, most=1)
    p.add_number('--coverage', 0.9995,
                 'part of all characters with an id; others are spelt in bytes', above=0, most=1)
    p.add_argument('--language_tags', action='store_true', help="give each language an id '<code>'")
    p.add_number('--seed', 0, 'of the sample', least=0)
    p.add_number('--threads', 2, 'of the training', least=1, most=1024)
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)

    console = Console(file=sys.stderr)
    corpus = PreparedCorpus(args.corpus)
    if args.vocabulary:
        vocabulary = Vocabulary(args.vocabulary)
    else:
        sentences = sample(corpus, args.sentences, args.temperature, args.english_share, args.seed)
        tags = corpus.codes if args.language_tags else ()
        with Progress(console=console, transient=True) as bar:
            tracked = bar.track(sentences,
                                description=f'vocabulary of {counted(len(sentences), "sentence")}')
            vocabulary = train(tracked, args.size, args.kind, args.coverage, tags, args.threads)

    ids = write_ids(corpus, vocabulary, console)
    print(json.dumps({'vocabulary': corpus.vocabulary_path, **ids}) if args.json else ids_text(ids))


if __name__ == '__main__':
    main()
