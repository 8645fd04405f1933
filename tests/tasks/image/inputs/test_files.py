"""Inputs of image files resume at exact positions, and treat broken files as documented."""
from __future__ import annotations

import logging
import os
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from lingpipe.tasks.image.inputs import FolderInput, Subset, TFDSImageInput, Transform
from lingpipe.tasks.image.inputs.encoded import BrokenImages, decoded, decoded_in_graph
from lingpipe.training.predictions import names_of

AUGMENTED = Transform.Params(size=24, window='random', flip=True, brightness=0.1, contrast=0.3,
                             saturation=0.3, hue=0.1, cutout=6)
NUM_FILES = 20
# JPEG stores colours at half the resolution, and at the border of a window they lack a neighbour.
CHROMA = 16


def jpeg(seed: int, height: int = 48, width: int = 64) -> bytes:
    """Returns a JPEG file of smooth colours, as a photograph has."""
    noise = np.random.default_rng(seed).uniform(0, 255, [6, 8, 3])
    return tf.io.encode_jpeg(tf.cast(tf.image.resize(noise, [height, width]), tf.uint8),
                             quality=95).numpy()


@pytest.fixture(scope='module')
def original(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp('birds')
    for split, num_files in ('train', NUM_FILES), ('test', 4):
        for i in range(num_files):
            folder = root / split / ('crow', 'owl')[i % 2]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f'{i:02}.jpg').write_bytes(jpeg(i, 40 + i, 64))
    (root / 'test' / 'wren').mkdir()
    (root / 'train' / 'owl' / 'README.txt').write_text('no image')
    return root


@pytest.fixture
def birds(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / 'birds'))


def folder(directory: Path, **values: Any) -> FolderInput:
    return FolderInput.Params(**{'directory': str(directory), 'batch_size': 4,
                                 'transform': AUGMENTED, **values}).instantiate()


def one_pass(source: Any) -> dict[str, np.ndarray]:
    batches = list(source.batches())
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


EVALUATION: dict[str, Any] = {'shuffle': False, 'num_epochs': 1,
                              'transform': Transform.Params(size=24, window='centre')}


# Folders.

def test_a_batch_is_what_a_classifier_reads(original):
    spec = {name: (tuple(s.shape), s.dtype.name) for name, s in folder(original).spec().items()}
    assert spec == {'image': ((4, 24, 24, 3), 'uint8'), 'label': ((4,), 'int32'),
                    'weight': ((4,), 'float32')}


def test_images_come_by_class_and_name_and_are_those_of_the_files(original):
    source = folder(original, **EVALUATION)
    found = one_pass(source)
    assert found['label'].tolist() == [0] * 10 + [1] * 10
    assert found['weight'].tolist() == [1.] * 20
    assert source.name_of(10) == str(original / 'train' / 'owl' / '01.jpg')
    one = EVALUATION['transform'].instantiate()
    expected = one(tf.io.decode_jpeg(jpeg(1, 41)), tf.zeros([2], tf.int64))
    assert np.abs(found['image'][10].astype(int) - expected.numpy()).max() <= CHROMA
    assert np.array_equal(found['image'][10][2:-2, 2:-2], expected[2:-2, 2:-2])


def test_names_have_the_order_of_the_images(original):
    in_order = names_of(folder(original, **EVALUATION))
    assert in_order[10] == str(original / 'train' / 'owl' / '01.jpg')
    shuffled = folder(original, **{**EVALUATION, 'shuffle': True, 'num_epochs': 2})
    classes = [Path(name).parent.name for name in names_of(shuffled)]
    assert [shuffled.class_names[i] for i in one_pass(shuffled)['label']] == classes
    assert classes[:20] != classes[20:]


def test_labels_agree_in_all_splits_even_if_a_class_is_in_one_only(original):
    train, test = folder(original), folder(original, split='test')
    assert train.class_names == test.class_names == ('crow', 'owl', 'wren')
    assert folder(original, subset=Subset(classes=(1,))).class_names == ('owl',)


def test_files_that_are_no_images_are_left_out_with_a_warning(birds, caplog):
    (birds / 'train' / 'crow' / '._00.jpg').write_bytes(b'what a Mac leaves behind')
    (birds / 'train' / 'crow' / 'photo.webp').write_bytes(b'another format')
    with caplog.at_level(logging.WARNING, 'absl'):
        assert folder(birds).num_examples() == NUM_FILES
    readme = birds / 'train' / 'owl' / 'README.txt'
    photo = birds / 'train' / 'crow' / 'photo.webp'
    assert '2 files are left out, because images are files that end in .jpg, ' in caplog.text
    assert str(min(photo, readme)) in caplog.text


