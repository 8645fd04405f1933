"""Text input: what each example holds, from which sources, and that it is never another."""
from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from lingpipe.tasks.text.documents import documents, source_paths
from lingpipe.tasks.text.inputs import TextInput
from lingpipe.tasks.text.language_model import LanguageModel
from lingpipe.tasks.text.task import language_learner, language_problem
from lingpipe.tasks.text.tokenizer import Tokenizer
from lingpipe.tasks.text.vocabulary import END, PAD, START, Pieces
from lingpipe.tasks.translation.corpus.vocabulary import UNKNOWN

TEXTS = [f'Document {i} says:\n    {"on and " * (i % 7)}on,\twith 「ünïcödé」.\n'
         for i in range(60)]


def params(tmp_path: Path, **fields: Any) -> TextInput.Params:
    path = tmp_path / 'corpus.jsonl'
    if not path.exists():
        path.write_text(''.join(json.dumps({'text': text}) + '\n' for text in TEXTS))
    values = {'files': (str(path),), 'directory': str(tmp_path / 'tokens'), 'vocab_size': 350,
              'test_share': 0.3, 'length': 16, 'batch_size': 4, 'shuffle': False,
              'num_epochs': 1} | fields
    return TextInput.Params(**values)


def own_vocabulary(path: Path, texts: list[str], **fields: Any) -> None:
    """Trains a vocabulary with the usual settings of sentencepiece, which join spaces."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=350, model_type='bpe',
        hard_vocab_limit=False, pad_id=PAD, bos_id=START, eos_id=END, unk_id=UNKNOWN,
        minloglevel=2, **fields)
    path.write_bytes(model.getvalue())


def whole(source: TextInput) -> dict[str, np.ndarray]:
    """All examples of an epoch, [n, T], without copies that fill up the last batch."""
    batches = [{name: value.numpy() for name, value in batch.items()}
               for batch in source.dataset()]
    n = source.num_examples()
    return {name: np.concatenate([batch[name] for batch in batches])[:n] for name in batches[0]}


def test_the_examples_are_the_documents_one_after_the_other(tmp_path: Path) -> None:
    source = params(tmp_path).instantiate()
    data = whole(source)
    stream = np.append(data['target'].ravel(), data['label'].ravel()[-1])
    stream = stream[stream != PAD]
    ends = np.flatnonzero(stream == END)
    rows = [row[1:] for row in np.split(stream, ends + 1) if len(row)]
    texts = [''.join(source.vocabulary.decode([row])) for row in rows]
    test = whole(params(tmp_path, split='test').instantiate())
    assert set(texts) < set(TEXTS) and 30 < len(texts) < 60
    assert texts == [text for text in TEXTS if text in texts]   # Every character, in order.
    assert np.sum(test['target'] == START) == 60 - len(texts)

    counts = data['weight'] > 0
    assert not np.isin(data['label'][counts], [PAD, START]).any()
    assert np.sum(data['bytes'][counts]) == sum(len(text.encode()) for text in texts)


def test_ids_of_each_part_stand_for_all_bytes_of_its_text(tmp_path: Path) -> None:
    """A vocabulary that joins spaces had one ratio for both parts, and so wrong bits per byte."""
    own_vocabulary(tmp_path / 'joins_spaces.model', TEXTS, byte_fallback=True)
    texts = [text + ' ' * 50 * (zlib.crc32(text.encode()) % 2) for text in TEXTS]
    (tmp_path / 'corpus.jsonl').write_text(
        ''.join(json.dumps({'text': text}) + '\n' for text in texts))

    num_bytes = {}
    for split in ('train', 'test'):
        source = params(tmp_path, split=split,
                        vocabulary=str(tmp_path / 'joins_spaces.model')).instantiate()
        data = whole(source)
        num_bytes[split] = source.tokens.facts[split]['bytes']
        assert np.sum(data['bytes'] * data['weight']) == pytest.approx(num_bytes[split], rel=1e-5)
    assert num_bytes['train'] + num_bytes['test'] == sum(len(text.encode()) for text in texts)


def test_ids_that_are_unknown_are_counted(tmp_path: Path, caplog: Any) -> None:
    """A vocabulary without bytes loses characters, and nothing said so."""
    params(tmp_path).instantiate().num_examples()
    assert 'unknown' not in caplog.text
    own_vocabulary(tmp_path / 'own.model', ['only these letters, and no others'] * 9,
                   user_defined_symbols=[f'<{i}>' for i in range(300)])
    size = sentencepiece.SentencePieceProcessor(str(tmp_path / 'own.model')).vocab_size()
    source = params(tmp_path, vocabulary=str(tmp_path / 'own.model'), directory=str(tmp_path / 'b'),
                    test_share=0., vocab_size=size).instantiate()
    ids = whole(source)['label']
    warning, = (line for line in caplog.messages if 'unknown' in line)
    assert warning == (
        f'{np.sum(ids == UNKNOWN):,} of {np.sum(ids != PAD) + 1:,} ids of the train part are '
        'unknown: characters that the vocabulary has no piece for are lost; train it with '
        'byte_fallback, which spells them in bytes')


def test_tokens_of_an_earlier_version_keep_their_ratio_of_bytes(tmp_path: Path) -> None:
    source = params(tmp_path).instantiate()
    before = whole(source)['bytes']
    path = tmp_path / 'tokens' / 'facts.json'
    facts = json.loads(path.read_text())
    for split in ('train', 'test'):
        del facts[split]['bytes_per_spelt_byte']
    path.write_text(json.dumps({**facts, 'bytes_per_spelt_byte': 1.5}))
    np.testing.assert_array_equal(whole(params(tmp_path).instantiate())['bytes'], 1.5 * before)


def test_positions_and_documents_begin_with_each_document(tmp_path: Path) -> None:
    data = whole(params(tmp_path).instantiate())
    for target, positions, numbers in zip(data['target'], data['positions'], data['documents'],
                                          strict=True):
        beginnings = np.flatnonzero(target == START)
        np.testing.assert_array_equal(positions[beginnings], 0)
        np.testing.assert_array_equal(np.diff(numbers, prepend=0)[1:], (target == START)[1:])
        np.testing.assert_array_equal(np.diff(positions)[target[1:] != START], 1)


def test_a_position_determines_the_batch(tmp_path: Path) -> None:
    fields = {'shuffle': True, 'num_epochs': None}
    batches = [batch for _, batch in zip(range(30), params(tmp_path, **fields).instantiate()
                                         .dataset(), strict=False)]
    later = next(iter(params(tmp_path, **fields).instantiate().dataset(4 * 27)))
    tf.nest.map_structure(np.testing.assert_array_equal, later, batches[27])


def test_the_same_texts_are_read_from_every_format(tmp_path: Path) -> None:
    texts = [text.replace('\n', ' ') for text in TEXTS[:3]]
    with gzip.open(tmp_path / 'a.txt.gz', 'wt', encoding='utf-8') as file:
        file.write('\n'.join(texts))
    (tmp_path / 'a.jsonl').write_text('\n'.join(json.dumps({'body': text}) for text in texts))
    with tf.io.TFRecordWriter(str(tmp_path / 'a.tfrecord')) as writer:
        for text in texts:
            value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
            writer.write(tf.train.Example(features=tf.train.Features(
                feature={'body': value})).SerializeToString())
    assert list(documents(str(tmp_path / 'a.txt.gz'), 'lines')) == texts
    assert list(documents(str(tmp_path / 'a.txt.gz'))) == ['\n'.join(texts)]
    for name in ('a.jsonl', 'a.tfrecord'):
        assert list(documents(str(tmp_path / name), key='body')) == texts
        with pytest.raises(ValueError, match=r"has no text .*'text'.*; set key= of the input"):
            list(documents(str(tmp_path / name)))


def test_a_file_that_two_patterns_spell_otherwise_is_read_once(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each spelling was a file of its own, so that its documents were learned twice."""
    monkeypatch.chdir(tmp_path)
    for name in ('a', 'b'):
        Path(f'{name}.txt').write_text(name)
    patterns = ['*.txt', './a.txt', str(tmp_path / 'b.txt')]
    assert [Path(path).name for path in source_paths(patterns)] == ['a.txt', 'b.txt']
    assert source_paths(['*.txt']) == ['a.txt', 'b.txt']


