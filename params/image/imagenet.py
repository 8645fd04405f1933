"""Experiments on ImageNet-2012: 1,281,167 training images, 50,000 test images, 1000 classes.

You need your own copy of the images. Put the archives ILSVRC2012_img_train.tar and
ILSVRC2012_img_val.tar into ~/tensorflow_datasets/downloads/manual, then run

    python -c "import tensorflow_datasets as tfds; \\
        tfds.builder('imagenet2012').download_and_prepare()"

None of these experiments was trained when it was written, on a machine with two cores and without
ImageNet. Their layers, numbers of weights, partitions and forecasts are tested, and
`--mode=inspect` prints these without any data. The same code trains image.fashion_mnist.

The first seven are the models of the GPipe paper's Tables 1 to 3 (arXiv:1811.06965), with 128
images of 224x224 pixels an update on K accelerators. They have no auxiliary head, because the
paper's parameter counts have none.
"""
from __future__ import annotations

from typing import Any, Literal

from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.image.amoebanet import AmoebaNet
from lingpipe.tasks.image.blocks import Norm
from lingpipe.tasks.image.classifier import ImageClassification, classifier, imagenet_learner
from lingpipe.tasks.image.inputs import TFDSImageInput, Transform
from lingpipe.tasks.image.normalize import Normalize
from lingpipe.tasks.image.resnet import ResNet
from lingpipe.training.experiment import Experiment
from lingpipe.training.registry import register
from lingpipe.training.train_params import TrainParams

NUM_CLASSES = 1000
NUM_TRAIN = 1_281_167
AMOEBANET_B_SIZE = 480   # Height and width in pixels.
# The colour changes of Inception's preprocessing.
COLOURS = {'brightness': 0.125, 'contrast': 0.5, 'saturation': 0.5, 'hue': 0.2}


def images(batch_size: int, size: int, is_training: bool,
           **augmentation: Any) -> TFDSImageInput.Params:
    """Returns the input of ImageNet at size x size pixels.

    Training sees random windows, half of them mirrored. An evaluation sees the centre of every
    validation image once.
    """
    if is_training:
        return TFDSImageInput.Params(
            name='imagenet2012', split='train', batch_size=batch_size,
            transform=Transform.Params(size=size, window='random', flip=True, **augmentation))
    return TFDSImageInput.Params(
        name='imagenet2012', split='validation', batch_size=batch_size, shuffle=False,
        num_epochs=1, transform=Transform.Params(size=size, window='centre'))


def amoebanet_d(num_layers: int, num_filters: int, num_cells: int, num_micro_batches: int,
                recompute: Literal['none', 'cell'] = 'cell') -> Experiment.Params:
    """Returns AmoebaNet-D (L, F) of Tables 1 to 3, trained for 90 epochs."""
    batch_size = 128
    network = AmoebaNet.Params(name='amoebanet', num_layers=num_layers, num_filters=num_filters,
                               num_classes=NUM_CLASSES)
    return Experiment.Params(
        task=classifier(network, imagenet_learner(batch_size), has_top5=True,
                        preprocess=(Normalize.Params(name='normalize'),)),
        train_input=images(batch_size, 224, is_training=True, **COLOURS),
        eval_inputs={'validation': images(batch_size, 224, is_training=False)},
        pipeline=PipelineParams(num_cells=num_cells, num_micro_batches=num_micro_batches,
                                recompute=recompute, schedule='gpipe'),
        train=TrainParams(num_steps=90 * NUM_TRAIN // batch_size, checkpoint_every_steps=2000,
                          eval_every_steps=10_000))


def amoebanet_b(num_classes: int, num_steps: int) -> AmoebaNet.Params:
    """Returns AmoebaNet-B (18, 512) for images of 480x480 pixels.

    It has drop path, dropout and the auxiliary head.

    Args:
      num_classes: size of the softmax.
      num_steps: updates of the run, over which drop path rises to its full rate.
    """
    return AmoebaNet.Params(
        name='amoebanet', architecture='B', num_layers=18, num_filters=512,
        num_classes=num_classes, drop_path_keep=0.7, drop_path_schedule='v1',
        drop_path_steps=num_steps, dropout_rate=0.5, auxiliary_image_size=AMOEBANET_B_SIZE)


def amoebanet_b_task(num_classes: int, num_steps: int,
                     learner: Learner.Params) -> ImageClassification.Params:
    """Returns AmoebaNet-B with label smoothing and an auxiliary loss that is weighted by 0.4."""
    return classifier(
        amoebanet_b(num_classes, num_steps), learner, label_smoothing=0.1, has_top5=True,
        auxiliary_weight=0.4,
        preprocess=(Normalize.Params(name='normalize', dtype='bfloat16'),))


@register
class AmoebaNetD18x128:
    """Trains AmoebaNet-D (18, 128), 31 M weights, K = 8, M = 32, as in the GPipe paper's Table 3.

        python -m lingpipe.trainer --model=image.imagenet.AmoebaNetD18x128 --logdir=/tmp/imagenet

    Table 3 measures the throughput without a fast interconnect. At M = 32, relative to K = 2, the
    paper has 1.7 for K = 4 and 2.7 for K = 8.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return amoebanet_d(18, 128, num_cells=8, num_micro_batches=32)


@register
class AmoebaNetD18x208:
    """Trains AmoebaNet-D (18, 208), 81 M weights, K = 1: Naive-1 of the GPipe paper's Table 1.

        python -m lingpipe.trainer --model=image.imagenet.AmoebaNetD18x208 --logdir=/tmp/imagenet

    It has no micro-batches and no recomputation. In the paper it is the largest model that one
    accelerator of 8 GB trains by itself. lingpipe would need 34 GB there (forecast of
    --mode=inspect, 2026-11-22).
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return amoebanet_d(18, 208, num_cells=1, num_micro_batches=1, recompute='none')


