"""OpenRun: what every use of a run shares: the logdir, the devices, and the traced network."""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from lingpipe.api.turns import Turns
from lingpipe.api.views import Weights
from lingpipe.checkpoint import side_files
from lingpipe.checkpoint.chosen_step import NEWEST, check_name
from lingpipe.checkpoint.facts import Metadata
from lingpipe.cluster import StartedTooEarlyError
from lingpipe.commands import device_setup, recovery
from lingpipe.commands.device_setup import Placement
from lingpipe.commands.recovery import Recovery
from lingpipe.commands.run_options import RunOptions
from lingpipe.pipeline.execution.renewal import NotRenewableError
from lingpipe.pipeline.execution.variables import Contents
from lingpipe.process import tensorflow_settings
from lingpipe.process.stop_signals import StopSignals
from lingpipe.training import kept_order, logdir, logdir_lock, newest_checkpoint
from lingpipe.training.experiment import Experiment
from lingpipe.training.logdir_lock import Lock
from lingpipe.training.lost_checkpoints import warn_of_lost_checkpoints
from lingpipe.training.site import Site
from lingpipe.training.traced_network import TracedNetwork, make_traced_network

T = TypeVar('T')


@dataclasses.dataclass(frozen=True, eq=False)
class WeightsHeld:
    """What the variables of a network hold, until another object says that they hold other weights.

    Attributes:
      are_initial: whether the weights are as they were made, without a checkpoint.
      facts: of the checkpoint that they are from; None of initial weights and during training.
    """
    facts: Metadata | None = None
    are_initial: bool = False


