"""Saved state: the variables and counts of a run, which checkpoints keep for its resumption."""
from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from lingpipe import checkpoint
from lingpipe.checkpoint import Checkpointer, side_files
from lingpipe.checkpoint.facts import Metadata
from lingpipe.checkpoint.initialization import with_adapters
from lingpipe.checkpoint.peft_adapters import PeftAdapters
from lingpipe.input.fingerprint import known_num_examples
from lingpipe.layers.base import Layer
from lingpipe.layers.low_rank import adapter_facts, adapters_of
from lingpipe.pipeline.execution.program import Program
from lingpipe.training import resumption
from lingpipe.training.experiment import Experiment
from lingpipe.training.initialize_from import InitializeFrom
from lingpipe.training.step_counts import StepCounts
from lingpipe.wording.counts import are, counted

_NOT_SAVED = -1
_MOST_SHOWN = 3   # of the variables that are named in one line


@dataclasses.dataclass(frozen=True)
class Restored:
    """Where a run begins: its counts, and a line that says where they are from."""
    counts: StepCounts
    text: str


class SavedState:
    """Saves the state of a run from time to time, and restores it at the start.

    A checkpoint keeps the experiment's Params too, so that no other experiment resumes from it.
    """

    def __init__(self, checkpointer: Checkpointer, program: Program, experiment: Experiment,
                 say: Callable[[str], None], allow_change: Sequence[str] = (),
                 check_logdir: Callable[[], None] = lambda: None, may_begin: bool = True):
        """
        Args:
          checkpointer: writes and reads the checkpoints.
          program: has the variables that they hold.
          experiment: what is trained.
          say: shows a sentence about a checkpoint that could not be written.
          allow_change: what may differ from the Params with which the run began; see
            resumption.check_resumable.
          check_logdir: is called before each checkpoint; raises an error if none may be written.
          may_begin: whether a run without a checkpoint may begin with the weights of the program.
        """
        self._checkpointer, self._program, self._experiment = checkpointer, program, experiment
        self._variables = program.variables()
        self._is_in_background = experiment.params.train.checkpoint_in_background
        self._say, self._allow_change, self._check_logdir = say, allow_change, check_logdir
        self._may_begin = may_begin
        self._last_saved_step = _NOT_SAVED

    def is_saved(self, step: int) -> bool:
        """Whether the step has a checkpoint, or one is being written."""
        return step == self._last_saved_step

    def restore(self, logdir: str, held: Metadata | None = None) -> Restored:
        """Sets the variables from the newest checkpoint.

        If there is none, the weights come from where `initialize_from` says.

        Args:
          logdir: gets a report on weights that come from elsewhere.
          held: the metadata of the newest checkpoint, if the variables hold it already; otherwise
            None.

        Raises:
          ValueError: checkpoint or weights do not fit, or the problem refuses its input.
        """
        problem, source = self._experiment.task, self._experiment.train_input
        metadata = held
        if held is not None:
            self._check_metadata(held)
        else:
            self._program.replicas_may_differ()
            metadata = self._checkpointer.restore(self._variables, check=self._check_metadata)
        problem.check_facts((metadata or {}).get('task', {}), source)
        if metadata is None:
            if not self._may_begin:
                raise ValueError(f'the checkpoints in {self._checkpointer.directory} were there '
                                 'when this run began, and are gone; put them back, or start again '
                                 'to begin anew.')
            initialize_from = self._experiment.params.initialize_from
            report = self._initialize(initialize_from, logdir) if initialize_from.directory else ''
            return Restored(StepCounts(), f'a new run{report}')

        counts = _counts_of(metadata)
        self._check_position(counts.step, metadata['position'])
        self._last_saved_step = counts.step
        return Restored(
            counts, f'going on after step {counts.step}, from {self._checkpointer.directory}'
                    f'{self._text_of_other_data(metadata.get("num_examples"))}')

    def _text_of_other_data(self, num_examples: int | None) -> str:
        """Says that train_input had another number of examples before; '' if it did not."""
        now = known_num_examples(self._experiment.train_input)
        if num_examples is None or now is None or num_examples == now:
            return ''
        return (f'; WARNING: train_input has {counted(now, "example")}, and had {num_examples} '
                'until then, so from here on they come in another order, some of them again '
                'before others have come at all. If you did not mean that, put the data back and '
                'resume from this checkpoint.')

    def _initialize(self, source: InitializeFrom, logdir: str) -> str:
        """Takes weights from another run; returns what a line about the run ends with."""
        problem, train_input = self._experiment.task, self._experiment.train_input

        matrices = {f'weights/{weight.path}': list(weight.shape)
                    for _, adapter in adapters_of(problem.network) for weight in adapter.weights()}
        of_peft = PeftAdapters(source.adapters) if source.adapters else None
        if of_peft:
            of_peft.check_fits(matrices)
            _check_scales(problem.network, of_peft.scales, {key: key for key in matrices})

        def check(theirs: Metadata, taken: Mapping[str, str]) -> None:
            problem.check_taken(theirs.get('task', {}), taken, train_input)
            _check_scales(problem.network, theirs.get('adapter_scales', {}), taken)
            if of_peft and (twice := [key for key in taken if key in matrices]):
                raise ValueError(f'{source.directory} has {twice[0]}, and initialize_from.adapters='
                                 f'{of_peft.path} has it, too; leave one of the two out.')

        initialization = checkpoint.initialize(
            self._variables, source.directory, source.rules, check, source.checkpoint, matrices)
        if of_peft:
            initialization = with_adapters(initialization, self._variables, of_peft)
        self._program.placed.follow_weights(initialization.taken)

        report = initialization.text()
        path = os.path.join(logdir, 'initialization.txt')
        try:
            side_files.write_text(path, report)
        except OSError as error:
            logging.warning('%s cannot be written: %s', path, error.strerror)
        return f'; {report.splitlines()[0]}{_text_of_missing(initialization.missing)} See {path}.'

    def _check_position(self, step: int, position: int) -> None:
        """Raises ValueError if the checkpoint of a step was written after other examples."""
        examples_per_step = self._experiment.examples_per_step
        if position != step * examples_per_step:
            raise ValueError(
                f'the checkpoint of step {step} was written after {counted(position, "example")}, '
                f'but {counted(step, "step")} of {examples_per_step} {are(step)} '
                f'{step * examples_per_step}; set train_input.batch_size and '
                'task.learner.accumulate back, or choose another logdir.')

    def _check_metadata(self, metadata: Metadata) -> None:
        """Raises ValueError if a checkpoint is one of an experiment that this one is not."""
        if not metadata.get('params'):
            return   # The lingpipe that wrote the checkpoint may not have kept them.
        try:
            resumption.check_recorded(
                metadata['params'], self._experiment.params, self._allow_change)
        except ValueError as error:
            raise ValueError(f'cannot resume training in {self._checkpointer.directory}: '
                             f'{error}') from error

    def prepare(self) -> None:
        """Prepares background saving, so that this does not hold up the first step that saves."""
        if self._is_in_background:
            self._checkpointer.prepare(self._variables)

    def save(self, counts: StepCounts, is_at_end: bool = False) -> None:
        """Saves the variables, if this step is not saved; at the end, waits until it is.

        Raises:
          ValueError: another run has the logdir.
          OSError: at the end: it cannot be written. Before, that costs a line, and there will be a
            later checkpoint.
        """
        if self.is_saved(counts.step):
            return
        self.check(is_at_end=True)   # of the checkpoint before
        is_beside_steps = self._is_in_background and not is_at_end
        write = self._checkpointer.begin if is_beside_steps else self._checkpointer.save
        self._last_saved_step = counts.step
        try:
            self._check_logdir()
            earlier = [step for step in self._checkpointer.steps() if step < counts.step]
            # Whether this step's weights are good shows in the next step. If this step was finite,
            # the newest checkpoint before it is good; otherwise no one knows which of them is.
            spared = earlier if counts.num_nonfinite_in_a_row else earlier[-1:]
            write(counts.step, self._variables, self._metadata(counts), spared)
        except OSError as error:
            if is_at_end:
                raise
            self._say_unsaved(error)

    def _metadata(self, counts: StepCounts) -> dict[str, Any]:
        """What a checkpoint keeps besides the variables and the step."""
        facts = self._experiment.task.facts(self._experiment.train_input)
        return {'position': counts.step * self._experiment.examples_per_step,
                'num_nonfinite': counts.num_nonfinite,
                'num_nonfinite_in_a_row': counts.num_nonfinite_in_a_row,
                'num_updates': counts.num_updates,
                'num_examples': known_num_examples(self._experiment.train_input),
                'params': self._experiment.params.to_text(),
                **adapter_facts(self._experiment.task.network),
                **({'task': facts} if facts else {})}

    def check(self, is_at_end: bool = False, what_follows: str = 'The run goes on.') -> None:
        """Says what went wrong with the checkpoint that is being written.

        At the end, it waits for the checkpoint.
        """
        try:
            if is_at_end:
                self._checkpointer.wait()
            else:
                self._checkpointer.check()
        except OSError as error:
            self._say_unsaved(error, what_follows)

    def _say_unsaved(self, error: OSError, what_follows: str = 'The run goes on.') -> None:
        self._last_saved_step = _NOT_SAVED
        self._say(f'{error} {what_follows}')


