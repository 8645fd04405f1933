"""The sources find every pair with its place, and name the file and line of whatever is wrong."""
from __future__ import annotations

import gettext
import gzip
import io
import json
import lzma
import re
import struct
import tarfile
from pathlib import Path

import pytest
import tensorflow_datasets as tfds

from lingpipe.tasks.translation.corpus import catalogues, datasets, files, mediawiki
from lingpipe.tasks.translation.corpus.report import Report


def found(pairs) -> list[tuple[str, str, str]]:
    return [(pair.code, pair.text, pair.english) for pair in pairs]


def write_lines(path: Path, *lines: str | bytes) -> str:
    path.write_bytes(b''.join((line.encode() if isinstance(line, str) else line) + b'\n'
                              for line in lines))
    return str(path)


# Files.

def test_two_files_are_read_line_by_line(tmp_path):
    """Only a newline ends a line: U+2028 and form feeds are in the middle of sentences."""
    german = write_lines(tmp_path / 'a.de', '\ufeffHallo', 'Guten\u2028Tag\x0c!\r', 'Ende')
    english = write_lines(tmp_path / 'a.en', 'Hello', 'Good day!', 'End')
    report = Report()
    pairs = list(files.text_pairs('de', german, english, report))
    assert found(pairs) == [('de', 'Hallo', 'Hello'), ('de', 'Guten\u2028Tag\x0c!', 'Good day!'),
                            ('de', 'Ende', 'End')]
    assert str(pairs[2].place) == f'{german}:3'


def test_files_may_be_compressed(tmp_path):
    path = tmp_path / 'a.tsv.gz'
    path.write_bytes(gzip.compress(b'Hallo\tHello\n'))
    assert found(files.tab_pairs('de', str(path), Report())) == [('de', 'Hallo', 'Hello')]


def test_a_compressed_file_that_is_damaged_is_refused(tmp_path):
    path, whole = (tmp_path / 'a.tsv.gz',
                   gzip.compress(b''.join(b'Hallo %d\tHello %d\n' % (i, i) for i in range(999))))
    for damaged in (whole[:-20], whole[:200] + bytes(200) + whole[400:], whole[:-8] + bytes(8)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r'a.tsv.gz is damaged \(.*\); fetch it again'):
            list(files.tab_pairs('de', str(path), Report()))


def test_columns_are_chosen(tmp_path):
    path = write_lines(tmp_path / 'a.tsv', 'Hello\t7\tHallo')
    assert found(files.tab_pairs('de', path, Report(), (2, 0))) == [('de', 'Hallo', 'Hello')]


def test_unequal_line_counts_are_refused(tmp_path):
    german, english = (write_lines(tmp_path / 'a.de', 'a', 'b', 'c'),
                       write_lines(tmp_path / 'a.en', 'a', 'b'))
    with pytest.raises(ValueError, match='a.de has 3 lines and .*a.en has 2, but line n of one '
                                         'translates line n.*: write both again'):
        list(files.text_pairs('de', german, english, Report()))


def test_lines_that_are_wrong_are_dropped_and_reported_with_their_numbers(tmp_path):
    lines = [f'Satz {i}\tSentence {i}' for i in range(20)]
    path = write_lines(tmp_path / 'a.tsv', *lines, b'\xff\xfe\tHello', 'no tab', '\tHello',
                       'Hallo\t  ', 'a\0\tb', *lines)
    report = Report()
    assert len(list(files.tab_pairs('de', path, report))) == 40
    assert report.counts['de a.tsv', files.NOT_UTF8] == 1
    assert report.places['de a.tsv', files.NOT_UTF8] == [f'{path}:21']
    assert report.places['de a.tsv', files.NO_PAIR] == [f'{path}:22']
    assert report.places['de a.tsv', files.EMPTY] == [f'{path}:23', f'{path}:24']
    assert report.places['de a.tsv', files.HAS_NUL] == [f'{path}:25']


def test_a_file_of_another_encoding_is_refused(tmp_path):
    path = tmp_path / 'a.tsv'
    path.write_bytes(''.join(f'für {i}\tfor {i}\n' for i in range(20)).encode('latin-1'))
    with pytest.raises(ValueError, match=r'20 of 20 lines are no pair .*20 not UTF-8 \(the first: '
                                         r'.*:1, .*:2, .*iconv -t UTF-8'):
        list(files.tab_pairs('de', str(path), Report()))


