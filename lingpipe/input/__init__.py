"""Inputs: where examples come from, and in which order, as a function of one integer.

An input is at a position: the number of examples that were consumed before. The epoch and the place
in it follow from the position, the example from these by a stateless permutation, and its
augmentation from stateless random numbers. So a run that was killed resumes with the batches that
it would have had, without any state of tf.data in the checkpoint and without reading again what it
has read before.

    order.py           position -> epoch, index, seed
    example_source.py  what a source is asked for: examples, by their indices
    base.py            Input: positions -> batches
    dataset.py         the steps of which they are made by tf.data
    batches.py         the iterator over them
    saved_iterators.py where such an iterator is, in files, for datasets that begin nowhere else
    unread_batch.py    a mini-batch that other processes make, a position here
    readers.py         how they make it
    fingerprint.py     how it is noticed that they read other data
    first_batch.py     what is looked at before the first step
    meter.py           how long a run waits for its input
    errors.py          what an input's code raises, as a sentence
    arrays.py          arrays in memory
    records.py         TFRecord files
    datasets.py        tensorflow-datasets
    dataset_input.py   any tf.data.Dataset
    sources.py         any object with len() and [], as Grain's; ArrayRecord files
    elements.py        what a tuple's parts are called, as Keras has them
    given.py           arrays, datasets and sources without a class
    checked_arrays.py  arrays that a call is given, in the shapes and dtypes of a network
    example_files.py   files of examples to predict from
"""
from lingpipe.input.arrays import ArrayInput
from lingpipe.input.base import Input
from lingpipe.input.dataset_input import DatasetInput
from lingpipe.input.datasets import TFDSInput
from lingpipe.input.meter import InputMeter
from lingpipe.input.records import Feature, RecordInput
from lingpipe.input.sources import ArrayRecordInput, SourceInput

__all__ = ['ArrayInput', 'ArrayRecordInput', 'DatasetInput', 'Feature', 'Input', 'InputMeter',
           'RecordInput', 'SourceInput', 'TFDSInput']
