"""largest_model finds the largest size that fits, and prints it beside the paper's."""

import json

import pytest

from lingpipe.tools import held_devices, largest_model, model_families


@pytest.mark.slow
def test_the_row_of_the_largest_transformer_keeps_the_limit(capsys):
    largest_model.main(['--family=transformer', '--devices=1', '--device_gb=6', '--json'])
    found = json.loads(capsys.readouterr().out)
    naive, pipeline = found['rows']
    assert (naive['column'], pipeline['column']) == ('Naive-1', 'Pipeline-1')
    assert naive['fullest_device_gb'] <= 6 and pipeline['fullest_device_gb'] <= 6
    assert pipeline['parameters'] > naive['parameters']


def test_what_is_refused_without_a_search_fits_no_plan():
    """The bytes of all that trains are what two cells of Transformer-1 hold throughout a step."""
    params = model_families.families()['transformer'].experiment(1, 2)
    params.pipeline.num_cells = 2
    experiment = params.instantiate()
    trained_bytes = largest_model.trained_bytes(experiment)
    fixed = sum(footprint.fixed for footprint in experiment.make_plan().forecast.footprints)
    assert trained_bytes == fixed


def test_a_device_that_nothing_fits_has_no_model(capsys):
    largest_model.main(['--family=transformer', '--devices=1', '--device_gb=0.1'])
    assert 'none fits' in capsys.readouterr().out


@pytest.mark.parametrize('largest', [0, 1, 2, 7, 39, 40, 41, 64, 100])
def test_the_largest_size_is_found_near_any_guess(largest):
    tried = []

    def fits(size):
        tried.append(size)
        return size <= largest

    found = largest_model.largest_near(fits, 40)
    assert found == largest
    assert len(tried) == len(set(tried)) and len(tried) < 16


def test_a_size_that_does_not_train_with_full_cuts_is_tried_with_cuts_for_less(monkeypatch, capsys):
    column = largest_model.Column(
        model_families.small_families()['transformer'], 2, 5e7, 'layer')
    shares = []

    def train(params, devices, device_bytes):
        """Trains what is cut for less than 0.99 of the limit."""
        share = (params.pipeline.device_bytes or 0) / device_bytes
        shares.append(round(share, 2))
        fits = 0 < share < 0.99
        return held_devices.Trial(fits, '' if fits else 'too large', (4.8e7, 4e7) if fits else ())

    monkeypatch.setattr(held_devices, 'train', train)
    row = largest_model.measured_row(column, [])
    assert shares[:2] == [1., 0.97]
    assert 0 < row['measured_parameters'] <= row['parameters']
    assert row['measured_peak_gb'] == 0.048 and row['forecast_of_measured_gb'] <= 0.97 * 0.05
    assert 'cut for 97% of the limit: trains' in capsys.readouterr().err