@pytest.mark.parametrize('side', [0, 1])
def test_a_file_of_another_encoding_is_refused_though_most_lines_are_ascii(tmp_path, side):
    """Once, every line with an umlaut was dropped, the others made a corpus, and nothing failed."""
    texts = [f'Satz {i}' + (' für' if i % 10 == 3 else '') for i in range(100)]
    paths = []
    for number, encoding in enumerate(('latin-1', 'utf-8') if side == 0 else ('utf-8', 'latin-1')):
        paths.append(write_lines(tmp_path / f'a.{number}',
                                 *(text.encode(encoding) for text in texts)))
    with pytest.raises(ValueError,
                       match=rf'^{paths[side]}: 10 of the 10 lines that are more than ASCII are '
                             rf'not UTF-8 \(the first: {paths[side]}:4, {paths[side]}:14, .*\), '
                             rf'so it has another encoding\. Convert it, as with '
                             r'iconv -f ISO-8859-1 -t UTF-8\.$'):
        list(files.text_pairs('de', paths[0], paths[1], Report()))


def test_an_empty_file_and_one_that_is_not_there_are_refused(tmp_path):
    with pytest.raises(ValueError, match='a.tsv is empty; name a file of sentences'):
        list(files.tab_pairs('de', write_lines(tmp_path / 'a.tsv'), Report()))
    with pytest.raises(ValueError, match=r'b.tsv cannot be read \(No such file or directory\); '
                                         r'correct the path'):
        list(files.tab_pairs('de', str(tmp_path / 'b.tsv'), Report()))


def test_an_unknown_language_names_the_nearest():
    with pytest.raises(ValueError,
                       match=r"language 'geman' is not known; the nearest are de \(German\)"):
        list(files.tab_pairs('geman', 'a.tsv', Report()))
    with pytest.raises(ValueError, match="language 'welsh' is not known; its code is 'cy'."):
        list(files.tab_pairs('welsh', 'a.tsv', Report()))


# Catalogues. The fixtures are made here.

PO = r'''# A comment.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: cy\n"

#: a.c:1
msgid "Delete"
msgstr "Dileu"

#, fuzzy
msgid "Move"
msgstr "Symud?"

#, fuzzy
#, c-format
msgid "Move %s"
msgstr "Symud %s?"

msgctxt "menu"
msgid "Open "
"file"
msgstr "Agor "
"\"ffeil\"\n"

msgid "%d page"
msgid_plural "%d pages"
msgstr[0] "%d tudalen"
msgstr[1] "%d dudalen"
msgstr[2] "%d o dudalennau"
msgid "Not translated"
msgstr ""

#~ msgid "Old"
#~ msgstr "Hen"
'''
MESSAGES = [('Delete', 'Dileu'), ('Open file', 'Agor "ffeil"\n'), ('%d page', '%d tudalen'),
            ('%d pages', '%d o dudalennau')]


def mo_file(messages: dict[str, str], order: str = '<') -> bytes:
    """Returns a .mo file, as GNU gettext's manual describes it."""
    items = sorted((key.encode(), value.encode()) for key, value in messages.items())
    at, tables, blob = 28 + 16 * len(items), [b'', b''], b''
    for side in (0, 1):
        for item in items:
            tables[side] += struct.pack(order + '2I', len(item[side]), at + len(blob))
            blob += item[side] + b'\0'
    return (struct.pack(order + '7I', 0x950412de, 0, len(items), 28, 28 + 8 * len(items), 0, 0)
            + tables[0] + tables[1] + blob)


HEADER = 'Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=(n != 1);\n'


def test_po_files_are_read_without_what_translators_did_not_finish(tmp_path):
    (tmp_path / 'po').mkdir()
    (tmp_path / 'po' / 'cy.po').write_text(PO, encoding='utf-8')
    pairs = list(catalogues.catalogue_pairs(str(tmp_path), Report()))
    assert found(pairs) == [('cy', text, english) for english, text in MESSAGES]
    assert str(pairs[0].place) == 'po/cy.po:8'


def test_the_language_is_that_of_the_folder_or_of_the_header(tmp_path):
    for name in ('locale/pt_BR/LC_MESSAGES/django.po', 'messages.po'):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PO, encoding='utf-8')
    assert {pair.code for pair in catalogues.catalogue_pairs(str(tmp_path), Report())} == {
        'pt_BR', 'cy'}


