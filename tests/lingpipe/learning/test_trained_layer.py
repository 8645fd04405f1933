"""TrainedLayer: layers whose weights are alike are of one kind."""
import tensorflow as tf

from lingpipe.learning.trained_layer import TrainedLayer


def test_the_kind_says_shape_dtype_and_decay_of_each_weight():
    def kind_of(shape, dtype, decays):
        weight = tf.Variable(tf.zeros(shape, dtype))
        return TrainedLayer({'path': weight}, lambda path, rank: decays).kind

    kinds = [kind_of([2], tf.float32, True), kind_of([3], tf.float32, True),
             kind_of([2], tf.bfloat16, True), kind_of([2], tf.float32, False)]
    assert len(set(kinds)) == 4 and kinds[0] == kind_of([2], tf.float32, True)