def test_tokens_of_other_sources_are_refused(tmp_path: Path) -> None:
    params(tmp_path).instantiate().num_examples()
    path = tmp_path / 'corpus.jsonl'
    content = path.read_text()
    path.write_text(content)   # As new, but the same.
    params(tmp_path).instantiate().num_examples()
    with pytest.raises(ValueError, match='made of something else: vocab_size changed; set directo'):
        params(tmp_path, vocab_size=360).instantiate().num_examples()
    path.write_text(content.replace('0', '1'))
    with pytest.raises(ValueError, match=re.escape(f'something else: {path} changed')):
        params(tmp_path).instantiate().num_examples()
    assert params(tmp_path, files=()).instantiate().num_examples() > 0


def test_without_sources_or_tokens_the_error_says_how_to_name_them(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'has no tokens .*; name the sources, as --set'):
        params(tmp_path, files=()).instantiate().dataset()
    with pytest.raises(ValueError, match='names no file; correct files='):
        params(tmp_path, files=('/nowhere/*.txt',)).instantiate().dataset()


def test_tokens_are_made_in_any_new_folder_and_in_no_other(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slash at the end put the temporary folder into the one that it was to become."""
    directory = str(tmp_path / 'tokens')
    number = params(tmp_path, directory=f'{directory}/').instantiate().num_examples()
    assert number == params(tmp_path, directory=directory).instantiate().num_examples()
    assert not list(tmp_path.glob('*making*'))

    (tmp_path / 'other').mkdir()
    (tmp_path / 'other' / 'notes.txt').write_text('mine')
    with pytest.raises(ValueError, match='other is there and has no tokens .*; set directory= of'):
        params(tmp_path, directory=str(tmp_path / 'other')).instantiate().dataset()
    (tmp_path / 'empty').mkdir()
    monkeypatch.chdir(tmp_path / 'empty')
    for current in ('', '.'):
        with pytest.raises(ValueError, match='the current folder, .*; name a new folder in it'):
            params(tmp_path, directory=current).instantiate().dataset()


def test_texts_are_continued_with_the_vocabulary_of_the_run_alone(tmp_path: Path) -> None:
    source = params(tmp_path).instantiate()
    model = LanguageModel.Params(vocab_size=350, num_layers=1, model_dim=8, hidden_dim=8,
                                 num_heads=2)
    problem = language_problem(model, language_learner(0.01, 10, 1)).instantiate()
    facts = problem.facts(source)
    assert problem.vocabulary(facts).pieces == source.vocabulary.pieces
    with pytest.raises(ValueError, match='vocabulary.model is not the vocabulary that the run use'):
        problem.vocabulary({**facts, 'sha256': 64 * '0'})
    with pytest.raises(ValueError, match='the vocabulary gone.model is no file; set task.vocabul'):
        problem.vocabulary({**facts, 'vocabulary': 'gone.model'})


def test_a_vocabulary_is_a_file_and_needs_text(tmp_path: Path) -> None:
    """The folder of a tokenizer was an error of the system, and no text one of sentencepiece."""
    with pytest.raises(ValueError, match='is a folder, .*; name the one in it, such as tokenizer'):
        params(tmp_path, vocabulary=str(tmp_path)).instantiate().dataset()
    params(tmp_path).instantiate().dataset()   # Tokens that are there compare its content.
    with pytest.raises(ValueError, match='is a folder, .*; name the one in it, such as tokenizer'):
        params(tmp_path, vocabulary=str(tmp_path)).instantiate().dataset()
    with pytest.raises(ValueError, match='gone.model is no file; name the vocabulary where it is'):
        params(tmp_path, vocabulary=str(tmp_path / 'gone.model')).instantiate().dataset()
    with pytest.raises(ValueError, match='is no file; train a vocabulary'):
        Pieces(str(tmp_path))
    with pytest.raises(ValueError, match='is no file; name the tokenizer.json of a folder'):
        Tokenizer(str(tmp_path))
    (tmp_path / 'empty.txt').touch()
    with pytest.raises(ValueError, match='the documents for training hold no text, .*; name other'):
        params(tmp_path, files=(str(tmp_path / 'empty.txt'),),
               directory=str(tmp_path / 'none')).instantiate().dataset()


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / 'a.txt').write_bytes(b'\xef\xbb\xbfone')
    assert list(documents(str(tmp_path / 'a.txt'))) == ['one']


def test_json_lines_under_another_name_are_refused(tmp_path: Path) -> None:
    """Corpora come as *.json.gz, and their braces and keys were learned as text."""
    path = tmp_path / 'a.json.gz'
    path.write_bytes(gzip.compress(b'{"text": "one"}\n{"text": "two"}\n'))
    with pytest.raises(ValueError, match=r"holds JSON lines with a text under 'text'.*=jsonl"):
        list(documents(str(path)))
    assert list(documents(str(path), 'jsonl')) == ['one', 'two']
    assert list(documents(str(path), 'text')) == ['{"text": "one"}\n{"text": "two"}\n']
    for text in ('{"name": "one"}', '{\n"text": "one"}', '{braces}', ''):
        (tmp_path / 'b.json').write_text(text)
        assert list(documents(str(tmp_path / 'b.json'))) == [text] * bool(text)


@pytest.mark.parametrize('indent', [None, 1])
def test_a_list_in_json_is_no_text(tmp_path: Path, indent: int | None) -> None:
    """Its brackets and keys were learned as one document, without a word."""
    path = tmp_path / 'corpus.json'
    path.write_text(json.dumps([{'text': text} for text in TEXTS[:3]], indent=indent))
    with pytest.raises(ValueError, match="holds a list in JSON, of objects with a text under 'text'"
                                         '; write it as JSON lines .*, or set format=text'):
        list(documents(str(path)))
    assert list(documents(str(path), 'text')) == [path.read_text()]
    assert list(documents(str(path), key='content')) == [path.read_text()]
    path.write_text('[1, 2]')
    assert list(documents(str(path))) == ['[1, 2]']


def test_json_lines_are_found_below_blank_lines(tmp_path: Path) -> None:
    """The first line alone was looked at, and such a file was learned as text."""
    path = tmp_path / 'a.txt'
    path.write_text('\n  \n {"text": "one"}\n\n{"text": "two"}\n')
    with pytest.raises(ValueError, match=r"holds JSON lines with a text under 'text'.*=jsonl"):
        list(documents(str(path)))
    assert list(documents(str(path), 'jsonl')) == ['one', 'two']


def test_json_lines_with_others_among_them_are_no_json_lines(tmp_path: Path) -> None:
    """The remedy was format=jsonl, which refused them for another reason."""
    path = tmp_path / 'a.txt'
    path.write_text('{"text": "one"}\n\nprose\n')
    with pytest.raises(ValueError, match=r"begins with a JSON line with a text under 'text', but "
                                         r'line 3 is no JSON object; set format=text of the input'):
        list(documents(str(path)))
    with pytest.raises(ValueError, match=r'line 3 is no JSON: .*; correct it, or set format=text'):
        list(documents(str(path), 'jsonl'))
    assert list(documents(str(path), 'text')) == ['{"text": "one"}\n\nprose\n']


@pytest.mark.parametrize('content, what', [
    ('one'.encode('utf-16'), 'is UTF-16; convert it: iconv -f UTF-16 -t UTF-8'),
    (bz2.compress(b'one'), 'is compressed by bzip2; unpack it, or compress it by gzip'),
    (lzma.compress(b'one'), 'is compressed by xz; unpack it, or compress it by gzip'),
    (b'(\xb5/\xfd\x20', 'is compressed by zstd; unpack it, or compress it by gzip'),
    (b'ok\nm\xfcde\n', 'is not UTF-8 after line 0; convert it: iconv -f LATIN1 -t UTF-8'),
])
def test_a_file_that_is_not_utf_8_says_what_makes_text_of_it(tmp_path: Path, content: bytes,
                                                             what: str) -> None:
    """For UTF-16, the remedy was to convert from Latin 1, which makes other text without a word."""
    path = tmp_path / 'a.txt'
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(f'{path} {what}, or leave it out of files=.')):
        list(documents(str(path)))


@pytest.mark.parametrize('encoding', ['utf-16-le', 'utf-16-be'])
@pytest.mark.parametrize('text', ['one two', 'ein größeres Wort', 'слово за словом'])
def test_utf_16_without_a_mark_is_refused(tmp_path: Path, encoding: str, text: str) -> None:
    """It is valid UTF-8, and was learned with its zero bytes, or taken for Latin 1."""
    path = tmp_path / 'a.txt'
    path.write_bytes(text.encode(encoding))
    end = encoding[-2:].upper()
    with pytest.raises(ValueError, match=r'a\.txt is UTF-16 without a byte order mark, or no text: '
                                         rf'.* are zero; convert it: iconv -f UTF-16{end} -t UTF'):
        list(documents(str(path)))
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(ValueError, match='is UTF-16 without a byte order mark'):
        list(documents(str(path), 'lines'))


def test_a_zero_byte_among_many_others_is_text(tmp_path: Path) -> None:
    (tmp_path / 'a.txt').write_bytes(b'a\0' + 100 * b'word ')
    assert list(documents(str(tmp_path / 'a.txt'))) == ['a\0' + 100 * 'word ']


def test_damaged_texts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / 'a.txt.gz'
    path.write_bytes(gzip.compress(b'one two three')[:-3])
    with pytest.raises(ValueError, match='is damaged .*; fetch it again'):
        list(documents(str(path)))
    lines = tmp_path / 'a.jsonl'
    lines.write_text('{"text": "\\ud800"}', encoding='utf-8')
    with pytest.raises(ValueError, match='line 1 has half a character'):
        list(documents(str(lines)))
