"""Placed network: what evaluations share with the training of a network, and never copy."""
from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lingpipe.pipeline.execution.evaluator import Evaluator
from tests.lingpipe.pipeline.execution.test_evaluator import (
    B,
    batch_of,
    placed_network,
    spec_of,
)


def test_an_evaluator_sees_what_is_assigned_to_a_weight_later():
    of, batch = placed_network(), batch_of()
    evaluator = Evaluator(of, spec_of(batch), fetch=['x'])
    weights = of.variables.weights
    weights['model/out/w'].assign(np.zeros([3, 3]))
    weights['model/out/b'].assign([1., 2., 3.])
    _, fetched = evaluator.step(batch)
    np.testing.assert_array_equal(fetched['x'], [[1., 2., 3.]] * B)


def test_its_parts_stay_those_it_was_made_of():
    with pytest.raises(dataclasses.FrozenInstanceError):
        placed_network().seed = 1
