"""Held devices refuse a training step the memory that is above their limit."""

from lingpipe.tools import held_devices
from tests.support.tiny_experiment import Tiny

NUM_EXAMPLES = 1 << 18   # A value of the network has 4 MB.


def test_a_plan_trains_above_its_forecast_and_not_far_below():
    params = Tiny.params()
    params.train_input.set(batch_size=NUM_EXAMPLES, num_examples=NUM_EXAMPLES)
    params.pipeline.set(num_cells=1, num_micro_batches=1, recompute='none')
    forecast = max(params.instantiate().make_plan().peak_bytes().values())

    with held_devices.held_devices(1) as devices:
        ample = held_devices.train(params, devices, 2 * forecast)
        scarce = held_devices.train(params, devices, forecast / 2)
    assert ample.fits and forecast <= ample.peak_bytes[0] < 2 * forecast
    assert not scarce.fits and ('OOM' in scarce.why_not or 'ended' in scarce.why_not)
