"""Classes that do not fit are refused where they are counted: in an input, and in a checkpoint."""
from __future__ import annotations

import pytest

from lingpipe.checkpoint import Checkpointer, initialize
from lingpipe.tasks.image.classifier import initialized_but_last
from lingpipe.training import registry


def digits(num_classes: int):
    params = registry.get('image.digits.Dense')
    params.override('task.model.layers[0].layers[3].units', str(num_classes))
    return params


def test_an_input_of_more_classes_than_the_network_has_is_refused():
    with pytest.raises(ValueError, match=r'DigitsInput has 10 classes, and model/dense/logits has '
                                         r'9 outputs; set num_classes of the network to 10, or '
                                         r'choose fewer by subset\.classes of the input\.'):
        digits(9).instantiate().make_program()


def test_a_checkpoint_of_other_classes_names_the_layer_and_transfer_leaves_it_out(tmp_path):
    ours, theirs = (digits(n).instantiate().make_program().variables() for n in (11, 10))
    saved = Checkpointer(str(tmp_path))
    saved.save(1, theirs)
    with pytest.raises(ValueError, match=r'does not fit: weights/model/dense/logits/b is '
                                         r'float32\[10\] in it and float32\[11\] here'):
        saved.restore(ours)

    for variable in theirs.values():
        variable.assign(variable + 1)
    saved.save(2, theirs)
    # The network has no BatchNorm, so the rule for its averages is left out.
    report = initialize(ours, str(tmp_path), initialized_but_last('model/dense/logits')[::2])
    assert report.not_taken['weights/model/dense/logits/b'] == 'by a rule'
    assert report.taken['weights/model/dense/hidden_1/w'] == 'weights/model/dense/hidden_1/w'
    assert (ours['weights/model/dense/hidden_1/w'].numpy()
            == theirs['weights/model/dense/hidden_1/w'].numpy()).all()
