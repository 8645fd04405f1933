"""Transfer of AmoebaNet-B (18, 512) from ImageNet to seven smaller sets.

This is section 4, Table 4 of arXiv:1811.06965v1. Every layer starts from the run
image.imagenet.AmoebaNetB18x512, from the moving averages of its weights. The exceptions are the two
softmax layers (the last layer's and the auxiliary head's), because the classes are others.

Training uses images of 480x480 pixels, flips, cutout, Nesterov SGD and 256 examples an update. The
paper keeps all other hyperparameters of its ImageNet run, and so do these experiments: drop path,
dropout, the auxiliary head, label smoothing, L2, clipping and the moving average of the weights.

Some numbers are not in the paper. It chose the learning rate and L2 for each set on held-out images
and does not print them; here, all sets have the learning rate and the length of Kornblith et al.
(2018, arXiv:1805.08974: 20,000 updates, half a cosine) and the L2 of ImageNet. It does not print
the side of the cutout either; here it is in proportion to that of DeVries and Taylor (2017,
arXiv:1708.04552).

    python -m lingpipe.trainer --model=image.transfer.CIFAR10 --logdir=/tmp/cifar10 \\
        --set initialize_from.directory=/tmp/imagenet
    python -m lingpipe.tools.repeat --model=image.transfer.CIFAR10 --logdir=/tmp/cifar10 --runs=5 \\
        --set initialize_from.directory=/tmp/imagenet

The second command runs the experiment five times with different seeds, for a mean and a standard
deviation. Like the experiments on ImageNet, none of these was trained when it was written.
image.fashion_mnist.Transfer is a small version that was.
"""
from __future__ import annotations

from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.params.image.imagenet import AMOEBANET_B_SIZE, amoebanet_b_task
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.image.classifier import initialized_but_last
from lingpipe.tasks.image.inputs import FolderInput, TFDSImageInput, Transform
from lingpipe.training.experiment import Experiment
from lingpipe.training.initialize_from import InitializeFrom
from lingpipe.training.registry import register
from lingpipe.training.train_params import TrainParams

NUM_STEPS = 20_000
TRAIN = Transform.Params(size=AMOEBANET_B_SIZE, flip=True, cutout=160)
TEST = Transform.Params(size=AMOEBANET_B_SIZE)


def fine_tuned(num_classes: int, images: FolderInput.Params | TFDSImageInput.Params,
               test: str = 'test') -> Experiment.Params:
    """Returns the experiment that fine-tunes the network on a set of images.

    Args:
      num_classes: outputs of the new softmax layers.
      images: the set; its split 'train' is trained on.
      test: name of the split that is evaluated.
    """
    train_input = images.copy().set(batch_size=256, transform=TRAIN)
    test_input = train_input.copy().set(split=test, shuffle=False, num_epochs=1, transform=TEST)
    learner = Learner.Params(
        optimizer=optimizers.SGD.Params(momentum=0.9, nesterov=True),
        learning_rate=learning_rates.Cosine.Params(rate=0.01, decay_steps=NUM_STEPS),
        l2=4e-5, clip_norm=10., ema_decay=0.9999)
    softmax_layers = ('model/amoebanet/dense', 'model/amoebanet/auxiliary_head/dense')

    return Experiment.Params(
        task=amoebanet_b_task(num_classes, NUM_STEPS, learner),
        train_input=train_input,
        eval_inputs={'test': test_input},
        pipeline=PipelineParams(num_cells=4, num_micro_batches=32),
        train=TrainParams(num_steps=NUM_STEPS, eval_every_steps=2000),
        initialize_from=InitializeFrom(
            rules=initialized_but_last(*softmax_layers, is_averaged=True)))


@register
class CIFAR10:
    """Fine-tunes on CIFAR-10, 50,000 training and 10,000 test images of 10 classes.

        python -m lingpipe.trainer --model=image.transfer.CIFAR10 --logdir=/tmp/cifar10 \\
            --set initialize_from.directory=/tmp/imagenet

    The paper's test accuracy is 99.0 %.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return fine_tuned(10, TFDSImageInput.Params(name='cifar10'))


@register
class CIFAR100:
    """Fine-tunes on CIFAR-100, 50,000 training and 10,000 test images of 100 classes.

        python -m lingpipe.trainer --model=image.transfer.CIFAR100 --logdir=/tmp/cifar100 \\
            --set initialize_from.directory=/tmp/imagenet

    The paper's test accuracy is 91.3 %.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return fine_tuned(100, TFDSImageInput.Params(name='cifar100'))


@register
class StanfordCars:
    """Fine-tunes on Stanford Cars, 8,144 training and 8,041 test images of 196 classes.

        python -m lingpipe.trainer --model=image.transfer.StanfordCars --logdir=/tmp/cars \\
            --set initialize_from.directory=/tmp/imagenet

    The paper's test accuracy is 94.6 %. The set's server is said to be gone. If you have
    the images from elsewhere, use a folder as FGVCAircraft does.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return fine_tuned(196, TFDSImageInput.Params(name='cars196'))


@register
class OxfordPets:
    """Fine-tunes on Oxford-IIIT Pets, 3,680 training and 3,669 test images of 37 classes.

        python -m lingpipe.trainer --model=image.transfer.OxfordPets --logdir=/tmp/pets \\
            --set initialize_from.directory=/tmp/imagenet

    The paper's test accuracy is 95.9 %.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return fine_tuned(37, TFDSImageInput.Params(name='oxford_iiit_pet'))


@register
class Food101:
    """Fine-tunes on Food-101, 75,750 training and 25,250 test images of 101 classes.

        python -m lingpipe.trainer --model=image.transfer.Food101 --logdir=/tmp/food \\
            --set initialize_from.directory=/tmp/imagenet

    The paper's test accuracy is 93.0 %.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return fine_tuned(101, TFDSImageInput.Params(name='food101'), test='validation')


@register
class FGVCAircraft:
    """Fine-tunes on FGVC Aircraft, 6,667 training and 3,333 test images of 100 classes.

        python -m lingpipe.trainer --model=image.transfer.FGVCAircraft --logdir=/tmp/aircraft \\
            --set initialize_from.directory=/tmp/imagenet

    The paper's test accuracy is 92.7 %. Unpack the images to
    data/fgvc_aircraft/train/VARIANT/*.jpg and data/fgvc_aircraft/test/VARIANT/*.jpg, or say where
    they are by --set train_input.directory=... --set eval_inputs.test.directory=...
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return fine_tuned(100, FolderInput.Params(directory='data/fgvc_aircraft'))


@register
class Birdsnap:
    """Fine-tunes on Birdsnap, 47,386 training and 2,443 test images of 500 classes.

        python -m lingpipe.trainer --model=image.transfer.Birdsnap --logdir=/tmp/birdsnap \\
            --set initialize_from.directory=/tmp/imagenet

    The paper's test accuracy is 83.6 %. Unpack the images to
    data/birdsnap/train/SPECIES/*.jpg and data/birdsnap/test/SPECIES/*.jpg.
    """

    @classmethod
    def params(cls) -> Experiment.Params:
        """Returns the Params of the experiment."""
        return fine_tuned(500, FolderInput.Params(directory='data/birdsnap'))
