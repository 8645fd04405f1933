"""Batches are a function of the position, and each pair comes once before any comes again."""
from __future__ import annotations

import collections
import re

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.input.first_batch import check_keys
from lingpipe.tasks.translation.corpus.prepared import PreparedCorpus
from lingpipe.tasks.translation.deck import Deck
from lingpipe.tasks.translation.inputs import TranslationInput
from lingpipe.tasks.translation.temperature import apportioned, shares
from tests.support import small_corpus

BUCKETS = (8, 16, 32)


@pytest.fixture(scope='module')
def corpus(tmp_path_factory) -> PreparedCorpus:
    return small_corpus.prepared(tmp_path_factory.mktemp('corpus'), tags=True)


def an_input(corpus: PreparedCorpus, **values) -> TranslationInput:
    return TranslationInput.Params(**{'directory': corpus.folder, 'batch_size': 4,
                                      'bucket_lengths': (32,), **values}).instantiate()


def taken(source: TranslationInput, number: int = -1,
          position: int = 0) -> list[dict[str, np.ndarray]]:
    return [{name: value.numpy() for name, value in batch.items()}
            for batch in source.dataset(position).take(number)]


def one_pass(**values):
    return {'shuffle': False, 'num_epochs': 1, **values}


# Temperature.

def test_temperature_flattens_the_sizes():
    sizes = np.array([1000, 100, 0])
    np.testing.assert_allclose(shares(sizes, 1), [10 / 11, 1 / 11, 0])
    np.testing.assert_allclose(shares(sizes, 5), np.array([10 ** 0.2, 1, 0]) / (10 ** 0.2 + 1))
    np.testing.assert_allclose(shares(sizes, float('inf')), [0.5, 0.5, 0])


@pytest.mark.parametrize(('parts', 'total', 'numbers'), [
    ([3, 2, 5], 10, [3, 2, 5]), ([1, 1, 1], 10, [4, 3, 3]), ([1000, 1, 0], 10, [9, 1, 0]),
    ([1000, 1, 1, 1], 4, [1, 1, 1, 1])])
def test_parts_are_rounded_to_their_sum_and_none_is_forgotten(parts, total, numbers):
    assert apportioned(np.array(parts), total).tolist() == numbers


# Batches.

def test_a_batch_is_what_a_decoder_reads_and_predicts(corpus):
    source = an_input(corpus, split='test', **one_pass())
    batch = taken(source, 1)[0]
    text, english = (corpus.texts('test', side)[0] for side in ('source', 'english'))
    (own,), (other,) = source.vocabulary.encode([text]), source.vocabulary.encode([english])

    def padded(*ids):
        return [*ids, *[0] * (32 - len(ids))]

    assert batch['source'][0].tolist() == padded(*own, 2)
    assert batch['target'][0].tolist() == padded(1, *other)
    assert batch['label'][0].tolist() == padded(*other, 2)
    assert batch['weight'][0].tolist() == padded(*[1.] * (len(other) + 1))
    assert batch['language'][0] == 0 and batch['index'][0] == 0
    assert source.vocabulary.decode(batch['label']) == corpus.texts('test', 'english', 0, 4)


@pytest.mark.parametrize('buckets', [(32,), BUCKETS])
def test_batches_are_of_the_specs(corpus, buckets):
    source = an_input(corpus, bucket_lengths=buckets, temperature=5.)
    specs = source.specs()
    assert ([spec['source'].shape.as_list() for spec in specs]
            == {(32,): [[4, 32]], BUCKETS: [[4, 32], [8, 16], [16, 8]]}[buckets])
    assert source.spec() == specs[0]
    for batch in source.dataset().take(40):
        assert sum(all(spec[name].is_compatible_with(value) for name, value in batch.items())
                   for spec in specs) == 1
    if len(buckets) == 1:
        assert source.dataset().element_spec == source.spec()


def test_a_spec_needs_no_corpus():
    source = TranslationInput.Params(directory='not there', batch_size=4).instantiate()
    assert source.spec()['label'] == tf.TensorSpec([4, 64], tf.int32)
    check_keys(source, ['source', 'target', 'label', 'weight', 'language'])
    with pytest.raises(ValueError,
                       match="'not there' holds no corpus.json; prepare a corpus there"):
        source.dataset()


def test_a_pair_is_in_the_first_bucket_that_holds_it(corpus):
    lengths = {name: np.diff(corpus.ids('train', name)[1]) + 1 for name in ('source', 'english')}
    longest = np.maximum(lengths['source'], lengths['english'])
    for batch in taken(an_input(corpus, bucket_lengths=BUCKETS), 60):
        length = batch['source'].shape[1]
        shorter = [n for n in BUCKETS if n < length]
        assert (all(longest[batch['index']] <= length)
                and all(longest[batch['index']] > max(shorter, default=0)))


