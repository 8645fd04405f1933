"""A subject: the limit of its devices, and which of them a run takes."""
import dataclasses

from lingpipe.pipeline.planning.hardware import Hardware
from tests.support.planned_chains import CHAIN, made
from tests.support.random_candidates import GIGA, subject_of


def test_the_limit_of_the_params_goes_before_that_of_the_hardware():
    hardware = Hardware('small', flops_per_s=GIGA, device_bytes=1e6)
    subject = subject_of(made(*CHAIN), hardware=hardware)
    assert subject.limit == 1e6
    params = subject.params.copy().set(device_bytes=2e6)
    assert dataclasses.replace(subject, params=params).limit == 2e6


def test_a_run_takes_a_device_for_each_cell_of_each_replica_if_there_are_so_many():
    subject = subject_of(made(*CHAIN), num_devices=4, num_cells=3)
    assert subject.devices_for(subject.params) == subject.devices[:3]
    params = subject.params.copy().set(num_replicas=2, num_cells=2)
    assert subject.devices_for(params) == subject.devices
