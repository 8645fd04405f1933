"""Mixup (Zhang et al., 2017, arXiv:1710.09412): images are mixed in pairs, and so are their losses.

    layers        reads                                    writes
    normalize     image                                    image
    mixup         image, label, weight                     image, other_label, share
    network       image                                    x
    loss          x, label, weight, other_label, share     (nothing)

The loss is CrossEntropyLoss.Params(reads={'labels': 'label', **MIXUP_READS}). Images are mixed on
the device, within a micro-batch, since an input makes one example at a time.
"""
from __future__ import annotations

import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import dims

MIXUP_READS = {'other_labels': 'other_label', 'share': 'share'}


class Mixup(Layer):
    """image = share * image + (1 - share) * the image before it in the micro-batch.

    share is drawn from Beta(alpha, alpha) for each example.

    Floats image [b, h, w, C], label [b], weight [b] -> image, other_label [b], float32 share [b].
    An example whose partner has weight 0, as padding has, stays as it is. In an evaluation all of
    them do, with share 1.
    """

    class Params(Layer.Params):
        """The distribution of shares."""
        writes: str | dict[str, str] = field(
            {'image': 'image', 'other_label': 'other_label', 'share': 'share'})
        # Below it, float32 has no numbers for many draws, which then give shares of 0.5.
        alpha: float = field(0.2, 'Parameter of the Beta distribution of shares: if it is small, '
                                  'they are near 0 or 1; at 1 all are as likely.', least=0.05)

    training_inputs = ('label', 'weight')

    params: Params

    def fprop(self, theta: NestedMap, ctx: Context, image: tf.Tensor, label: tf.Tensor,
              weight: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns image, other_label and share.

        Raises:
          ValueError: the image is not of floats, or is alone in its micro-batch in training.
        """
        num_examples = dims(image)[0]
        if not image.dtype.is_floating:
            raise ValueError(f'{self.path}: image is {image.dtype.name}, and only floats can be '
                             'mixed; put Normalize before it.')
        if not ctx.training:
            return {'image': image, 'other_label': label, 'share': tf.ones([num_examples])}
        if image.shape[0] == 1:
            raise ValueError(f'{self.path}: a micro-batch has one example, which has none to be '
                             'mixed with; use fewer micro-batches.')

        # Of two gamma variables, the share of one in their sum has a beta distribution.
        gammas = tf.random.stateless_gamma(
            [2, num_examples], ctx.seed(self.path), self.params.alpha)
        own, other = tf.unstack(gammas)
        share = 1 - tf.math.divide_no_nan(other, own + other)  # [b]
        share = tf.where(tf.roll(weight, 1, 0) == 0, 1., share)
        factor = tf.cast(tf.reshape(share, [-1, 1, 1, 1]), image.dtype)
        partner = tf.where(factor == 1, image, tf.roll(image, 1, 0))   # Padding may be nan.
        mixed = factor * image + (1 - factor) * partner
        return {'image': mixed, 'other_label': tf.roll(label, 1, 0), 'share': share}
