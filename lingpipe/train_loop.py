"""Train loop: steps, with checkpoints, evaluations and all that a person sees of them.

Killed at any moment and started again, it ends with the bits of a run that was not interrupted: a checkpoint holds weights, slots,
averages and the step, from which all else follows. The next example is number step * examples_per_step of the input; seeds follow
from (experiment seed, step, micro-batch, layer). A step whose loss or gradient is not finite updates nothing but counts as a step,
so that this stays true.

    LOGDIR/params.txt            the Params (written by the trainer)
    LOGDIR/checkpoints/          see checkpoint/
    LOGDIR/tensorboard/          train, and eval_NAME for every eval input
    LOGDIR/timeline/             a picture and a trace of a measured step
    LOGDIR/pictures/             what the task draws of the newest evaluation of each eval input
    LOGDIR/evaluations.jsonl, train.log, initialization.txt
"""
from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from lingpipe import checkpoint
from lingpipe.checkpoint import Checkpointer
from lingpipe.cluster.watchdog import Watchdog
from lingpipe.evaluate import EvaluationLog, Evaluations, Metrics, Picture, metrics_text
from lingpipe.hyperparams import Configurable, field
from lingpipe.input import InputMeter
from lingpipe.overview import overview
from lingpipe.progress import Progress
from lingpipe.stop_signals import StopSignals
from lingpipe.summaries import Summaries
from lingpipe.timeline_report import TimelineReport, write_report

if TYPE_CHECKING:
    from lingpipe.experiment import Experiment

NUM_TIMED_STEPS = 3   # the first of them warm up the timed graph; the last is shown


class NonFiniteError(ArithmeticError):
    """Too many steps in a row had a loss or gradient that is not finite."""


@dataclasses.dataclass
class Outcome:
    """How a training ended.

    Attributes:
      step: number of steps made, by earlier runs too.
      signal: name of the signal that stopped it, or ''.
      metrics: of the evaluation at the end, by eval input.
      best: (step, value) of the best checkpoint, if any.
      timeline: of the measured step, if asked for.
      pictures: of the evaluation at the end, if it was made now, by eval input.
    """
    step: int
    signal: str = ''
    metrics: dict[str, Metrics] = dataclasses.field(default_factory=dict)
    best: tuple[int, float] | None = None
    timeline: TimelineReport | None = None
    pictures: dict[str, Picture] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class _State:
    """What a checkpoint holds besides variables."""
    step: int = 0
    num_nonfinite: int = 0
    num_nonfinite_in_a_row: int = 0