class OpenRun:
    """A run that holds its logdir. Devices are found, and the network is traced, when first needed.

    Attributes:
      params: the experiment's, frozen.
      logdir: where all files are.
    """

    def __init__(self, params: Experiment.Params, options: RunOptions, is_writer: bool = True,
                 is_trainer: bool = False):
        """
        Args:
          params: the experiment's, frozen.
          options: where it runs.
          is_writer: whether it may train. If not, the logdir may be that of a run elsewhere.
          is_trainer: whether this process is the trainer, which starts itself again if a worker is
            lost, and makes an exit code of a signal.

        Raises:
          ValueError: there is no logdir, or a run of another experiment is there.
          OSError: another run is there, or the logdir cannot be written.
        """
        if not options.logdir:
            raise ValueError('--logdir is missing; name a directory for checkpoints and summaries.')
        self.params, self.logdir = params, options.logdir
        self._options, self._is_writer, self._is_trainer = options, is_writer, is_trainer
        self._log_path = os.path.join(self.logdir, 'train.log')
        self._lock: Lock | None = None
        self._placement: Placement | None = None       # found when it is first needed
        self._network: TracedNetwork | None = None     # traced when needed; dropped by a failure
        self._left: TracedNetwork | None = None        # that of a use that lost a worker
        self._weights_held = WeightsHeld()
        self._is_closed = False
        self._turns = Turns(self.logdir)
        self._held = contextlib.ExitStack()
        if is_writer:
            with side_files.warnings_into(self._log_path), contextlib.ExitStack() as held:
                self._lock = held.enter_context(logdir_lock.hold(self.logdir))
                if newest_checkpoint.newest_step(self.logdir) is None:
                    if not recovery.has_started_again():
                        warn_of_lost_checkpoints(self.logdir)
                    logdir.claim(self.logdir, params)
                else:   # Changes are recorded once the run is resumed with them.
                    self.params = kept_order.with_order_of_run(params, self.logdir)
                    logdir.check(self.logdir, self.params, options.allow_change)
                self._held = held.pop_all()

    @functools.cached_property
    def experiment(self) -> Experiment:
        """The problem and the inputs, made of the Params."""
        experiment: Experiment = self.params.instantiate()
        return experiment

    def claim(self, params: Experiment.Params) -> None:
        """Records the Params with which a run has begun or was resumed."""
        logdir.claim(self.logdir, params, self._options.allow_change)

    def keep_logdir(self, params: Experiment.Params) -> None:
        """Takes the logdir again if somebody has removed, moved or replaced it.

        Raises:
          ValueError: another run, or one of another experiment, is there by now.
        """
        if self._lock and self._lock.is_lost():
            self._lock.take_again()
            self.claim(params)

    def at_site(self, body: Callable[[Site], T], stop: StopSignals | None = None,
                may_renew: bool = False) -> T:
        """Returns what `body` makes of the devices, which are found first if need be.

        Args:
          body: tells the site's watchdog what it does.
          stop: what ends the waiting for workers; default: signals do what they do.
          may_renew: whether `body` may be called again in this process if a worker is lost. It then
            begins with the newest checkpoint.

        Raises:
          ValueError: the run is closed, another thread trains or watches with it, or the
            devices are wrong.
          OSError: a worker is lost, and this process is not the trainer.
        """
        with self._turns.use():
            tensorflow_settings.set_graph_optimizer(self.params.pipeline.use_graph_optimizer)
            return self._at_site(body, stop, may_renew)

    def _at_site(self, body: Callable[[Site], T], stop: StopSignals | None = None,
                 may_renew: bool = False) -> T:
        """Does what `at_site` does, without a turn: for a body that leaves the network alone."""
        if self._is_closed:
            raise ValueError(f'this run in {self.logdir} is closed; start another.')
        recovery_of_run = Recovery(self._options, stop, self._log_path if stop else '', self._lock,
                                   starts_again=self._is_trainer)
        return recovery_of_run.run(
            self.params, self._placed, body, self._placed_again if may_renew else None)

    def restored(self, site: Site, checkpoint: str | int | None = None
                 ) -> tuple[TracedNetwork, Metadata]:
        """The network with the weights of a checkpoint, and the checkpoint's metadata.

        Args:
          site: where the cells are.
          checkpoint: 'newest', 'best' or a step; default: as --checkpoint says, or else the newest.

        Raises:
          ValueError: there is no such checkpoint, or it does not fit.
        """
        name = self._options.checkpoint if checkpoint is None else str(checkpoint)
        check_name(name)
        newest_checkpoint.check_has_checkpoint(self.logdir)
        network = self._traced(site)
        return network, self._restore(network, name)

    def _restore(self, network: TracedNetwork, name: str) -> Metadata:
        """Gives the network the weights of a checkpoint, unless it has them; returns its metadata.

        A checkpoint of a billion weights takes seconds to read, and a prompt less to answer.
        """
        facts = newest_checkpoint.facts_of(self.logdir, name)
        if held := self.metadata_held(facts):
            return held
        self._turns.check_may_restore()
        self._weights_held = WeightsHeld()   # It may fail on the way.
        metadata = newest_checkpoint.restore(
            network.program, self.experiment, self.logdir, name)
        # If the data of the newest are damaged, the weights are those of another step.
        is_of_facts = facts is not None and facts['step'] == metadata['step']
        self._weights_held = WeightsHeld(facts if is_of_facts else None)
        return metadata

    def metadata_held(self, facts: Metadata | None) -> Metadata | None:
        """The metadata of the checkpoint with these facts; None if the network has other weights.

        Args:
          facts: as newest_checkpoint.facts_of returns them.
        """
        if facts is None or facts != self._weights_held.facts:
            return None
        return {**facts['metadata'], 'step': facts['step']}

    def newest_weights(self, site: Site) -> Weights:
        """The weights of the newest checkpoint, or else the initial ones."""
        network = self._traced(site)
        # The first checkpoint may come while the network is made, which then has no weights yet.
        if (newest_checkpoint.newest_step(self.logdir) is not None
                or not self._weights_held.are_initial):
            network, _ = self.restored(site, NEWEST)
        return Weights(network.program.weights, self.weights_check())

    def weights_check(self) -> Callable[[], bool]:
        """What tells whether the run still has the weights that it has now."""
        held = self._weights_held
        return lambda: self._weights_held is held

    def _placed(self) -> Placement:
        if self._placement is None:
            try:
                self._placement = device_setup.place(
                    self.params, self._options, is_again=recovery.has_started_again(),
                    make_experiment=lambda: self.experiment)
            except StartedTooEarlyError as error:
                if self._is_trainer or self._options.devices:
                    raise   # The trainer starts itself again.
                with (side_files.warnings_into(self._log_path) if self._is_writer
                      else contextlib.nullcontext()):
                    self._placement = device_setup.place_late(self.params, error)
        return self._placement

    def _placed_again(self) -> Placement:
        """Connects to the same workers again, and renews the network that the last use has left.

        Raises:
          NotRenewableError: this process cannot go on with it.
          OSError: a worker does not answer in time.
        """
        network, self._left = self._left, None
        placement, step = self._placement, newest_checkpoint.newest_step(self.logdir)
        if (network is None or placement is None or placement.connection is None or not step
                or not device_setup.can_place_again(self.params, placement)):
            raise NotRenewableError
        placement.connection.connect_again(self.params.train.worker_timeout_s)
        network.program.renew()
        self._network = network
        return placement

    def _traced(self, site: Site) -> TracedNetwork:
        """The network, whose weights are the initial ones if there is no checkpoint."""
        if not self._weights_held.are_initial and newest_checkpoint.newest_step(
                self.logdir) is None:
            self._network = None   # Somebody has removed the checkpoints.
        if self._network is None:
            are_initial = newest_checkpoint.newest_whole_step(self.logdir) is None
            self._network = make_traced_network(
                self.experiment, self.logdir, site, Contents(self._is_writer, are_initial))
            self._weights_held = WeightsHeld(are_initial=are_initial)
        return self._network

    def close(self) -> None:
        """Lets go of logdir, workers and the network's memory. A closed run does nothing more.

        Raises:
          ValueError: another thread trains or watches with it, and still needs the logdir.
        """
        with self._turns.use():
            self._is_closed = True
            self._network = None
            if self._placement and self._placement.connection:
                self._placement.connection.let_go()
            self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