def _counts_of(metadata: Metadata) -> StepCounts:
    """The counts that a checkpoint keeps. One of an older lingpipe has no number of updates."""
    step, num_nonfinite = metadata['step'], metadata['num_nonfinite']
    return StepCounts(step, num_nonfinite, metadata['num_nonfinite_in_a_row'],
                      metadata.get('num_updates', step - num_nonfinite))


def _check_scales(network: Layer, theirs: Mapping[str, float], taken: Mapping[str, str]) -> None:
    """Raises ValueError if a network would add another multiple of what an adapter has learned.

    Args:
      network: may have adapters.
      theirs: what `scales_of` gave in the other run; {}: it is not known.
      taken: key of each variable that is taken -> its key there.
    """
    for path, adapter in adapters_of(network):
        key = taken.get(f'weights/{adapter.own_weights["b"].path}', '')
        scale = theirs.get(key.partition('/')[2].rpartition('_adapter/')[0], adapter.scale)
        if scale != adapter.scale:
            p = adapter.params
            raise ValueError(
                f'the adapter of {path} has alpha={p.alpha:g} with rank={p.rank}, and learned what '
                f'is taken with alpha={scale * p.rank:g}; set that (task.model.adapters.alpha of a '
                'LanguageModel or a Transformer).')


def _text_of_missing(missing: Mapping[str, str]) -> str:
    """Says which variables keep their first values, though a rule names others; '' if none do."""
    if not missing:
        return ''
    first = '; '.join(f'{key}: {why}' for key, why in list(missing.items())[:_MOST_SHOWN])
    more = f'; and {len(missing) - _MOST_SHOWN} more' if len(missing) > _MOST_SHOWN else ''
    return (f' WARNING: {len(missing)} that a rule names are not there and begin as in a run from '
            f'scratch ({first}{more}).')
