"""Scores translations into English by sacreBLEU and chrF.

    python -m lingpipe.tools.score_translations --corpus=CORPUS --model=NAME --logdir=DIR \\
        --sentences=100 --baselines --output=scores.png
    python -m lingpipe.tools.score_translations --file=de:OURS.txt:REFERENCE.txt \\
        --file=cy:OURS.cy:REFERENCE.cy
    python -m lingpipe.tools.score_translations --corpus=CORPUS --baselines

Each language has scores, and so has each pool of languages with about as many pairs for training.
The test part of a corpus is scored, translated by the newest checkpoint of DIR or read from a file.
The scores of a checkpoint go to the TensorBoard of DIR too.

One baseline copies the source. The other, a dictionary, replaces each word by the English word that
comes with it in training pairs (tasks/translation/dictionary.py). The third command scores the
baselines without a model.
"""
from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lingpipe.tasks.translation.corpus.languages import checked, language_of
from lingpipe.tasks.translation.corpus.prepared import Language, PreparedCorpus
from lingpipe.tasks.translation.dictionary import Dictionary
from lingpipe.tasks.translation.scores import Translated, scored
from lingpipe.tools import parser
from lingpipe.tools.command_line import command
from lingpipe.wording.counts import counted

COLOURS = {'model': '#2a5db0', 'file': '#2a5db0', 'dictionary': '#c9762b', 'copy': '#8a8a8a'}
MAX_NAMED_LANGUAGES = 120
NUM_SMOOTHED = 9     # languages in the running mean of a line
MIN_SENTENCES = 50   # BLEU of fewer sentences says little


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Returns the flags."""
    p = parser('score_translations', __doc__)
    p.add_argument('--corpus', default='',
                   help='folder that lingpipe.tools.build_corpus made: sentences, levels, '
                        'baselines')
    p.add_argument('--model', default='', help='experiment whose newest checkpoint translates')
    p.add_argument('--logdir', default='', help='of its training')
    p.add_argument('--set', action='append', default=[],
                   help='path=value: overrides a value of its Params, as task.decode.beam_size=1')
    p.add_argument('--file', action='append', default=[],
                   help='CODE:TRANSLATIONS:REFERENCES, files of lines, or CODE:TRANSLATIONS of all '
                        "the corpus's test sentences of the language; may be repeated")
    p.add_argument('--languages', default='', help='codes, with commas between; default: all')
    p.add_number('--sentences', 0, 'of each language at most, evenly taken; 0: all', least=0)
    p.add_argument('--baselines', action='store_true', help='score copying and a dictionary too')
    p.add_output('--output', '', 'save a picture to this path')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    return p.parse_args(argv)


def check(args: argparse.Namespace) -> None:
    """Raises ValueError for flags that do not go together."""
    if bool(args.model) != bool(args.logdir):
        raise ValueError('--model and --logdir go together; give both, or neither.')
    if args.set and not args.model:
        raise ValueError('--set changes Params of a model; give --model and --logdir, or leave it '
                         'out.')
    if args.model and (args.file or not args.corpus):
        raise ValueError('--model translates the test part of a corpus; give --corpus, and no '
                         '--file.')
    if not (args.model or args.file or args.baselines and args.corpus):
        raise ValueError('nothing to score; give --model and --logdir, or --file, or --corpus and '
                         '--baselines.')
    # Two codes may be one language: nb is no.
    codes = [language_of(code)[0] or code
             for code in (flag.partition(':')[0] for flag in args.file)]
    if twice := [code for code in codes if codes.count(code) > 1]:
        raise ValueError(f'--file names the language {twice[0]} twice, whose sentences would count '
                         'twice; give each language once.')
    if args.file and (args.sentences or args.languages):
        raise ValueError('--file is scored as it is; leave out --sentences and --languages.')
    if args.baselines and not args.corpus:
        raise ValueError('--baselines come from pairs of a corpus; give --corpus.')


class TestSentences(NamedTuple):
    """The test sentences of a language: `sources`, and `references` in English."""
    language: Language
    sources: list[str]
    references: list[str]


def find(args: argparse.Namespace) -> tuple[list[Translated], int | None]:
    """Returns the languages with their translations, and the checkpoint's step if there is one.

    Raises:
      ValueError: flags do not go together, or a file is refused.
    """
    check(args)
    corpus = PreparedCorpus(args.corpus) if args.corpus else None
    if args.file:
        return [from_files(flag, corpus, args.baselines) for flag in args.file], None

    assert corpus is not None
    tests = test_sentences(args, corpus)
    systems: list[dict[str, list[str]]] = [{} for _ in tests]
    step = None
    if args.model:
        lines = [(test.language.code, line) for test in tests for line in test.sources]
        translations, step = translated(args, lines)
        rest = iter(translations)
        for system, test in zip(systems, tests, strict=True):
            system['model'] = list(itertools.islice(rest, len(test.sources)))
    if args.baselines:
        for system, test in zip(systems, tests, strict=True):
            system.update(baselines(corpus, test.language.code, test.sources))

    return [Translated(test.language.code, test.language.level, test.language.train, system,
                       test.references)
            for system, test in zip(systems, tests, strict=True)], step


def test_sentences(args: argparse.Namespace, corpus: PreparedCorpus) -> list[TestSentences]:
    """Returns the test sentences of each language that the flags choose; says what has none.

    Raises:
      ValueError: no language has any.
    """
    tests = []
    untested_codes = []
    for i in corpus.select([code for code in args.languages.split(',') if code]):
        language = corpus.languages[i]
        sources, references = corpus.pairs('test', language.code)
        number = min(args.sentences or len(sources), len(sources))
        chosen = (np.arange(number) * len(sources) // max(1, number)).tolist()
        if chosen:
            tests.append(TestSentences(language, [sources[j] for j in chosen],
                                       [references[j] for j in chosen]))
        else:
            untested_codes.append(language.code)

    if not tests:
        raise ValueError(f'{args.corpus} has no test sentences of '
                         f'{args.languages or "any language"}; choose other languages.')
    if untested_codes:
        say(f'without test sentences, and left out: {", ".join(untested_codes)}')
    return tests


def from_files(flag: str, corpus: PreparedCorpus | None, has_baselines: bool) -> Translated:
    """Returns the language of a --file."""
    code, *paths = flag.split(':')
    if not 1 <= len(paths) <= 2 or not all([code, *paths]):
        raise ValueError(f'--file={flag} has {counted(len(paths) + 1, "part")} between colons; '
                         'write --file=CODE:TRANSLATIONS:REFERENCES.')
    if len(paths) == 1 and corpus is None:
        raise ValueError(f'--file={flag} names no references; write --file={flag}:REFERENCES, or '
                         'give --corpus.')

    level = ''
    num_pairs = 0
    sources: list[str] = []
    references: list[str] = []
    if corpus is None:
        code = checked([code])[0]
    else:
        language = corpus.languages[corpus.select([code])[0]]
        code = language.code
        level = language.level
        num_pairs = language.train
        sources, references = corpus.pairs('test', code)
    if len(paths) == 2:
        references = read(paths[1])

    systems = {'file': read(paths[0])}
    if has_baselines:
        assert corpus is not None
        systems.update(baselines(corpus, code, sources))
    return Translated(code, level, num_pairs, systems, references)


def read(path: str) -> list[str]:
    """Returns the lines of a file, as --mode=decode reads them."""
    from lingpipe.commands.line_input import read_lines
    try:
        return read_lines(path)
    except OSError as error:
        why = getattr(error.__cause__, 'strerror', None) or error.__cause__
        raise ValueError(f'{path} cannot be read: {why}; name a file of lines in UTF-8.') from error


def baselines(corpus: PreparedCorpus, code: str, sources: list[str]) -> dict[str, list[str]]:
    """Returns the translations of sentences by a dictionary, and the sentences themselves."""
    dictionary = Dictionary(*corpus.pairs('train', code))
    return {'dictionary': dictionary.translate(sources), 'copy': sources}


def translated(args: argparse.Namespace, lines: list[tuple[str, str]]) -> tuple[list[str], int]:
    """Returns the translations of (language, line), and the step of the checkpoint."""
    from lingpipe.commands import device_setup, experiment_params
    from lingpipe.commands.run_options import RunOptions
    from lingpipe.training import newest_checkpoint
    params = experiment_params.read_params(RunOptions('decode', args.model, tuple(args.set)))
    device_setup.configure(params)
    experiment = params.instantiate()
    program, metadata = newest_checkpoint.restored(experiment, args.logdir)
    has_tags = getattr(params.train_input, 'language_tags', False)
    texts = [f'<{code}> {line}' if has_tags else line for code, line in lines]
    translations = experiment.task.decode(program, texts, metadata.get('task', {}))
    return list(translations), metadata['step']


def say(line: str) -> None:
    """Prints a line for a person to stderr, beside the results."""
    print(f'score_translations: {line}', file=sys.stderr)


def say_blank(languages: list[Translated]) -> None:
    """Says how many translations are blank, if any."""
    num_blank = {name: sum(not line.strip() for language in languages
                           for line in language.systems[name])
                 for name in languages[0].systems}
    if any(num_blank.values()):
        total = sum(len(language.references) for language in languages)
        by_system = ', '.join(f'{name} {number:,}' for name, number in num_blank.items() if number)
        say(f'blank translations, scored as they are, of {total:,}: {by_system}')


def systems_of(scores: Mapping[str, Any]) -> list[str]:
    """Returns the names of all systems that were scored."""
    return [name for name, value in scores['pools'][0].items() if isinstance(value, dict)]


def text(scores: Mapping[str, Any]) -> str:
    """Returns the table: languages, the largest first, then pools and signatures.

    Languages of few sentences have a star.
    """
    systems = systems_of(scores)
    width = max(12, *(len(name) + 2 for name in systems))
    system_names = ''.join(f'{name:>{2 * width}}' for name in systems)
    measures = ''.join(f'{"BLEU":>{width}}{"chrF":>{width}}' for _ in systems)
    lines = [f'{"":8}{"level":8}{"pairs":>10}{"sentences":>11}{system_names}', f'{"":37}{measures}']

    for rows in (scores['languages'], scores['pools']):
        for row in rows:
            marked = row['name'] + '*' * row.get('has_few_sentences', False)
            numbers = ''.join(f'{row[name]["bleu"]:{width}.1f}{row[name]["chrf"]:{width}.1f}'
                              for name in systems)
            lines.append(f'{marked:8}{row["level"]:8}{row["train"]:10,}{row["sentences"]:11,}'
                         f'{numbers}')
        lines.append('')
    if any(row['has_few_sentences'] for row in scores['languages']):
        lines.append(f'* fewer than {MIN_SENTENCES} sentences: too few for a BLEU of the language '
                     'alone; the pools count them')
    lines += [f'{name}: {signature}' for name, signature in scores['signatures'].items()]
    return '\n'.join(lines)


def draw(scores: Mapping[str, Any], path: str) -> None:
    """Draws BLEU of the languages by decreasing number of pairs, as Figure 3 of arXiv:1811.06965.

    Each system has a line of its running mean. Languages of few sentences are hollow dots, and left
    out of the mean.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    rows = scores['languages']
    figure = Figure(figsize=(min(max(7., 0.16 * len(rows) + 2), 20.), 5.), layout='constrained')
    FigureCanvasAgg(figure)
    ax = figure.add_subplot()
    places = np.arange(len(rows))
    has_few = np.array([row['has_few_sentences'] for row in rows])
    dots: dict[str, Any] = {'linestyle': '', 'marker': '.', 'alpha': 0.5, 'markersize': 5}

    for name in systems_of(scores):
        values = np.array([row[name]['bleu'] for row in rows])
        colour = COLOURS.get(name)
        pooled = ', '.join(f'{row["name"]} {row[name]["bleu"]:.1f}' for row in scores['pools'])
        ax.plot(places[~has_few], values[~has_few], color=colour, **dots)
        ax.plot(places[has_few], values[has_few], color=colour, markerfacecolor='none', **dots)
        ax.plot(places[~has_few], running_mean(values[~has_few]), color=colour, linewidth=1.5,
                label=f'{name}: {pooled}')

    ax.set_xlabel('languages, by decreasing number of training pairs')
    ax.set_ylabel('BLEU')
    ax.set_ylim(bottom=0)
    ax.set_xlim(-1, len(rows))
    ax.spines[['top', 'right']].set_visible(False)
    if len(rows) <= MAX_NAMED_LANGUAGES:
        ax.set_xticks(places, [row['name'] for row in rows], rotation=90, fontsize=7)
    ax.legend(frameon=False)
    figure.savefig(path, dpi=120)


