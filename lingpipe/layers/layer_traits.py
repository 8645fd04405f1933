"""LayerTraits: what a layer says about itself, by which plans that do not fit are refused.

The defaults suit most layers; a layer that is different overrides them.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class LayerTraits:
    """The traits of a layer."""

    # Whether the result for an example depends on the other examples of the mini-batch, as in a
    # contrastive loss. A plan with more than one micro-batch or replica is then refused.
    needs_whole_batch = False

    # Whether it does so in training alone, as MixUp does. Otherwise no copies of examples fill up a
    # micro-batch of predictions.
    mixes_in_training_only = False

    # What a person can do if it does so in training alone, and predictions are refused.
    training_only_remedy = 'set mixes_in_training_only = True in its class'

    # What a person can do about that besides leaving the mini-batch whole.
    whole_batch_remedy = 'use a loss that is a sum over examples'

    # Whether the copies of the last example, of weight 0, that fill up the last mini-batch of an
    # evaluation would change a loss or metric, as they change the mean of a penalty over the
    # examples. That mini-batch is then evaluated without them, at its own size, as it is where a
    # layer says needs_whole_batch.
    counts_copies = False

    # Names of own weights whose next value depends on the examples in a way that cannot be merged
    # over the parts of a mini-batch. A plan with more than one part, or an update from more than
    # one mini-batch, is then refused.
    unmerged_state: Sequence[str] = ()

    # Whether optimizers get a gradient that TensorFlow makes as tf.IndexedSlices as it is. Several
    # of its rows may belong to one row of the weight. Otherwise they get the sums of such rows.
    keeps_gradient_rows = False

    # Arguments of fprop that change the outputs of a network in training alone, as the labels that
    # Mixup keeps with the images. A value of the mini-batch that is read as nothing else need not
    # be given to predictions and exports.
    training_inputs: Sequence[str] = ()

    # Whether fprop can read strings. A network that gives them to a layer that cannot is refused.
    takes_text = False

    # Whether two layers of this class whose Params are equal, but for the name, compute the same
    # function of theta, inputs and Context.seed(path of the layer, name), and emit the same under
    # their paths, so that tracing one of them is enough. It is not inherited: a subclass may do
    # something else, and says so itself.
    is_traced_once = False

    # What becomes of the masks of what the layer reads; see layers/masks.py. '' stands for 'passes'
    # if the layer is positionwise, and otherwise for 'ends'.
    mask_rule = ''

    def id_ranges(self, **specs: Any) -> dict[str, int]:
        """Argument of fprop -> n, if its values must be whole numbers from 0 to n - 1.

        Values where the layer's argument `weight` is 0 do not count. What comes straight from the
        mini-batch, or through layers without weights, is checked before a run starts and named when
        a step fails (pipeline/execution/bad_ids.py).

        Args:
          specs: those of `cost`.
        """
        return {}