@pytest.mark.parametrize('order', ['<', '>'])
def test_mo_files_are_read_as_pythons_gettext_reads_them(order):
    content = mo_file({'': HEADER, 'Delete': 'Löschen', 'menu\x04Open': 'Öffnen',
                       'page\0pages': 'Seite\0Seiten'}, order)
    header, messages = catalogues.read_mo(content)
    assert header == HEADER
    assert [(m.english, m.texts) for m in messages] == [
        (('Delete',), ('Löschen',)), (('Open',), ('Öffnen',)),
        (('page', 'pages'), ('Seite', 'Seiten'))]
    theirs = gettext.GNUTranslations(io.BytesIO(content))
    assert (theirs.gettext('Delete'), theirs.pgettext('menu', 'Open')) == ('Löschen', 'Öffnen')
    assert theirs.ngettext('page', 'pages', 2) == 'Seiten'


def test_broken_catalogues_are_reported_and_the_others_read(tmp_path):
    (tmp_path / 'cy.po').write_text(PO, encoding='utf-8')
    (tmp_path / 'de.mo').write_bytes(mo_file({'': HEADER, 'a': 'b'})[:-3])
    (tmp_path / 'fr.po').write_bytes(PO.replace('Dileu', 'Supprimé').encode('latin-1'))
    (tmp_path / 'it.po').write_text('msgid "a"\nmsgstr "b"\nwhat is this', encoding='utf-8')
    report = Report()
    assert len(list(catalogues.catalogue_pairs(str(tmp_path), report))) == 4
    reasons = {places[0]: reason for (_, reason), places in report.places.items()}
    assert set(reasons) == {'de.mo', 'fr.po', 'it.po'}
    assert reasons['de.mo'] == 'catalogue is broken (the file ends within a string)'
    assert reasons['it.po'] == 'catalogue is broken (line 3 is no part of a message)'


def test_a_folder_without_catalogues_is_refused(tmp_path):
    with pytest.raises(ValueError, match='holds no .po or .mo file; name a folder with '
                                         'locale/CODE/LC_MESSAGES'):
        list(catalogues.catalogue_pairs(str(tmp_path), Report()))


# MediaWiki. The messages are made here.

def write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding='utf-8')


def test_messages_are_paired_by_key(tmp_path):
    folder = tmp_path / 'skins' / 'One' / 'i18n'
    write_json(folder / 'en.json', {'@metadata': {}, 'a': 'Apple', 'b': 'Pear'})
    write_json(folder / 'de.json', {'@metadata': {'authors': []}, 'b': 'Birne', 'c': 'Kirsche'})
    write_json(folder / 'qqq.json', {'a': 'A fruit'})
    (folder / 'fr.json').write_text('{', encoding='utf-8')
    report = Report()
    pairs = list(mediawiki.message_pairs(str(tmp_path), report))
    assert found(pairs) == [('de', 'Birne', 'Pear')]
    assert str(pairs[0].place) == 'skins/One/i18n/de.json b'
    assert report.places[mediawiki.SOURCE, mediawiki.NO_JSON] == ['skins/One/i18n/fr.json']


def test_a_folder_without_messages_says_how_to_get_them(tmp_path):
    with pytest.raises(ValueError, match='holds no i18n/en.json; name a folder that python -m '
                                         'lingpipe.tools.get_mediawiki'):
        list(mediawiki.message_pairs(str(tmp_path), Report()))


