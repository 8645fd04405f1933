"""largest_model finds the largest size that fits, and prints it beside the paper's."""

import json

import pytest

from lingpipe.tools import largest_model


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
    params = largest_model.families()['transformer'].experiment(1, 2)
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
