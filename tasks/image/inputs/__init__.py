"""Inputs of images. All give image [B, h, w, channels], label [B] int32 and weight [B] float32.

    digits.py          1,797 digits, part of this package
    fashion_mnist.py   70,000 pictures of clothes
    folder.py          a folder of images for every class
    datasets.py        ImageNet and other sets of tensorflow-datasets

    transform.py       crop, flip, colours, cutout
    subset.py          some classes, some examples of each
    encoded.py         JPEG and PNG, and what is done about broken files

Inputs do what is random per example and cheap, on uint8, which needs a quarter of the bytes of
float32. The first layer of the network turns this into numbers, on the device:
tasks/image/normalize.py and mixup.py. The digits are the exception: they are float32 from -1 to 1.
"""
from lingpipe.tasks.image.inputs.datasets import TFDSImageInput
from lingpipe.tasks.image.inputs.digits import DigitsInput
from lingpipe.tasks.image.inputs.fashion_mnist import FashionMNISTInput
from lingpipe.tasks.image.inputs.folder import FolderInput
from lingpipe.tasks.image.inputs.subset import Subset
from lingpipe.tasks.image.inputs.transform import Transform

__all__ = [
    'DigitsInput', 'FashionMNISTInput', 'FolderInput', 'Subset', 'TFDSImageInput', 'Transform']