def running_mean(values: np.ndarray) -> list[float]:
    """Returns the mean of each value and its neighbours, NUM_SMOOTHED in all."""
    half = NUM_SMOOTHED // 2
    return [values[max(0, i - half):i + half + 1].mean() for i in range(len(values))]


def write_summaries(logdir: str, step: int, scores: Mapping[str, Any]) -> None:
    """Writes the scores of the model for TensorBoard."""
    from lingpipe.training.reporting.summaries import Summaries
    scalars = {f'{measure}/{row["name"]}': row['model'][measure] for measure in ('bleu', 'chrf')
               for row in (*scores['pools'], *scores['languages'])}
    summaries = Summaries(os.path.join(logdir, 'tensorboard', 'scores'))
    summaries.scalars(step, scalars)
    summaries.close()


@command
def main(argv: list[str] | None = None) -> None:
    """Scores and prints."""
    args = parse(argv)
    languages, step = find(args)
    scores = scored(languages)
    say_blank(languages)
    for row in scores['languages']:
        row['has_few_sentences'] = row['sentences'] < MIN_SENTENCES

    if args.output:
        draw(scores, args.output)
    if step is not None:
        write_summaries(args.logdir, step, scores)
        scores['step'] = step
    print(json.dumps(scores) if args.json else text(scores))
    if args.output:
        print(f'picture: {args.output}', file=sys.stderr)


if __name__ == '__main__':
    main()
