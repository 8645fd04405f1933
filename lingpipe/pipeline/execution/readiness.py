"""Readiness: what must be done to the variables before the next step can run.

Replicas must be equal before the first step, and after a step that failed the accumulators hold
partial sums.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from lingpipe.cluster.client import wait_for_assignments
from lingpipe.pipeline.execution.trained_replicas import TrainedReplicas
from lingpipe.pipeline.execution.variables import Variables
from lingpipe.pipeline.replication.equal_replicas import copy_first


class Readiness:
    """Remembers what the last step has left behind."""

    def __init__(self, variables: Sequence[Variables]):
        """Starts with replicas that may differ.

        Args:
          variables: [R], of which the first may come from a checkpoint.
        """
        self._variables = variables
        self._is_broken = self._is_synchronised = False

    def prepare(self, trained: TrainedReplicas, step: int, index: int) -> None:
        """Prepares the variables for the first step, and for the one after a failed step.

        Args:
          trained: the replicas.
          step: number of earlier updates.
          index: number of mini-batches accumulated before this one for the same update.

        Raises:
          ValueError: those before were lost in a step that failed.
        """
        must_wait = self._is_broken or not self._is_synchronised
        if self._is_broken:
            if index:
                raise ValueError(
                    f'mini-batch {index} of the update of step {step} comes after one that failed, '
                    f'and with it those before were lost; begin the update again with index 0.')
            for replica in trained.replicas:
                for accumulators in replica.accumulators:
                    accumulators.reset()

        if not self._is_synchronised:
            copy_first(self._variables)
            self._is_synchronised = True

        if must_wait:
            wait_for_assignments(
                variable for replica in trained.replicas for variable in
                (*replica.placed.by_key().values(),
                 *(v for one in replica.accumulators for v in one.variables())))

    def replicas_may_differ(self) -> None:
        """Tells that the variables of the first replica are set, as from a checkpoint."""
        self._is_synchronised = False

    def make_equal(self) -> None:
        """Gives all replicas the variables of the first, unless steps keep them equal."""
        if not self._is_synchronised and len(self._variables) > 1:
            copy_first(self._variables)
            wait_for_assignments(
                variable for one in self._variables for variable in one.by_key().values())

    def begin_again(self) -> None:
        """Tells that all sums are zeros, and that all ops on the variables have run.

        The first replica has come from a checkpoint again.
        """
        self._is_broken, self._is_synchronised = False, len(self._variables) == 1

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Encloses a step: if it fails, the accumulators hold partial sums."""
        self._is_broken = True
        yield
        self._is_broken = False