# Positions.

def test_the_order_of_a_seed_never_changes():
    """A run resumed with another version must see the same order: do not edit these literals."""
    def batches(rounds: int) -> list[tuple[int, list[int], list[int]]]:
        deck = Deck(np.array([[4, 2], [2, 0]]), np.array([0.75, 0.25]), (4, 2), 0, True, rounds)
        found = [deck.batch(tf.constant(i, tf.int64)) for i in (0, 1, 10 ** 12)]
        return [(int(b.bucket), b.suit.numpy().tolist(), b.index.numpy().tolist()) for b in found]

    assert batches(4) == [
        (0, [1, 0, 0, 0], [1, 2, 0, 1]), (0, [0, 1, 1, 0], [3, 0, 0, 2]), (1, [2, 2], [0, 1])]
    assert batches(16) == [
        (0, [1, 0, 0, 1], [1, 0, 3, 0]), (0, [0, 0, 1, 0], [1, 2, 1, 1]), (1, [2, 2], [0, 1])]


@pytest.mark.parametrize('buckets', [(32,), BUCKETS])
@pytest.mark.parametrize('position', [4, 28, 400])
def test_a_resume_gives_the_batches_of_an_uninterrupted_run(corpus, buckets, position):
    values = {'bucket_lengths': buckets, 'temperature': 5.}
    whole = taken(an_input(corpus, **values), 110)[position // 4:]
    resumed = taken(an_input(corpus, **values), len(whole), position)
    for one, other in zip(whole, resumed, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


def test_another_seed_is_another_order(corpus):
    assert not np.array_equal(taken(an_input(corpus), 1)[0]['index'],
                              taken(an_input(corpus, seed=1), 1)[0]['index'])


def test_a_position_between_batches_is_refused(corpus):
    for position in (-4, 6):
        with pytest.raises(ValueError,
                           match=f'position={position} is not between two batches of batch_size=4'):
            an_input(corpus).dataset(position)


@pytest.mark.parametrize('temperature', [1., 5., float('inf')])
@pytest.mark.parametrize('buckets', [(32,), BUCKETS])
def test_languages_come_in_their_shares(corpus, temperature, buckets):
    """The test counts all cards of a deck, without making the batches."""
    source = an_input(corpus, temperature=temperature, bucket_lengths=buckets)
    sizes = source._suits.sizes.sum(axis=0)
    found = source._deck.quotas.sum(axis=0)
    np.testing.assert_allclose(found / found.sum(), shares(sizes, temperature),
                               atol=1e-4 if temperature > 1 else 0.02)


@pytest.mark.parametrize('temperature', [1., 5.])
def test_a_rare_length_comes_in_its_share(temperature):
    sizes = np.array([[20_000, 9_000], [1, 2]])   # of batches of 64 and 32
    deck = Deck(sizes, shares(sizes.sum(axis=0), temperature), (64, 32), 0, True, 16)
    expected = (sizes * (shares(sizes.sum(axis=0), temperature) / sizes.sum(axis=0))).sum(axis=1)
    np.testing.assert_allclose(deck.quotas.sum(axis=1) / deck.quotas.sum(), expected, rtol=0.07)


def test_languages_of_the_first_batches_are_in_their_shares_too(corpus):
    seen = np.concatenate([batch['language']
                           for batch in taken(an_input(corpus, temperature=float('inf')), 500)])
    np.testing.assert_allclose(np.bincount(seen) / len(seen), [0.25] * 4, atol=0.03)


def test_every_pair_comes_once_in_a_pass_of_the_data(corpus):
    source = an_input(corpus, bucket_lengths=(64,), batch_size=4)
    number = source.num_examples() // 4
    counts = collections.Counter(
        np.concatenate([batch['index'] for batch in taken(source, number)]).tolist())
    assert max(counts.values()) == 1 and len(counts) == 4 * number


def test_a_language_that_is_repeated_sees_all_its_pairs_equally_often():
    sizes = np.array([[500, 70, 30]])   # Permutations of fewer take longer.
    deck = Deck(sizes, shares(sizes[0], float('inf')), (1024,), 0, True, 16)
    seen = np.zeros(3 * 500, np.int64)
    batch = tf.function(deck.batch, input_signature=[tf.TensorSpec([], tf.int64)],
                        autograph=False)
    for number in range(deck.num_batches):
        one = batch(tf.constant(number, tf.int64))
        seen += np.bincount(500 * one.suit.numpy() + one.index.numpy(), minlength=seen.size)
    for times, size in zip(seen.reshape(3, 500), sizes[0], strict=True):
        assert np.ptp(times[:size]) <= 1 and not times[size:].any()


# Evaluation.

@pytest.mark.parametrize('buckets', [(64,), (8, 16, 64)])
def test_evaluation_sees_each_pair_once_and_padding_weighs_nothing(corpus, buckets):
    source = an_input(corpus, split='test', bucket_lengths=buckets, **one_pass())
    batches = taken(source)
    assert len(batches) == source.num_batches() and source.num_batches(4 * len(batches)) == 0

    rows = np.concatenate([batch['index'] for batch in batches])
    assert sorted(rows[rows >= 0]) == list(range(len(corpus.texts('test', 'source'))))
    for number, batch in enumerate(batches):
        is_real = batch['index'] >= 0
        num_real = source.num_real_examples(4 * number)
        assert ((batch['weight'].sum(axis=1) > 0) == is_real).all()
        assert is_real[:num_real].all() and not is_real[num_real:].any()
    english = corpus.ids('test', 'english')[1]
    assert sum(batch['weight'].sum() for batch in batches) == english[-1] + len(english) - 1


def test_overlong_pairs_are_dropped_or_cut(corpus):
    dropped = an_input(corpus, bucket_lengths=(8,), **one_pass())
    cut = an_input(corpus, bucket_lengths=(8,), overlong='cut', **one_pass())
    assert 0 < dropped.num_examples() == cut.num_examples() - dropped.statistics()['overlong']
    rows = [row for batch in taken(cut) for row in batch['source'][batch['index'] >= 0]]
    assert len(rows) == cut.num_examples() and all((row == 2).sum() == 1 for row in rows)


def test_languages_levels_and_numbers_are_chosen(corpus):
    assert set(np.concatenate([b['language'] for b in taken(
        an_input(corpus, languages=('zu', 'cy'), **one_pass()))])) == {1, 2}
    assert set(np.concatenate([b['language'] for b in taken(
        an_input(corpus, level='low', **one_pass()))])) == {3}

    assert an_input(corpus, examples_per_language=10).num_examples() == 40
    levels = [an_input(corpus, level=level).num_examples() for level in ('high', 'middle', 'low')]
    assert sum(levels) == an_input(corpus).num_examples()
    assert an_input(corpus).corpus.codes == ('de', 'cy', 'zu', 'fr')


def test_a_tag_goes_before_the_sentence(corpus):
    plain, tagged = (taken(an_input(corpus, split='test', language_tags=tags, **one_pass()), 1)[0]
                     for tags in (False, True))
    assert (tagged['source'][:, 0] == 4).all()
    np.testing.assert_array_equal(tagged['source'][:, 1:], plain['source'][:, :-1])


def test_statistics_are_those_of_the_batches(corpus):
    source = an_input(corpus, bucket_lengths=BUCKETS, **one_pass())
    batches, found = taken(source), source.statistics()
    real = sum(((batch['source'] != 0).sum(1)
                + (batch['label'] != 0).sum(1))[batch['index'] >= 0].sum() for batch in batches)
    assert found['padding'] == pytest.approx(
        1 - real / sum(2 * batch['source'].size for batch in batches))
    for bucket in found['buckets']:
        assert bucket['batches_share'] == (
            sum(b['source'].shape[1] == bucket['length'] for b in batches) / len(batches))
    assert re.search(r'train of .*: \d+ pairs, 0 longer than 32 dropped; \d+% padding; 16 x 8: ',
                     source.statistics_text())


# Mistakes.

@pytest.mark.parametrize(('values', 'sentence'), [
    ({'bucket_lengths': (16, 8)},
     'bucket_lengths=[16, 8] are no ascending lengths; use for example [16, 32, 64]'),
    ({'bucket_lengths': ()}, 'bucket_lengths=[] are no ascending lengths'),
    ({'temperature': 0.5}, 'temperature=0.5 is below 1'),
    ({'temperature': float('nan')}, 'temperature=nan is not a number; use 1 or more'),
    ({'bucket_lengths': (1, 8)}, 'bucket_lengths[0]=1 is below 2; use 2 or more'),
    ({'temperature': 5., 'num_epochs': 1},
     'num_epochs=1 with temperature=5.0: in an epoch every pair comes once'),
    ({'examples_per_language': 0}, 'examples_per_language=0 is below 1')])
def test_params_that_make_no_sense_are_refused(corpus, values, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        an_input(corpus, **values)


def test_languages_that_are_not_there_and_buckets_that_hold_nothing_are_refused(corpus):
    with pytest.raises(ValueError, match=r"language 'zz' is not one of the 4 in .*; the nearest "
                                         r"are zu \(Zulu\)"):
        an_input(corpus, languages=('zz',)).dataset()
    with pytest.raises(ValueError, match='no pair of train is left in .* are there, .* of them '
                                         'longer than 2 ids; choose other languages'):
        an_input(corpus, bucket_lengths=(2,)).dataset()