def test_the_kinds_of_files_that_are_left_out_are_named(birds, caplog):
    """One file was named, and not that it was one of many images of a kind that is not read."""
    for i in range(3):
        (birds / 'train' / 'crow' / f'{i}.WEBP').write_bytes(b'another format')
    (birds / 'train' / 'owl' / 'young.jpg').mkdir()
    with caplog.at_level(logging.WARNING, 'absl'):
        assert folder(birds).num_examples() == NUM_FILES
    assert ': 3 .webp, 1 .txt, 1 folder; convert images, as to PNG; one of' in caplog.text


def test_a_folder_of_other_kinds_alone_says_which(tmp_path):
    (tmp_path / 'train' / 'crow').mkdir(parents=True)
    (tmp_path / 'train' / 'crow' / 'a.webp').write_bytes(b'another format')
    with pytest.raises(ValueError, match=r'holds no image in a folder of a class, but 1 other '
                                         r'file \(1 \.webp\); put them there as class/\*\.jpg'):
        folder(tmp_path).num_examples()


def test_a_resume_gives_the_batches_of_an_uninterrupted_run(original):
    def images(position: int, num_batches: int) -> list[np.ndarray]:
        return [b['image'].numpy() for _, b in zip(
            range(num_batches), folder(original).batches(position), strict=False)]

    whole = images(0, 12)
    assert np.array_equal(images(28, 5), whole[7:])
    assert not np.array_equal(whole[0], whole[5])


def test_a_window_of_a_jpeg_is_the_window_of_its_pixels():
    content, window = jpeg(0), np.array([5, 9, 31, 40], np.int32)
    whole = decoded(content)
    part = decoded(content, window)
    assert part.shape == (31, 40, 3)
    assert np.array_equal(part[2:-2, 2:-2], whole[7:34, 11:47])
    assert np.abs(part.astype(int) - whole[5:36, 9:49]).max() <= CHROMA


@pytest.mark.parametrize('encode', [tf.io.encode_png, tf.io.encode_jpeg])
@pytest.mark.parametrize('channels', [1, 3])
def test_grey_files_and_png_become_three_channels_whatever_their_suffix(birds, encode, channels):
    pixels = tf.fill([30, 50, channels], tf.constant(90, tf.uint8))
    (birds / 'test' / 'crow' / '00.jpg').write_bytes(encode(pixels).numpy())
    found = one_pass(folder(birds, split='test', **EVALUATION))
    assert (np.all(np.abs(found['image'][0].astype(int) - 90) <= 1)
            and found['weight'].tolist() == [1.] * 4)


def test_names_that_are_no_utf8_are_shown_with_a_mark(birds, caplog):
    """The picture of mistakes ended the run, and an error about the file was lost."""
    old = birds / 'train' / 'owl'
    new = Path(os.fsdecode(os.fsencode(old)[:-3] + b'\xd6wl'))
    old.rename(new)
    (new / '0.png').write_bytes(b'no image')
    source = folder(birds, **EVALUATION, max_broken_share=0.)
    assert source.class_names == ('crow', 'owl', 'wren', '\ufffdwl')
    with pytest.raises(ValueError, match='among them .*/\ufffdwl/0.png'):
        one_pass(source)
    assert '/\ufffdwl/README.txt' in caplog.text
    caplog.text.encode()


def test_a_subset_has_few_examples_of_each_class(original):
    assert one_pass(folder(original, subset=Subset(examples_per_class=2),
                           **EVALUATION))['label'].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(('where', 'values', 'sentence'), [
    ('nowhere', {}, 'nowhere\' is no folder; name one that holds images as split/class/*.jpg'),
    ('', {'split': 'validation'},
     "has no split 'validation'; it has test, train, and should hold images as split/class/*.jpg"),
    ('train', {'split': 'owl'},
     'owl holds no image in a folder of a class; put them there as class/*.jpg')])
