"""Held devices refuse a training step the memory that is above their limit."""

import pytest

from lingpipe.learning import optimizers
from lingpipe.tools import held_devices
from tests.support.tiny_experiment import Tiny

NUM_EXAMPLES = 1 << 18   # A value of the network has 4 MB.
DIM = 1024               # A weight of it has 4 MB, too.


@pytest.fixture(scope='module')
def devices():
    """One held device; its worker begins with empty memory for each controller."""
    with held_devices.held_devices(1) as found:
        yield found


def forecast_bytes(params):
    return max(params.instantiate().make_plan().peak_bytes().values())


def tiny(**fields):
    params = Tiny.params()
    params.train_input.set(**fields)
    params.pipeline.set(num_cells=1, num_micro_batches=1, recompute='none')
    return params


def with_large_weights(optimizer):
    """Needs most while a weight is updated."""
    params = tiny(dim=DIM, batch_size=1, num_examples=1)
    params.task.learner.optimizer = optimizer
    for layer in params.task.model.layers[:-1]:
        layer.dim = DIM
    return params


def test_a_plan_trains_above_its_forecast_and_not_far_below(devices):
    params = tiny(batch_size=NUM_EXAMPLES, num_examples=NUM_EXAMPLES)
    forecast = forecast_bytes(params)
    ample = held_devices.train(params, devices, 2 * forecast)
    scarce = held_devices.train(params, devices, forecast / 2)
    assert ample.fits and forecast <= ample.peak_bytes[0] < 2 * forecast
    assert not scarce.fits and ('OOM' in scarce.why_not or 'ended' in scarce.why_not)


@pytest.mark.parametrize(('optimizer', 'num_temporaries'), [
    (optimizers.Adadelta.Params(), 3),
    (optimizers.RMSProp.Params(momentum=0.9), 1),
], ids=['by Keras', 'in one op'])
def test_an_update_holds_what_is_forecast(devices, optimizer, num_temporaries):
    params = with_large_weights(optimizer)
    without_temporaries = 4 * 4 * DIM ** 2 * (1 + 1 + 2 + 1)
    forecast = forecast_bytes(params)
    assert without_temporaries + num_temporaries * 4 * DIM ** 2 == forecast
    updated = held_devices.train(params, devices, 2 * forecast)
    assert updated.fits and 0.98 < updated.peak_bytes[0] / forecast < 1.02