class TrainLoop(Configurable):
    """Trains an experiment in a logdir. Made once for each run."""

    class Params(Configurable.Params):
        """Lengths and intervals, in steps unless the name says otherwise."""
        num_steps: int = field(1000, 'Updates, those of earlier runs in the logdir included.')
        checkpoint_every_steps: int = field(1000, 'Steps between two checkpoints; there is one at the end anyway.')
        keep: int = field(3, 'How many of the newest checkpoints stay; the best stays besides.')
        eval_every_steps: int = field(0, 'Steps between two evaluations; 0: only at the end.')
        summary_every_steps: int = field(100, 'Steps between two summaries for TensorBoard.')
        log_every_s: float = field(10.0, 'Seconds between two lines of progress.')
        check_replicas_every_steps: int = field(0, 'Steps between two comparisons of all replicas, bit by bit; 0: none.')
        timeline_step: int | None = field(None, 'The step whose tasks are timed and drawn; none: no step.')
        checkpoint_in_background: bool = field(True, 'Steps go on while a checkpoint is written, from copies that take the memory of '
                                                     'weights and slots once more until then.')
        step_timeout_s: float = field(600.0, 'Seconds that a step on workers may take (the first, which is traced: as long as all workers '
                                             'answer) before they count as lost.')
        worker_timeout_s: float = field(300.0, 'Seconds to wait for workers that do not answer, at the start and after one was lost.')
        best_input: str = field('', 'The eval input whose best_metric says which checkpoint is best; empty: the first by name.')

        def check(self) -> None:
            """Raises ValueError for a length or an interval that is too small."""
            for name, least in (('num_steps', 0), ('checkpoint_every_steps', 1), ('keep', 1), ('eval_every_steps', 0),
                                ('summary_every_steps', 1), ('log_every_s', 0), ('timeline_step', 1), ('step_timeout_s', 0.1),
                                ('worker_timeout_s', 0)):
                value = getattr(self, name)
                if value is not None and not value >= least:
                    raise ValueError(f'{name}={value}; use {least} or more')

    params: Params

    def __init__(self, params: Any, experiment: Experiment, logdir: str, *, has_evaluation: bool = True, has_timeline: bool = False,
                 out: IO[str] | None = None, watchdog: Watchdog | None = None):
        """
        Args:
          params: lengths and intervals.
          experiment: what is trained.
          logdir: where all files go.
          has_evaluation: whether the eval inputs are used.
          has_timeline: whether to time a step soon after the start, if timeline_step does not name one.
          out: where lines and tables are shown; default: sys.stdout.
          watchdog: is told of every step, if there are workers.
        """
        super().__init__(params)
        self._experiment, self._logdir, self._out, self._watchdog = experiment, logdir, out, watchdog
        inputs = experiment.eval_inputs if has_evaluation else {}
        self._best_input = self.params.best_input or min(inputs, default='')
        if self._best_input not in inputs and inputs:
            raise ValueError(f'train.best_input={self._best_input!r} is no eval input; there are {", ".join(sorted(inputs))}.')
        self._timeline_step, self._has_timeline = self.params.timeline_step, has_timeline
        self._state = _State()
        self._outcome = Outcome(0)
        os.makedirs(logdir, exist_ok=True)
        self._checkpointer = Checkpointer(os.path.join(logdir, 'checkpoints'), self.params.keep)
        self._log = EvaluationLog(logdir)
        self._summaries = {name: Summaries(os.path.join(logdir, 'tensorboard', name)) for name in ['train', *(f'eval_{n}' for n in inputs)]}
        self._program = experiment.make_program()
        self._evaluations = Evaluations(self._program, inputs, experiment.task, logdir)
        self._facts = experiment.task.facts(experiment.train_input)
        self._last_saved = -1
        self._num_calls = 0   # of the step, in this run
        self._has_warned = False

    @property
    def program(self) -> Any:
        """The Program, for tests and tools."""
        return self._program

    def run(self) -> Outcome:
        """Trains until num_steps or a signal.

        Raises:
          NonFiniteError: learner.max_nonfinite_steps in a row.
          ValueError: the checkpoints do not fit, or the input ended.
        """
        p = self.params
        with StopSignals() as stop:
            started = self._restore()
            state = self._state
            if self._has_timeline and self._timeline_step is None:
                self._timeline_step = min(state.step + NUM_TIMED_STEPS + 2, p.num_steps)
            with Progress(state.step, p.num_steps, self._experiment.examples_per_step, os.path.join(self._logdir, 'train.log'),
                          p.log_every_s, self._out) as self._progress:
                self._progress.message(overview(self._program.plan, self._experiment.params.train_input.batch_size))
                self._progress.message(started)
                self._summaries['train'].text('params', self._experiment.params.to_text())
                if state.step and self._is_evaluated_at(state.step):
                    self._evaluate(stop)
                try:
                    self._train(stop)
                except (ValueError, ArithmeticError):
                    self._check_saved(is_at_end=True)
                    raise
                self._finish(stop)
        return self._outcome

    def _train(self, stop: StopSignals) -> None:
        p, state = self.params, self._state
        if state.step >= p.num_steps:
            return
        batches = InputMeter(self._experiment.train_input.batches(self._position))
        while state.step < p.num_steps and not stop.name:
            start_s = time.perf_counter()
            self._begin(f'step {state.step + 1}', is_bounded=self._num_calls > NUM_TIMED_STEPS and not self._is_timed(state.step + 1))
            results = self._step(iter(batches))
            self._num_calls += 1
            self._check_saved()
            state.step += 1
            self._check_finite(results)
            if p.check_replicas_every_steps and state.step % p.check_replicas_every_steps == 0:
                self._program.check_replicas()
            self._progress.update(state.step, time.perf_counter() - start_s, results)
            self._summarize(results, batches)
            is_evaluated = self._is_evaluated_at(state.step)
            if state.step % p.checkpoint_every_steps == 0 or is_evaluated:
                self._save()
            if is_evaluated:
                self._evaluate(stop)

    def _begin(self, what: str, is_bounded: bool = False) -> None:
        if self._watchdog:
            self._watchdog.begin(what, is_bounded)

    def _is_timed(self, number: int) -> bool:
        shown = self._timeline_step or 0
        return shown - NUM_TIMED_STEPS < number <= shown

    def _step(self, batches: Iterator[Any]) -> dict[str, float]:
        """One update."""
        state, program, num_batches = self._state, self._program, self._experiment.params.task.learner.accumulate
        for index in range(num_batches):
            try:
                batch = next(batches)
            except StopIteration:
                self._save(is_at_end=True)
                raise ValueError(f'train_input ends in step {state.step + 1} of {self.params.num_steps}; let it repeat '
                                 f'(train_input.num_epochs=none), or lower train.num_steps.') from None
            if state.step == index == 0:
                self._summaries['train'].images(0, self._experiment.task.images(batch))
            if index < num_batches - 1:
                program.accumulate(batch, state.step, index)
        number, shown = state.step + 1, self._timeline_step or 0
        if self._is_timed(number):
            results, timeline = program.timed_step(batch, state.step, num_batches - 1)
            if number == shown:
                report = self._outcome.timeline = write_report(os.path.join(self._logdir, 'timeline'), number, program.plan, timeline)
                self._progress.message(f'{report.text()}; {report.png}')
                self._summaries['train'].png(number, 'timeline', report.png)
        else:
            results = program.train_step(batch, state.step, num_batches - 1)
        return {name: value.numpy().item() for name, value in results.items()}

    def _check_finite(self, results: dict[str, float]) -> None:
        state = self._state
        if results['is_finite']:
            state.num_nonfinite_in_a_row = 0
            return
        state.num_nonfinite += 1
        state.num_nonfinite_in_a_row += 1
        found = f'loss {results["loss"]:g} and gradient norm {results["gradient_norm"]:g}'
        most = self._experiment.params.task.learner.max_nonfinite_steps
        if state.num_nonfinite_in_a_row < most:
            self._progress.message(f'step {state.step} is skipped: {found} ({state.num_nonfinite_in_a_row} in a row)')
            return
        self._summaries['train'].scalars(state.step, {'nonfinite_steps': state.num_nonfinite})
        self._check_saved(is_at_end=True)
        saved = self._checkpointer.steps()
        last = f'the checkpoint of step {saved[-1]} is kept' if saved else 'there is no checkpoint before'
        raise NonFiniteError(f'step {state.step} has {found}, and {most} steps in a row were not finite; {last}: lower the learning rate, '
                             f'clip gradients (task.learner.clip_norm), or look at the input.')

    def _summarize(self, results: dict[str, float], batches: InputMeter) -> None:
        p, step = self.params, self._state.step
        if step % p.summary_every_steps and step not in (1, p.num_steps):
            return
        values = {name: value for name, value in results.items() if name != 'is_finite'}
        values['nonfinite_steps'] = self._state.num_nonfinite
        if self._progress.examples_per_s:
            values.update(examples_per_s=self._progress.examples_per_s, input_wait_share=batches.share)
        warning = batches.warning()   # of the steps since the last summary
        if warning and not self._has_warned:
            self._has_warned = True
            self._progress.message(f'step {step}: {warning}')
        self._summaries['train'].scalars(step, values)

    # Evaluation.

    def _is_evaluated_at(self, step: int) -> bool:
        """Whether there is an evaluation after `step` that has not been made."""
        every = self.params.eval_every_steps
        is_due = step >= self.params.num_steps or bool(every) and step % every == 0
        return is_due and not all(self._log.has(step, name) for name in self._evaluations.inputs)

    def _evaluate(self, stop: StopSignals) -> None:
        step = self._state.step
        for name in sorted(self._evaluations.inputs):
            self._begin(f'the evaluation after step {step} on {name}')
            start_s = time.perf_counter()
            evaluation = self._evaluations.run(name, step, lambda: bool(stop.name))
            if evaluation is None:
                return
            metrics, picture = evaluation.metrics, evaluation.picture
            self._summaries[f'eval_{name}'].scalars(step, metrics)
            if picture:
                self._outcome.pictures[name] = picture
                self._summaries[f'eval_{name}'].png(step, picture.name, picture.path)
            note = self._mark_best(metrics) if name == self._best_input else ''
            self._log.add(step, name, metrics)
            took = f'{time.perf_counter() - start_s:.1f} s'
            self._progress.message(f'evaluation after step {step} on {name}: {metrics_text(metrics)} ({took}){note}')
            if picture:
                self._progress.message(f'{picture.text}: {picture.path}')

    def _mark_best(self, metrics: Metrics) -> str:
        task = self._experiment.params.task
        if task.best_metric not in metrics:
            raise ValueError(f'task.best_metric={task.best_metric!r} is not among the metrics of {self._best_input}: {", ".join(metrics)}; '
                             f'name one of them.')
        is_best = self._checkpointer.mark_best(self._state.step, metrics[task.best_metric], task.best_is_largest)
        return f'; best {task.best_metric} so far' if is_best else ''

    # Checkpoints.

    @property
    def _position(self) -> int:
        """Number of the next example."""
        return self._state.step * self._experiment.examples_per_step

    def _restore(self) -> str:
        """Sets the state from the newest checkpoint and says what it found."""
        variables = self._program.variables()
        metadata = self._checkpointer.restore(variables)
        if metadata is None:
            source = self._experiment.params.initialize_from
            if source.directory:
                report = checkpoint.initialize(variables, source.directory, source.rules).text()
                path = os.path.join(self._logdir, 'initialization.txt')
                with open(path, 'w', encoding='utf-8') as file:
                    file.write(report)
                return f'a new training; {report.splitlines()[0]} See {path}.'
            return 'a new training'
        self._state = state = _State(metadata['step'], metadata['num_nonfinite'], metadata['num_nonfinite_in_a_row'])
        self._last_saved = state.step
        if metadata['position'] != self._position:
            raise ValueError(f'the checkpoint of step {state.step} was written after {metadata["position"]} examples, but {state.step} '
                             f'steps of {self._experiment.examples_per_step} are {self._position}; set train_input.batch_size and '
                             f'task.learner.accumulate back, or choose another logdir.')
        return f'going on after step {state.step}, from {self._checkpointer.directory}'

    def _save(self, is_at_end: bool = False) -> None:
        state = self._state
        if state.step != self._last_saved:
            self._begin(f'the checkpoint of step {state.step}')
            self._check_saved(is_at_end=True)   # of the checkpoint before
            save = self._checkpointer.begin if self.params.checkpoint_in_background and not is_at_end else self._checkpointer.save
            self._last_saved = state.step
            try:
                save(state.step, self._program.variables(), {'position': self._position, 'num_nonfinite': state.num_nonfinite,
                                                             'num_nonfinite_in_a_row': state.num_nonfinite_in_a_row,
                                                             **({'task': self._facts} if self._facts else {})})
            except OSError as error:
                self._report_unsaved(error, is_at_end)

    def _check_saved(self, is_at_end: bool = False) -> None:
        """Shows what went wrong with the checkpoint that is being written; at the end of things, waits for it."""
        try:
            (self._checkpointer.wait if is_at_end else self._checkpointer.check)()
        except OSError as error:
            self._report_unsaved(error, is_fatal=False)

    def _report_unsaved(self, error: OSError, is_fatal: bool) -> None:
        """Training goes on without a checkpoint, as long as there may be a later one."""
        self._last_saved = -1
        if is_fatal:
            raise error
        self._progress.message(f'step {self._state.step}: {error} The training goes on.')

    def _finish(self, stop: StopSignals) -> None:
        state, outcome = self._state, self._outcome
        self._begin('the end of the training')
        self._check_saved(is_at_end=True)
        if stop.name or state.step >= self.params.num_steps:
            self._save(is_at_end=True)
        outcome.step, outcome.signal, outcome.best = state.step, stop.name, self._checkpointer.best()
        if stop.name:
            self._progress.message(f'{stop.name}: stopped after step {state.step}, whose checkpoint is saved; the same command goes on '
                                   f'from there')
        for line in self._log.read():
            if line['step'] == state.step:
                outcome.metrics[line['input']] = {name: value for name, value in line.items() if name not in ('step', 'input')}
        for one in self._summaries.values():
            one.close()
