"""TensorFlow's graph optimizer: each run of a process has its own setting of it."""
from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.api.run import Run
from lingpipe.api.start import start
from tests.support.tiny_experiment import Dense, Tiny


class Scaled(Dense):
    """Multiplies by two constants, of which the graph optimizer makes one."""

    def fprop(self, theta: Any, ctx: Any, x: tf.Tensor) -> tf.Tensor:
        return super().fprop(theta, ctx, tf.constant(1 / 3.) * (tf.constant(2.9) * x))


def _start(logdir: pathlib.Path, is_on: bool) -> Run:
    params = Tiny.params()
    dense = params.task.model.layers[0]
    params.task.model.layers = (Scaled.Params(name=dense.name, dim=dense.dim),
                                *params.task.model.layers[1:])
    return start(params, logdir=logdir, use_graph_optimizer=is_on)


def _results(run: Run) -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).normal(size=[8, 4]).astype(np.float32)
    run.train(steps=2)
    return {**run.predict(x), **run.weights, 'loss': np.array(run.evaluate()['test']['loss'])}


def test_a_run_has_the_bits_that_it_has_alone(tmp_path: pathlib.Path) -> None:
    """The run that was started last set it for all, and changed what others traced from then on."""
    with _start(tmp_path / 'alone', False) as run:
        alone = _results(run)
    with _start(tmp_path / 'off', False) as off, _start(tmp_path / 'on', True) as on:
        assert len(off.weights) == len(on.weights)   # Both make their variables, and trace nothing.
        beside, with_optimizer = _results(off), _results(on)
    for name, value in alone.items():
        np.testing.assert_array_equal(beside[name], value, err_msg=name)
    assert any((with_optimizer[name] != value).any() for name, value in alone.items())
