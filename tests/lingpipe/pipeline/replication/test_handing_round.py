"""Handing round: what one replica updates reaches the others; see test_sharded_variables.py too."""
import numpy as np

from tests.lingpipe.pipeline.replication.test_sharded_variables import (
    batch_of,
    learner_of,
    program_of,
)


def test_each_replica_updates_its_weights_and_gets_those_of_the_others():
    program = program_of(learner_of(), shard_slots=True)
    before = {path: weight.numpy() for path, weight in program.weights.items()}
    program.train_step(batch_of(0), 0)
    assert not program.replicas[0].updated & program.replicas[1].updated
    for path, weight in program.replicas[1].weights.items():
        assert (weight.numpy() != before[path]).any()
        np.testing.assert_array_equal(weight, program.weights[path])


def test_replicas_that_keep_all_slots_send_no_weight_and_one_replica_has_all():
    for program, sent in ((program_of(learner_of()), 0),
                          (program_of(learner_of(), shard_slots=True), 3 * (4 * 4 + 4) * 4)):
        assert program.sent_bytes().updated_weights == sent
    alone = program_of(learner_of(), shard_slots=True, num_replicas=1)
    assert alone.placed.updated == alone.weights.keys()