@register
class AmoebaNetD18x256:
    """Trains AmoebaNet-D (18, 256), 122 M weights, K = 8, M = 32, as in the GPipe paper's Table 2.

        python -m lingpipe.trainer --model=image.imagenet.AmoebaNetD18x256 --logdir=/tmp/imagenet

    The paper's throughput at M = 32, relative to K = 2 and M = 1, is 1.21, 1.84 and 3.48 for
    K = 2, 4 and 8.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return amoebanet_d(18, 256, num_cells=8, num_micro_batches=32)


@register
class AmoebaNetD18x416:
    """Trains AmoebaNet-D (18, 416), 318 M weights, K = 1: Pipeline-1 of the GPipe paper's Table 1.

        python -m lingpipe.trainer --model=image.imagenet.AmoebaNetD18x416 --logdir=/tmp/imagenet

    It has micro-batches and recomputation.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return amoebanet_d(18, 416, num_cells=1, num_micro_batches=32)


@register
class AmoebaNetD18x544:
    """Trains AmoebaNet-D (18, 544), 540 M weights, K = 2: Pipeline-2 of the GPipe paper's Table 1.

        python -m lingpipe.trainer --model=image.imagenet.AmoebaNetD18x544 --logdir=/tmp/imagenet
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return amoebanet_d(18, 544, num_cells=2, num_micro_batches=32)


@register
class AmoebaNetD36x544:
    """Trains AmoebaNet-D (36, 544), 1.05 G weights, K = 4: Pipeline-4 of the GPipe paper's Table 1.

        python -m lingpipe.trainer --model=image.imagenet.AmoebaNetD36x544 --logdir=/tmp/imagenet
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return amoebanet_d(36, 544, num_cells=4, num_micro_batches=32)


@register
class AmoebaNetD72x512:
    """Trains AmoebaNet-D (72, 512), 1.84 G weights, K = 8: Pipeline-8 of the GPipe paper's Table 1.

        python -m lingpipe.trainer --model=image.imagenet.AmoebaNetD72x512 --logdir=/tmp/imagenet

    It is 25 times as large as what one accelerator trains by itself in the paper.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return amoebanet_d(72, 512, num_cells=8, num_micro_batches=32)


@register
class AmoebaNetB18x512:
    """Trains AmoebaNet-B (18, 512), 557 M weights, on 480x480 pixels, K = 4.

        python -m lingpipe.trainer --model=image.imagenet.AmoebaNetB18x512 --logdir=/tmp/imagenet

    This is the network with which the GPipe paper reaches 84.4 % top-1, and its whole recipe:
    RMSProp, L2, label smoothing, an auxiliary head, drop path, dropout, a learning rate that falls
    in steps, moving averages of the weights, clipping, and bfloat16 activations over float32
    weights. The paper names these; the numbers are those of AmoebaNet's reference implementation.

    The paper does not print the size of the mini-batch. With 128 micro-batches of 16 images, the
    fullest device needs 12.8 GB, which fits 16 GB (forecast of --mode=inspect, 2026-11-22).
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        batch_size = 2048
        size = AMOEBANET_B_SIZE
        num_steps = 350 * NUM_TRAIN // batch_size
        return Experiment.Params(
            task=amoebanet_b_task(NUM_CLASSES, num_steps, imagenet_learner(batch_size)),
            train_input=images(batch_size, size, is_training=True, **COLOURS),
            eval_inputs={'validation': images(batch_size, size, is_training=False)},
            pipeline=PipelineParams(num_cells=4, num_micro_batches=128),
            train=TrainParams(num_steps=num_steps, checkpoint_every_steps=500,
                              eval_every_steps=2000))


@register
class ResNet101:
    """Trains ResNet-101, 44.5 M weights, K = 4, from the first version of the GPipe paper.

        python -m lingpipe.trainer --model=image.imagenet.ResNet101 --logdir=/tmp/imagenet

    The recipe is that of Goyal et al. (2017, arXiv:1706.02677) for 90 epochs: Nesterov momentum, a
    learning rate of 0.1 for 256 examples, 5 epochs of warm-up, and a factor of 0.1 after epochs
    30, 60 and 80. They reach about 77.5 % top-1.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        batch_size = 1024
        steps_per_epoch = NUM_TRAIN / batch_size
        rate = 0.1 * batch_size / 256
        learner = Learner.Params(
            optimizer=optimizers.SGD.Params(momentum=0.9, nesterov=True), l2=1e-4,
            learning_rate=learning_rates.Piecewise.Params(
                warmup_steps=round(5 * steps_per_epoch),
                boundaries=tuple(round(epoch * steps_per_epoch) for epoch in (30, 60, 80)),
                rates=tuple(rate * 0.1 ** i for i in range(4))))
        network = ResNet.Params(
            name='resnet', depth=101, num_classes=NUM_CLASSES,
            batch_norm=Norm(decay=0.9, epsilon=1e-5), is_branch_silent=True)

        return Experiment.Params(
            task=classifier(network, learner, label_smoothing=0.1, has_top5=True,
                            preprocess=(Normalize.Params(name='normalize'),)),
            train_input=images(batch_size, 224, is_training=True),
            eval_inputs={'validation': images(batch_size, 224, is_training=False)},
            pipeline=PipelineParams(num_cells=4, num_micro_batches=16),
            train=TrainParams(num_steps=round(90 * steps_per_epoch),
                              checkpoint_every_steps=1000, eval_every_steps=5000))