def package(path: Path, names: list[str]) -> str:
    """Writes a .deb with files of these names."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode='w') as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 2
            archive.addfile(info, io.BytesIO(b'{}'))
    members = [('debian-binary', b'2.0\n'), ('control.tar.xz', b'odd'),
               ('data.tar.xz', lzma.compress(data.getvalue()))]
    content = b'!<arch>\n'
    for name, one in members:
        content += (f'{name:16}{0:<12}{0:<6}{0:<6}{"100644":8}{len(one):<10}`\n'.encode()
                    + one + b'\n' * (len(one) % 2))
    path.write_bytes(content)
    return str(path)


def test_only_messages_are_unpacked_and_nothing_outside_the_folder(tmp_path):
    deb = package(tmp_path / 'a.deb', [
        './usr/share/mediawiki/languages/i18n/en.json', './usr/share/mediawiki/index.php',
        './usr/share/mediawiki/../../../i18n/de.json', './usr/share/doc/i18n.json'])
    assert mediawiki.unpack(deb, str(tmp_path / 'out')) == 1
    assert [str(path.relative_to(tmp_path)) for path in (tmp_path / 'out').rglob('*.json')] == [
        'out/languages/i18n/en.json']
    assert not list(tmp_path.glob('i18n'))
    with pytest.raises(ValueError, match='is no Debian package; name the .deb'):
        mediawiki.unpack(__file__, str(tmp_path / 'out'))


def test_package_of_another_compression_says_how_to_unpack_it(tmp_path):
    deb = Path(package(tmp_path / 'a.deb', []))
    content = deb.read_bytes().replace(b'data.tar.xz ', b'data.tar.odd')
    deb.write_bytes(content.replace(b'\xfd7zXZ', b'what?!'))
    message = (r'holds data\.tar\.odd, which Python cannot read; unpack it yourself: '
               r'dpkg-deb -x .*a\.deb FOLDER\.$')
    with pytest.raises(ValueError, match=message):
        mediawiki.unpack(str(deb), str(tmp_path / 'out'))


# tensorflow-datasets.

@pytest.mark.filterwarnings('ignore::DeprecationWarning')
@pytest.mark.parametrize(('name', 'split', 'code'), [
    ('wmt14_translate/de-en', 'train', 'de'), ('flores/neen', 'validation', 'ne'),
    ('opus', 'train', 'de'), ('opus/cy-en/KDE4+Ubuntu', 'train', 'cy')])
def test_sets_of_two_languages_are_read_by_name(name, split, code):
    with tfds.testing.mock_data(num_examples=5):
        pairs = list(datasets.dataset_pairs(name, split))
    assert [pair.code for pair in pairs] == [code] * 5
    assert all(pair.text and pair.english for pair in pairs)
    assert str(pairs[4].place) == f'{name}:5'


@pytest.mark.filterwarnings('ignore::DeprecationWarning')
def test_sets_of_many_languages_give_a_pair_for_each_that_a_sentence_has():
    def made(builder, **_):
        import tensorflow as tf
        feature = {'translations': {'language': ['cy', 'de', 'en'],
                                    'translation': ['ci', 'Hund', 'dog']}, 'talk_name': 'a'}
        other = {'translations': {'language': ['cy', 'de'], 'translation': ['cath', 'Katze']},
                 'talk_name': 'a'}
        return tf.data.Dataset.from_generator(lambda: [feature, other], output_signature={
            'translations': {'language': tf.TensorSpec([None], tf.string),
                             'translation': tf.TensorSpec([None], tf.string)},
            'talk_name': tf.TensorSpec([], tf.string)})

    with tfds.testing.mock_data(as_dataset_fn=made):
        assert found(datasets.dataset_pairs('ted_multi_translate')) == [
            ('cy', 'ci', 'dog'), ('de', 'Hund', 'dog')]


@pytest.mark.parametrize(('name', 'sentence'), [
    ('wmt14_translate/de-en', 'is not prepared in .*run this with --download --data_dir=.*copy the '
                              'directory to machines without one'),
    ('opus/de-en/EMEA', 'is not prepared in '),
    ('cifar10', 'cifar10 holds id, image, label, and no translations; name a set such as'),
    ('opus/de-en', "'opus/de-en' does not say which part of opus; write"),
    ('opus/de-en/EMA', "opus has no part 'EMA'; it has EMEA"),
    ('opus/cy-en/EMEA', 'EMEA of opus does not translate cy to en; it has bg'),
    ('wmt14_translat/de-en', 'Is it wmt14_translate')])
def test_sets_that_cannot_be_read_say_why_and_download_nothing(tmp_path, name, sentence):
    with pytest.raises(ValueError, match=sentence):
        list(datasets.dataset_pairs(name, data_dir=str(tmp_path)))


def test_sentencepiece_and_tensorflow_datasets_are_imported_only_when_they_are_used():
    for path in Path(files.__file__).parent.glob('*.py'):
        assert not re.search('^(import|from) (tensorflow_datasets|sentencepiece)', path.read_text(),
                             re.MULTILINE), path