def test_a_folder_of_another_layout_is_refused(original, where, values, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        folder(original / where if where else original, **values).dataset()


# Broken files.

def test_a_broken_image_keeps_its_place_with_weight_0_and_is_logged(birds, caplog):
    """All other examples are the same as in a pass without the broken file."""
    whole = one_pass(folder(birds, **EVALUATION))
    path = birds / 'train' / 'owl' / '03.jpg'
    path.write_bytes(path.read_bytes()[:200])
    source = folder(birds, max_broken_share=0.05, **EVALUATION)
    with caplog.at_level(logging.WARNING, 'absl'):
        found = one_pass(source)

    assert found['weight'].tolist() == [1.] * 11 + [0.] + [1.] * 8
    assert np.all(found['image'][11] == 128)
    assert np.array_equal(np.delete(found['image'], 11, 0), np.delete(whole['image'], 11, 0))
    assert (source.broken.num_broken, source.broken.num_read) == (1, 20)
    assert re.search(rf'1 of \d+ images read is broken and of no weight; this one: {path} \(',
                     caplog.text)


CUT_PNG = tf.io.encode_png(np.zeros([9, 9, 3], np.uint8)).numpy()[:40]


@pytest.mark.parametrize(
    'content', [b'', b'no image at all', b'\xff\xd8\xff', b'\x89PNG\r\n\x1a\n', jpeg(0)[:300],
                CUT_PNG, CUT_PNG[:16] + b'\x7f\xff\xff\xff' * 2 + CUT_PNG[24:]],
    ids=['empty', 'text', 'jpeg start', 'png start', 'cut jpeg', 'cut png', 'png of 2^31 - 1'])
def test_all_kinds_of_broken_images_are_found(birds, content):
    (birds / 'test' / 'owl' / '01.jpg').write_bytes(content)
    source = folder(birds, split='test', max_broken_share=0.25,
                    **{**EVALUATION, 'transform': AUGMENTED})
    assert one_pass(source)['weight'].tolist() == [1., 1., 0., 1.]


def test_the_graph_decodes_the_pixels_that_python_does_and_leaves_other_files_to_it():
    picture = np.random.default_rng(0).integers(0, 255, [40, 48, 3], np.uint8)
    part = tf.constant([3, 5, 21, 30])
    for encoded in (jpeg(0), tf.io.encode_png(picture).numpy()):
        assert np.array_equal(decoded_in_graph(encoded, lambda height, width: part),
                              decoded(encoded, part.numpy()))
    for other in (b'', jpeg(0)[:300], tf.io.encode_png(picture).numpy()[:40], b'BM and so on'):
        assert decoded_in_graph(other, lambda height, width: part).shape == [0, 0, 3]


def test_a_bitmap_with_a_palette_is_broken_and_a_grey_one_is_not(birds, caplog):
    """TensorFlow shows the numbers of a palette's colours as shades of grey."""
    def bitmap(palette: np.ndarray) -> bytes:
        pixels = np.arange(16, dtype=np.uint8).reshape(4, 4)[::-1].tobytes()
        header = struct.pack('<IIIHHIIIIII', 40, 4, 4, 1, 8, 0, 16, 0, 0, 256, 0)
        begin = struct.pack('<2sIII', b'BM', 54 + 1024 + 16, 0, 54 + 1024)
        return begin + header + palette.astype(np.uint8).tobytes() + pixels

    grey = np.arange(256)[:, np.newaxis].repeat(4, 1) * [1, 1, 1, 0]
    folder_of_owls = birds / 'test' / 'owl'
    for file in folder_of_owls.iterdir():
        file.unlink()
    (folder_of_owls / '0.bmp').write_bytes(bitmap(grey))
    (folder_of_owls / '1.bmp').write_bytes(bitmap(grey[::-1]))
    source = folder(birds, split='test', max_broken_share=0.25, **{
        **EVALUATION, 'transform': Transform.Params(size=4)})
    with caplog.at_level(logging.WARNING, 'absl'):
        found = one_pass(source)
    assert found['weight'].tolist() == [1., 1., 1., 0.]
    assert found['image'][2].tolist() == [[[4 * y + x] * 3 for x in range(4)] for y in range(4)]
    assert 'it is a BMP with a palette of colours, which is not read; make it a PNG' in caplog.text


@pytest.mark.parametrize('bits', [1, 4])
def test_a_bitmap_of_few_colours_is_said_to_have_a_palette(birds, caplog, bits):
    """TensorFlow does not decode it at all, and it was said to have no header of an image."""
    palette, pixels = bytes(4 * 2 ** bits), bytes(4 * 4)   # rows of 4 bytes
    header = struct.pack('<IIIHHIIIIII', 40, 4, 4, 1, bits, 0, len(pixels), 0, 0, 2 ** bits, 0)
    begin = struct.pack('<2sIII', b'BM', 54 + len(palette + pixels), 0, 54 + len(palette))
    (birds / 'test' / 'owl' / '0.bmp').write_bytes(begin + header + palette + pixels)
    source = folder(birds, split='test', max_broken_share=0.25, **EVALUATION)
    with caplog.at_level(logging.WARNING, 'absl'):
        one_pass(source)
    assert '0.bmp (it is a BMP with a palette of colours, which is not read' in caplog.text


def test_a_file_that_went_away_is_a_broken_image(birds):
    source = folder(birds, split='test', max_broken_share=0.25, **EVALUATION)
    source.num_examples()
    (birds / 'test' / 'owl' / '01.jpg').unlink()
    assert one_pass(source)['weight'].tolist() == [1., 1., 0., 1.]


def test_too_many_broken_images_are_an_error_that_names_them(birds):
    for name in '01.jpg', '03.jpg':
        (birds / 'train' / 'owl' / name).write_bytes(b'x')
    one = r'/owl/0[13].jpg \(it has no header of an image\)'
    with pytest.raises(ValueError, match=r'^2 of the first \d+ images are broken, more than '
                                         r'max_broken_share=0.05 allows; among them '
                                         rf'.*{one}; .*{one}\. Repair them or leave them out, or '
                                         rf'raise max_broken_share\.$'):
        one_pass(folder(birds, max_broken_share=0.05, **EVALUATION))


def test_the_share_is_of_a_thousand_images_at_least():
    """A broken first image is no error: it may be the only one of a million."""
    broken = BrokenImages(max_share=0.01)
    for _ in range(10):
        broken.count('a', num_examples=10**6)
    with pytest.raises(ValueError, match='^11 of the first 11 images are broken, more than .*=0.01 '
                                         'allows; among them a. Repair'):
        broken.count('a', num_examples=10**6)
    patient = BrokenImages(max_share=0.01)
    for i in range(5000):
        patient.count('a' if i % 100 == 99 else None, num_examples=10**6)
    assert patient.num_broken == 50


# tensorflow-datasets.

@pytest.mark.parametrize(('name', 'num_classes'),
                         [('imagenet2012', 1000), ('cifar10', 10), ('cifar100', 100),
                          ('cars196', 196), ('oxford_iiit_pet', 37), ('food101', 101)])
def test_image_sets_are_read_by_name(name, num_classes):
    with tfds.testing.mock_data(num_examples=6):
        source = TFDSImageInput.Params(name=name, batch_size=2, transform=AUGMENTED).instantiate()
        spec = source.spec()
        assert (spec['image'], spec['label']) == (tf.TensorSpec([2, 24, 24, 3], tf.uint8),
                                                  tf.TensorSpec([2], tf.int32))
        whole = [b['image'].numpy() for _, b in zip(range(5), source.batches(), strict=False)]
        resumed = [b['image'].numpy() for _, b in zip(range(2), source.batches(6), strict=False)]
        assert np.array_equal(whole[3:], resumed)
        assert len(source.class_names) == num_classes
        assert source.broken.num_broken == 0


def test_another_label_may_be_chosen_and_a_wrong_one_is_refused():
    with tfds.testing.mock_data(num_examples=6):
        def source(label: str) -> Any:
            return TFDSImageInput.Params(name='cifar100', label=label, batch_size=2,
                                         transform=Transform.Params(size=32)).instantiate()

        assert max(int(b['label'].numpy().max())
                   for _, b in zip(range(9), source('coarse_label').batches(), strict=False)) < 20
        with pytest.raises(ValueError, match="cifar100 has no feature 'fine'; it has coarse_label, "
                                             "id, image, label: name a set of images"):
            source('fine').dataset()


def test_a_broken_record_of_a_set_is_named_by_its_index(monkeypatch):
    with tfds.testing.mock_data(num_examples=6):
        source = TFDSImageInput.Params(name='food101', batch_size=2, transform=AUGMENTED,
                                       max_broken_share=0., shuffle=False).instantiate()
        records = [source.features.serialize_example(
            {'image': jpeg(i) if i != 3 else jpeg(i)[:300], 'label': i}) for i in range(6)]
        monkeypatch.setattr(source, '_records', tf.constant(records))
        with pytest.raises(ValueError, match=r'[1-9]\d* of the first \d+ images? (is|are) broken, '
                                             r'.* them food101 train, example 3 \('):
            next(source.batches(2))
