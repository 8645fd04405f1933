"""Scores translations into English: sacreBLEU and chrF of every language, and pooled by how many pairs a language has for training.

    python -m lingpipe.tools.score_translations --corpus=CORPUS --model=NAME --logdir=DIR --sentences=100 --baselines --output=scores.png
    python -m lingpipe.tools.score_translations --file=de:OURS.txt:REFERENCE.txt --file=cy:OURS.cy:REFERENCE.cy
    python -m lingpipe.tools.score_translations --corpus=CORPUS --baselines      # what copying and a dictionary reach, without a model

Of a corpus the test part is scored: translated by the newest checkpoint of DIR, whose TensorBoard gets the scores too, or from a file.
The baselines copy the source, or put for each word the English one that comes with it in training pairs (tasks/translation/dictionary.py).
"""
from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

import numpy as np

from lingpipe.tasks.translation.corpus.languages import checked
from lingpipe.tasks.translation.corpus.prepared import PreparedCorpus
from lingpipe.tasks.translation.dictionary import Dictionary
from lingpipe.tasks.translation.scores import Translated, scored
from lingpipe.tools import parser
from lingpipe.tools.command_line import command

COLOURS = {'model': '#2a5db0', 'file': '#2a5db0', 'dictionary': '#c9762b', 'copy': '#8a8a8a'}
MAX_NAMED_LANGUAGES = 120
SMOOTHED = 9   # languages of the line's running mean
MIN_SENTENCES = 50   # BLEU of fewer is no number to go by


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The flags."""
    p = parser('score_translations', __doc__)
    p.add_argument('--corpus', default='', help='folder that lingpipe.tools.build_corpus made: sentences, levels, baselines')
    p.add_argument('--model', default='', help='experiment whose newest checkpoint translates')
    p.add_argument('--logdir', default='', help='of its training')
    p.add_argument('--set', action='append', default=[], help='path=value: overrides a value of its Params, as task.decode.beam_size=1')
    p.add_argument('--file', action='append', default=[], help='CODE:TRANSLATIONS:REFERENCES, files of lines, or CODE:TRANSLATIONS of all '
                   "the corpus's test sentences of the language; may be repeated")
    p.add_argument('--languages', default='', help='codes, with commas between; default: all')
    p.add_number('--sentences', 0, 'of each language at most, evenly taken; 0: all', least=0)
    p.add_argument('--baselines', action='store_true', help='score copying and a dictionary too')
    p.add_output('--output', '', 'save a picture to this path')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    return p.parse_args(argv)


def find(args: argparse.Namespace) -> tuple[list[Translated], int | None]:
    """(languages with their translations, the checkpoint's step if there is one).

    Raises:
      ValueError: flags that do not go together, or what readers find.
    """
    if bool(args.model) != bool(args.logdir):
        raise ValueError('--model and --logdir go together; give both, or neither.')
    if args.set and not args.model:
        raise ValueError('--set changes Params of a model; give --model and --logdir, or leave it out.')
    if args.model and (args.file or not args.corpus):
        raise ValueError('--model translates the test part of a corpus; give --corpus, and no --file.')
    if not (args.model or args.file or args.baselines and args.corpus):
        raise ValueError('nothing to score; give --model and --logdir, or --file, or --corpus and --baselines.')
    if args.file and (args.sentences or args.languages):
        raise ValueError('--file is scored as it is; leave out --sentences and --languages.')
    if args.baselines and not args.corpus:
        raise ValueError('--baselines come from pairs of a corpus; give --corpus.')
    corpus = PreparedCorpus(args.corpus) if args.corpus else None
    if args.file:
        return [from_files(flag, corpus, args.baselines) for flag in args.file], None
    assert corpus is not None
    texts: list[tuple[Any, list[str], list[str]]] = []
    untested = []
    for i in corpus.select([code for code in args.languages.split(',') if code]):
        language = corpus.languages[i]
        sources, english = corpus.pairs('test', language.code)
        most = min(args.sentences or len(sources), len(sources))
        chosen = (np.arange(most) * len(sources) // max(1, most)).tolist()
        if chosen:
            texts.append((language, [sources[j] for j in chosen], [english[j] for j in chosen]))
        else:
            untested.append(language.code)
    if not texts:
        raise ValueError(f'{args.corpus} has no test sentences of {args.languages or "any language"}; choose other languages.')
    if untested:
        say(f'without test sentences, and left out: {", ".join(untested)}')
    systems: list[dict[str, list[str]]] = [{} for _ in texts]
    step = None
    if args.model:
        translations, step = translated(args, [(language.code, line) for language, sources, _ in texts for line in sources])
        for system, (_, sources, _) in zip(systems, texts, strict=True):
            system['model'], translations = translations[:len(sources)], translations[len(sources):]
    if args.baselines:
        for system, (language, sources, _) in zip(systems, texts, strict=True):
            system.update(baselines(corpus, language.code, sources))
    return [Translated(language.code, language.level, language.train, system, english)
            for system, (language, _, english) in zip(systems, texts, strict=True)], step


def from_files(flag: str, corpus: PreparedCorpus | None, has_baselines: bool) -> Translated:
    """The language of a --file."""
    code, *paths = flag.split(':')
    if not 1 <= len(paths) <= 2 or not all([code, *paths]):
        raise ValueError(f'--file={flag} has {len(paths) + 1} parts between colons; write --file=CODE:TRANSLATIONS:REFERENCES.')
    if len(paths) == 1 and corpus is None:
        raise ValueError(f'--file={flag} names no references; write --file={flag}:REFERENCES, or give --corpus.')
    language = corpus.languages[corpus.select([code])[0]] if corpus else None
    code = language.code if language else checked([code])[0]
    sources, english = corpus.pairs('test', language.code) if corpus and language else ([], [])
    references = read(paths[1]) if len(paths) == 2 else english
    systems = {'file': read(paths[0])}
    if has_baselines:
        assert corpus is not None
        systems.update(baselines(corpus, code, sources))
    return Translated(code, language.level if language else '', language.train if language else 0, systems, references)


def read(path: str) -> list[str]:
    """The lines of a file, as --mode=decode reads them."""
    from lingpipe.commands.decode import read_lines
    try:
        return read_lines(path)
    except OSError as error:
        raise ValueError(f'{path} cannot be read: {error.__cause__}; name a file of lines in UTF-8.') from error


def baselines(corpus: PreparedCorpus, code: str, sources: list[str]) -> dict[str, list[str]]:
    """What a dictionary makes of sentences, and the sentences themselves."""
    return {'dictionary': Dictionary(*corpus.pairs('train', code)).translate(sources), 'copy': sources}


def translated(args: argparse.Namespace, lines: list[tuple[str, str]]) -> tuple[list[str], int]:
    """(the translations of (language, line), the step of the checkpoint)."""
    from lingpipe import trainer
    from lingpipe.commands import device_setup
    from lingpipe.commands.run_options import RunOptions
    from lingpipe.training import logdir
    params = trainer.read_params(RunOptions('decode', args.model, tuple(args.set)))
    device_setup.configure(params)
    experiment = params.instantiate()
    program, metadata = logdir.restored(experiment, args.logdir)
    has_tags = getattr(params.train_input, 'language_tags', False)
    found = experiment.task.decode(program, [f'<{code}> {line}' if has_tags else line for code, line in lines], metadata.get('task', {}))
    return list(found), metadata['step']


def say(line: str) -> None:
    """A line for a person, beside what is printed."""
    print(f'score_translations: {line}', file=sys.stderr)


def say_blank(languages: list[Translated]) -> None:
    """How many translations are blank, if any."""
    blank = {name: sum(not line.strip() for one in languages for line in one.systems[name]) for name in languages[0].systems}
    if any(blank.values()):
        total = sum(len(one.references) for one in languages)
        say(f'blank translations, scored as they are, of {total:,}: ' + ', '.join(f'{name} {n:,}' for name, n in blank.items() if n))


def systems_of(found: dict[str, Any]) -> list[str]:
    """The names of all that was scored."""
    return [name for name, value in found['pools'][0].items() if isinstance(value, dict)]


def text(found: dict[str, Any]) -> str:
    """The table: languages, the largest first, those of few sentences with a star, pools, and the signatures."""
    systems = systems_of(found)
    width = max(12, *(len(name) + 2 for name in systems))
    lines = [f'{"":8}{"level":8}{"pairs":>10}{"sentences":>11}' + ''.join(f'{name:>{2 * width}}' for name in systems),
             ' ' * 37 + ''.join(f'{"BLEU":>{width}}{"chrF":>{width}}' for _ in systems)]
    for rows in (found['languages'], found['pools']):
        for row in rows:
            marked = row['name'] + '*' * row.get('has_few_sentences', False)
            lines.append(f'{marked:8}{row["level"]:8}{row["train"]:10,}{row["sentences"]:11,}' + ''.join(
                f'{row[name]["bleu"]:{width}.1f}{row[name]["chrf"]:{width}.1f}' for name in systems))
        lines.append('')
    if any(row['has_few_sentences'] for row in found['languages']):
        lines.append(f'* fewer than {MIN_SENTENCES} sentences: too few for a BLEU of the language alone; the pools count them')
    return '\n'.join([*lines, *(f'{name}: {signature}' for name, signature in found['signatures'].items())])


def draw(found: dict[str, Any], path: str) -> None:
    """BLEU of the languages by decreasing number of pairs (as Figure 3 of arXiv:1811.06965), each system with its running mean.

    Languages of few sentences are hollow dots, and left out of the mean.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    rows = found['languages']
    figure = Figure(figsize=(min(max(7., 0.16 * len(rows) + 2), 20.), 5.), layout='constrained')
    FigureCanvasAgg(figure)
    ax, places = figure.add_subplot(), np.arange(len(rows))
    has_few = np.array([row['has_few_sentences'] for row in rows])
    for name in systems_of(found):
        values = np.array([row[name]['bleu'] for row in rows])
        enough = values[~has_few]
        means = [enough[max(0, i - SMOOTHED // 2):i + SMOOTHED // 2 + 1].mean() for i in range(len(enough))]
        pooled = ', '.join(f'{row["name"]} {row[name]["bleu"]:.1f}' for row in found['pools'])
        ax.plot(places[~has_few], enough, '.', color=COLOURS.get(name), alpha=0.5, markersize=5)
        ax.plot(places[has_few], values[has_few], '.', color=COLOURS.get(name), alpha=0.5, markersize=5, markerfacecolor='none')
        ax.plot(places[~has_few], means, color=COLOURS.get(name), linewidth=1.5, label=f'{name}: {pooled}')
    ax.set_xlabel('languages, by decreasing number of training pairs')
    ax.set_ylabel('BLEU')
    ax.set_ylim(bottom=0)
    ax.set_xlim(-1, len(rows))
    ax.spines[['top', 'right']].set_visible(False)
    if len(rows) <= MAX_NAMED_LANGUAGES:
        ax.set_xticks(places, [row['name'] for row in rows], rotation=90, fontsize=7)
    ax.legend(frameon=False)
    figure.savefig(path, dpi=120)


@command
def main(argv: list[str] | None = None) -> None:
    """Scores and prints."""
    args = parse(argv)
    languages, step = find(args)
    found = scored(languages)
    say_blank(languages)
    for row in found['languages']:
        row['has_few_sentences'] = row['sentences'] < MIN_SENTENCES
    if args.output:
        draw(found, args.output)
    if step is not None:
        from lingpipe.training.reporting.summaries import Summaries
        summaries = Summaries(os.path.join(args.logdir, 'tensorboard', 'scores'))
        summaries.scalars(step, {f'{measure}/{row["name"]}': row['model'][measure] for measure in ('bleu', 'chrf')
                                 for row in (*found['pools'], *found['languages'])})
        summaries.close()
        found['step'] = step
    print(json.dumps(found) if args.json else text(found))
    if args.output:
        print(f'picture: {args.output}', file=sys.stderr)


if __name__ == '__main__':
    main()
