"""Inputs of images. All give image [B, h, w, channels], label [B] int32 and weight [B] float32.

    digits.py          1,797 digits, part of this package      transform.py   crop, flip, colours, cutout
    fashion_mnist.py   70,000 pictures of clothes              subset.py      some classes, some examples of each
    folder.py          a folder of images for every class      encoded.py     JPEG and PNG, and what is done about broken ones
    datasets.py        ImageNet and others by tensorflow-datasets

What is random per example and cheap is done here, on uint8, which is a quarter of the bytes of float32. What makes numbers for the
network of it is its first layer, on the device: tasks/image/normalize.py, mixup.py. (The digits are the exception: float32 from -1 to 1.)
"""
from lingpipe.tasks.image.inputs.datasets import TFDSImageInput
from lingpipe.tasks.image.inputs.digits import DigitsInput
from lingpipe.tasks.image.inputs.fashion_mnist import FashionMNISTInput
from lingpipe.tasks.image.inputs.folder import FolderInput
from lingpipe.tasks.image.inputs.subset import Subset
from lingpipe.tasks.image.inputs.transform import Transform

__all__ = ['DigitsInput', 'FashionMNISTInput', 'FolderInput', 'Subset', 'TFDSImageInput', 'Transform']
