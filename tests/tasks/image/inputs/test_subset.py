"""Subset makes a choice that never changes, and its errors say what the data has."""
from __future__ import annotations

import re

import numpy as np
import pytest

from lingpipe.tasks.image.inputs import Subset

LABELS = np.random.default_rng(0).integers(0, 5, 100)


def test_without_fields_all_examples_are_used_as_they_are():
    index, label = Subset().of(LABELS)
    assert index.tolist() == list(range(100))
    assert label.tolist() == LABELS.tolist() and label.dtype == np.int32


def test_chosen_classes_count_from_0_in_their_order():
    index, label = Subset(classes=(4, 1)).of(LABELS)
    assert index.tolist() == np.flatnonzero((LABELS == 4) | (LABELS == 1)).tolist()
    assert label.tolist() == np.where(LABELS[index] == 4, 0, 1).tolist()


def test_the_choice_of_a_seed_never_changes():
    """A resumed run must have the same examples, so these literals may not be edited."""
    assert Subset(examples_per_class=2).of(np.arange(12) % 3)[0].tolist() == [0, 2, 6, 7, 8, 10]


def test_few_examples_are_among_the_more_of_the_same_seed():
    few, more = (set(Subset(examples_per_class=n).of(LABELS)[0]) for n in (3, 10))
    assert len(few) == 15 and few < more
    assert few != set(Subset(examples_per_class=3, seed=1).of(LABELS)[0])


def test_examples_of_a_class_do_not_depend_on_which_others_are_used():
    alone, with_others = Subset(classes=(2,), examples_per_class=4), Subset(examples_per_class=4)
    index, label = with_others.of(LABELS)
    assert alone.of(LABELS)[0].tolist() == index[label == 2].tolist()


@pytest.mark.parametrize(('subset', 'sentence'), [
    (Subset(classes=(1, 7)),
     'subset.classes=[1, 7] names 7, and the data has the classes 0, 1, 2, 3, 4; correct it.'),
    (Subset(examples_per_class=99),
     'subset.examples_per_class=99 is more than the 18 examples of class 0; use 18 or less.')])
def test_what_is_not_there_is_refused(subset, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        subset.of(LABELS)


@pytest.mark.parametrize(('subset', 'sentence'), [
    ({'classes': (1, 1)}, 'classes=[1, 1] names one twice'),
    ({'examples_per_class': 0}, 'examples_per_class=0 is below 1; use 1')])
def test_fields_that_make_no_sense_are_refused(subset, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Subset(**subset).validate()
