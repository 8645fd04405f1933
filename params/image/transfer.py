"""Transfer: AmoebaNet-B (18, 512), trained on ImageNet, goes on with seven smaller sets (arXiv:1811.06965v1, section 4, Table 4).

Every layer but the two softmax layers (the last layer's and the auxiliary head's, whose classes are others) starts from
image.imagenet.AmoebaNetB18x512, from the moving averages of its weights. Images of 480x480 pixels, flips, cutout, Nesterov
SGD, 256 examples. The paper keeps all other hyperparameters of its ImageNet run, and so do these: drop path, dropout, the
auxiliary head, label smoothing, L2, clipping and the moving average of the weights. The paper chose learning rate and L2
for each set on held-out images and does not print them: here all sets have the learning rate and length of Kornblith et
al. (2018, arXiv:1805.08974: 20,000 updates, half a cosine) and ImageNet's L2. The side of the cutout, which the paper does
not print either, is in proportion to that of DeVries and Taylor (2017, arXiv:1708.04552).

    python -m lingpipe.trainer --model=image.transfer.CIFAR10 --logdir=/tmp/cifar10 --set initialize_from.directory=/tmp/imagenet
    python -m lingpipe.tools.repeat --model=image.transfer.CIFAR10 --logdir=/tmp/cifar10 --runs=5 \\
        --set initialize_from.directory=/tmp/imagenet

the second five times with other seeds, for mean and spread. Like those on ImageNet, these were not trained where they were written;
image.fashion_mnist.Transfer is the same made small, and was.
"""
from __future__ import annotations

from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.params.image.imagenet import AMOEBANET_B_SIZE, amoebanet_b_task
from lingpipe.pipeline.planning.plan import PipelineParams
from lingpipe.tasks.image.classifier import initialized_but_last
from lingpipe.tasks.image.inputs import FolderInput, TFDSImageInput, Transform
from lingpipe.training.experiment import Experiment, InitializeFrom
from lingpipe.training.registry import register
from lingpipe.training.train_params import TrainParams

NUM_STEPS = 20_000
TRAIN = Transform.Params(size=AMOEBANET_B_SIZE, flip=True, cutout=160)
TEST = Transform.Params(size=AMOEBANET_B_SIZE)


def fine_tuned(num_classes: int, images: FolderInput.Params | TFDSImageInput.Params, test: str = 'test') -> Experiment.Params:
    """The network with a new last layer, and how it is trained on the split 'train' of the images; `test` is the one to test with."""
    train_input = images.copy().set(batch_size=256, transform=TRAIN)
    learner = Learner.Params(optimizer=optimizers.SGD.Params(momentum=0.9, nesterov=True), l2=4e-5, clip_norm=10.,
                             ema_decay=0.9999,
                             learning_rate=learning_rates.Cosine.Params(rate=0.01, decay_steps=NUM_STEPS))
    softmax_layers = 'model/amoebanet/dense', 'model/amoebanet/auxiliary_head/dense'
    return Experiment.Params(
        task=amoebanet_b_task(num_classes, NUM_STEPS, learner),
        train_input=train_input,
        eval_inputs={'test': train_input.copy().set(split=test, shuffle=False, num_epochs=1, transform=TEST)},
        pipeline=PipelineParams(num_cells=4, num_micro_batches=32),
        train=TrainParams(num_steps=NUM_STEPS, eval_every_steps=2000),
        initialize_from=InitializeFrom(rules=initialized_but_last(*softmax_layers, is_averaged=True)))


@register
class CIFAR10:
    """CIFAR-10, 50,000 + 10,000 images, 10 classes; the paper: 99.0 %.

        python -m lingpipe.trainer --model=image.transfer.CIFAR10 --logdir=/tmp/cifar10 --set initialize_from.directory=/tmp/imagenet
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return fine_tuned(10, TFDSImageInput.Params(name='cifar10'))


@register
class CIFAR100:
    """CIFAR-100, 50,000 + 10,000 images, 100 classes; the paper: 91.3 %.

        python -m lingpipe.trainer --model=image.transfer.CIFAR100 --logdir=/tmp/cifar100 --set initialize_from.directory=/tmp/imagenet
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return fine_tuned(100, TFDSImageInput.Params(name='cifar100'))


@register
class StanfordCars:
    """Stanford Cars, 8,144 + 8,041 images, 196 classes; the paper: 94.6 %.

        python -m lingpipe.trainer --model=image.transfer.StanfordCars --logdir=/tmp/cars --set initialize_from.directory=/tmp/imagenet

    Its server is said to be gone: with the images from elsewhere, use a folder as FGVCAircraft does.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return fine_tuned(196, TFDSImageInput.Params(name='cars196'))


@register
class OxfordPets:
    """Oxford-IIIT Pets, 3,680 + 3,669 images, 37 classes; the paper: 95.9 %.

        python -m lingpipe.trainer --model=image.transfer.OxfordPets --logdir=/tmp/pets --set initialize_from.directory=/tmp/imagenet
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return fine_tuned(37, TFDSImageInput.Params(name='oxford_iiit_pet'))


@register
class Food101:
    """Food-101, 75,750 + 25,250 images, 101 classes; the paper: 93.0 %.

        python -m lingpipe.trainer --model=image.transfer.Food101 --logdir=/tmp/food --set initialize_from.directory=/tmp/imagenet
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return fine_tuned(101, TFDSImageInput.Params(name='food101'), test='validation')


@register
class FGVCAircraft:
    """FGVC Aircraft, 6,667 + 3,333 images, 100 classes, from a folder; the paper: 92.7 %.

        python -m lingpipe.trainer --model=image.transfer.FGVCAircraft --logdir=/tmp/aircraft --set initialize_from.directory=/tmp/imagenet

    Unpack the images to data/fgvc_aircraft/train/VARIANT/*.jpg and .../test/VARIANT/*.jpg, or say where they are by --set
    train_input.directory=... --set eval_inputs.test.directory=...
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return fine_tuned(100, FolderInput.Params(directory='data/fgvc_aircraft'))


@register
class Birdsnap:
    """Birdsnap, 47,386 + 2,443 images, 500 classes, from a folder; the paper: 83.6 %.

        python -m lingpipe.trainer --model=image.transfer.Birdsnap --logdir=/tmp/birdsnap --set initialize_from.directory=/tmp/imagenet

    Unpack the images to data/birdsnap/train/SPECIES/*.jpg and data/birdsnap/test/SPECIES/*.jpg.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        return fine_tuned(500, FolderInput.Params(directory='data/birdsnap'))
