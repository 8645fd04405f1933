"""The corpus tools make ids from files, count what was dropped, and report errors in one line."""
from __future__ import annotations

import json

import pytest

from lingpipe.tasks.translation.corpus.prepared import PreparedCorpus
from lingpipe.tools import build_corpus, get_mediawiki, train_vocabulary


@pytest.fixture
def sources(tmp_path) -> list[str]:
    english = [f'{verb} the {noun}' for verb in ('open', 'close', 'find', 'read')
               for noun in ('file', 'page', 'user', 'list', 'word')]
    (tmp_path / 'a.de').write_text(''.join(f'{line[::-1]}\n' for line in english) + 'leer\n')
    (tmp_path / 'a.en').write_text(''.join(f'{line}\n' for line in english) + '\n')
    (tmp_path / 'a.tsv').write_text(''.join(f'{line}\t{line[1:]} cy\n' for line in english)
                                    + 'one $1\tun $1\n')
    return [f'--text=de:{tmp_path}/a.de:{tmp_path}/a.en', f'--tab=cy:{tmp_path}/a.tsv:1,0',
            f'--output={tmp_path}/corpus']


def test_a_corpus_is_built_and_gets_a_vocabulary(sources, tmp_path, capsys):
    build_corpus.main(sources)
    printed = capsys.readouterr().out
    assert 'dropped: empty line' in printed and f'{tmp_path}/a.de:21' in printed
    assert 'dropped: markup' in printed and f'{tmp_path}/a.tsv:21' in printed
    assert 'next: python -m lingpipe.tools.train_vocabulary' in printed
    corpus = PreparedCorpus(f'{tmp_path}/corpus')
    assert sum(language.train + language.test for language in corpus.languages) == 40
    train_vocabulary.main([f'--corpus={tmp_path}/corpus', '--size=300', '--kind=bpe', '--json'])
    found = json.loads(capsys.readouterr().out)
    assert found['vocab_size'] == 300 and found['source']['sentences'] == 40
    assert len(corpus.ids('train', 'source')[1]) == corpus.rows('train')[-1] + 1


def test_a_vocabulary_that_is_there_is_used(sources, tmp_path, capsys):
    build_corpus.main(sources)
    train_vocabulary.main([f'--corpus={tmp_path}/corpus', '--size=300', '--kind=bpe'])
    capsys.readouterr()
    model = tmp_path / 'model'
    (tmp_path / 'corpus' / 'vocabulary.model').rename(model)
    build_corpus.main([*sources, f'--vocabulary={model}', '--json'])
    found = json.loads(capsys.readouterr().out)
    assert found['ids']['vocab_size'] == 300
    assert (tmp_path / 'corpus' / 'vocabulary.model').read_bytes() == model.read_bytes()


@pytest.mark.parametrize(('flags', 'sentence'), [
    ([], 'build_corpus: no source is named; use --text'),
    (['--text=de:x'], '--text=de:x has 2 parts between colons; write --text=CODE:FILE:'),
    (['--tab=de:x:1'], "--tab=de:x:1 names the columns '1'; write two numbers"),
    (['--tab=dd:x'], "language 'dd' is not known"),
    (['--languages=de,yx', '--tab=de:x'], "language 'yx' is not known; the nearest are"),
    (['--tab=de:nothing'], 'nothing cannot be read')])
def test_flags_that_are_wrong_are_refused(tmp_path, flags, sentence):
    with pytest.raises(SystemExit, match=sentence):
        build_corpus.main([f'--output={tmp_path}/corpus', *flags])


def test_without_a_package_there_is_one_line_of_help(tmp_path):
    with pytest.raises(SystemExit, match='get_mediawiki: .* is no Debian package; name the .deb'):
        get_mediawiki.main([f'--output={tmp_path}', f'--package={__file__}'])
