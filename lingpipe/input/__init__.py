"""Inputs: where examples come from, and in which order, as a function of one integer.

An input is at a position: the number of examples that were consumed before. From it follow the epoch, the place in the epoch, by a
stateless permutation the example, and by stateless random numbers its augmentation. So training that was killed goes on with the
batches that it would have had, without any state of tf.data in the checkpoint and without reading what it has read before.

    order.py    position -> epoch, index, seed        arrays.py    arrays in memory
    base.py     Input: positions -> batches           records.py   TFRecord files
    batches.py  the iterator over them                datasets.py  tensorflow-datasets
    meter.py    how long the training waits           errors.py    what an input's code raises, as a sentence
    first_batch.py    what is looked at before the first step
"""
from lingpipe.input.arrays import ArrayInput
from lingpipe.input.base import Input
from lingpipe.input.datasets import TFDSInput
from lingpipe.input.meter import InputMeter
from lingpipe.input.records import Feature, RecordInput

__all__ = ['ArrayInput', 'Feature', 'Input', 'InputMeter', 'RecordInput', 'TFDSInput']
