"""The loop: steps, with checkpoints, evaluations and all that a person sees of them.

Killed at any moment and started again, it ends with the bits of a run that was not interrupted: a checkpoint holds weights, slots,
averages and the step, from which all else follows. The next example is number step * examples_per_step of the input; seeds follow
from (experiment seed, step, micro-batch, layer). A step whose loss or gradient is not finite, or whose examples all have weight 0,
updates nothing but counts as a step, so that this stays true. While steps are not finite in a row, no checkpoint is removed, and none
is written but for an evaluation or the end: the weights of the newest may be what is wrong.

A file that cannot be written, as on a full disk, costs a line and no more, except the last checkpoint: without it the training has failed.

    LOGDIR/params.txt, lock      the Params; who trains there (both written by the trainer)
    LOGDIR/checkpoints/          see checkpoint/
    LOGDIR/tensorboard/          train, and eval_NAME for every eval input
    LOGDIR/timeline/             a picture and a trace of a measured step
    LOGDIR/pictures/             what the task draws of the newest evaluation of each eval input
    LOGDIR/evaluations.jsonl, train.log, initialization.txt
"""
from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import time
from collections.abc import Iterator
from typing import IO, Any

from lingpipe.checkpoint import Checkpointer
from lingpipe.checkpoint.room import check_room
from lingpipe.input import InputMeter
from lingpipe.input.first_batch import check_batch, first_batch, named
from lingpipe.pipeline.execution.bad_ids import BadIdError
from lingpipe.pipeline.planning.drawing import Timeline
from lingpipe.process.stop_signals import StopSignals
from lingpipe.training import resumption
from lingpipe.training.evaluation import EvaluationLog, Evaluations, Metrics, metrics_text
from lingpipe.training.experiment import Experiment
from lingpipe.training.outcome import Outcome
from lingpipe.training.remedy import remedy
from lingpipe.training.reporting.plan_table import overview
from lingpipe.training.reporting.progress import Progress
from lingpipe.training.reporting.summaries import Summaries
from lingpipe.training.reporting.timeline import WHY_THEY_DIFFER, write_report
from lingpipe.training.saved_state import SavedState
from lingpipe.training.site import THIS_PROCESS, Site

NUM_WARM_UP_STEPS = 2    # Steps that are timed and not counted, while the timed graph warms up.
NUM_MEASURED_STEPS = 5   # Timed steps whose median is shown.
NUM_TIMED_STEPS = NUM_WARM_UP_STEPS + NUM_MEASURED_STEPS
NUM_UNBOUNDED_STEPS = 4  # Untimed steps of a run without a time limit: the first traces the graph.


class NonFiniteError(ArithmeticError):
    """Too many steps in a row, or all of a run, had a loss or gradient that is not finite."""


@dataclasses.dataclass(frozen=True)
class LoopOptions:
    """How one process trains, besides what the experiment's Params say.

    Attributes:
      has_evaluation: whether the eval inputs are used.
      has_timeline: whether a step is timed soon after the start, if timeline_step names no other.
      out: where lines and tables are shown; None: sys.stdout.
      stop: signals that somebody looks at already; None: they are looked at while the loop runs.
    """
    has_evaluation: bool = True
    has_timeline: bool = False
    out: IO[str] | None = None
    stop: StopSignals | None = None


class TrainLoop:
    """Trains an experiment in a logdir. Made once for each run."""

    def __init__(self, experiment: Experiment, logdir: str, options: LoopOptions = LoopOptions(),
                 site: Site = THIS_PROCESS):
        """
        Args:
          experiment: what is trained.
          logdir: where all files go.
          options: how this process trains.
          site: where it trains.
        """
        self.params = experiment.params.train
        self._experiment, self._logdir, self._out, self._site, self._signals = experiment, logdir, options.out, site, options.stop
        inputs = experiment.eval_inputs if options.has_evaluation else {}
        self._best_input = self.params.best_input or min(inputs, default='')
        if self._best_input not in inputs and inputs:
            raise ValueError(f'train.best_input={self._best_input!r} is no eval input; there are {", ".join(sorted(inputs))}.')
        self._inputs = {'train_input': experiment.train_input, **inputs}
        self._timeline_step, self._has_timeline = self.params.timeline_step, options.has_timeline
        self._outcome = Outcome(0)
        os.makedirs(logdir, exist_ok=True)
        self._checkpointer = Checkpointer(os.path.join(logdir, 'checkpoints'), self.params.keep)
        self._log = EvaluationLog(logdir)
        self._log.repair()
        self._summaries = {name: Summaries(os.path.join(logdir, 'tensorboard', name)) for name in ['train', *(f'eval_{n}' for n in inputs)]}
        self._program = experiment.make_program(site.devices)
        self._evaluations = Evaluations(self._program, inputs, experiment.task, logdir)
        self._state = SavedState(self._checkpointer, self._program, experiment.task, experiment.train_input, experiment.examples_per_step,
                                 self.params.checkpoint_in_background, lambda line: self._progress.message(line),
                                 params_text=experiment.params.to_text(),
                                 check_params=lambda text: resumption.check_recorded(text, experiment.params))
        for source in inputs.values():
            experiment.task.check_facts(experiment.task.facts(experiment.train_input), source)
        self._num_untimed_steps = 0   # in this run
        self._has_no_weight = False   # the last step
        self._timelines: list[Timeline] = []   # of the timed steps of this run
        self._has_warned = False
        self._unwritten: set[str] = set()
        self._evaluated: dict[str, tuple[int, Metrics]] = {}   # (step, metrics) of the last evaluation in this run, by eval input

    @property
    def program(self) -> Any:
        """The Program, for tests and tools."""
        return self._program

    def run(self) -> Outcome:
        """Trains until num_steps or a signal.

        Raises:
          NonFiniteError: learner.max_nonfinite_steps in a row, or all steps of this run.
          ValueError: the checkpoints do not fit, the input ended, or no step of this run had an example that counts.
        """
        p, state = self.params, self._state
        with contextlib.nullcontext(self._signals) if self._signals else StopSignals() as stop:
            started = state.restore(self._experiment.params.initialize_from, self._logdir)
            if self._has_timeline and self._timeline_step is None:
                self._timeline_step = min(state.step + NUM_TIMED_STEPS + 2, p.num_steps)
            with Progress(state.step, p.num_steps, self._experiment.examples_per_step, os.path.join(self._logdir, 'train.log'),
                          p.log_every_s, self._out) as self._progress:
                self._progress.message(overview(self._program.plan, self._experiment.params.train_input.batch_size))
                for name, source in self._inputs.items():
                    if text := source.statistics_text():
                        self._progress.message(f'{name}: {text}')
                self._progress.message(started)
                if state.step >= p.num_steps:
                    self._progress.message(
                        f'{self._logdir} is at step {state.step} already, and train.num_steps is {p.num_steps}: '
                        f'no step is left to train; give --steps above {state.step} to train on.')
                batches = self._checked_batches()
                with self._beside_training('TensorBoard files'):
                    self._summaries['train'].text('params', self._experiment.params.to_text())
                self._find_best()
                if state.step and self._is_evaluated_at(state.step):
                    self._evaluate(stop)
                try:
                    self._train(stop, batches)
                except (ValueError, ArithmeticError, OSError):
                    state.check(is_at_end=True)
                    raise
                self._finish(stop)
        return self._outcome

    def _checked_batches(self) -> Iterator[Any]:
        """Checks all that can be known before the first step, and returns the mini-batches left to train on.

        Raises:
          ValueError: the network cannot be trained or evaluated on the first mini-batch of an input.
          OSError: there is no room for a checkpoint.
        """
        p, state, source = self.params, self._state, self._experiment.train_input
        is_training = state.step < p.num_steps
        if is_training or self._is_evaluated_at(state.step):
            self._site.begin('the look at the inputs')
            for name in sorted(self._evaluations.inputs):
                self._evaluations.check(name)
            if self._best_input:
                self._evaluations.check_metric(self._best_input, self._experiment.params.task.best_metric)
        if not is_training:
            return iter(())
        check_room(self._checkpointer.directory, self._program.variables())
        with named('train_input'):
            batches = source.batches(state.position)
        first = first_batch('train_input', source, state.position, batches, self._program.check)
        return itertools.chain([] if first is None else [first], batches)

    def _check_ids(self, step: int) -> None:
        """Raises ValueError if the mini-batches of the update that follows `step` updates have an id that a layer cannot use."""
        source, batch_size = self._experiment.train_input, self._experiment.params.train_input.batch_size
        position = step * self._experiment.examples_per_step
        for batch in itertools.islice(source.batches(position), self._experiment.params.task.learner.accumulate):
            check_batch(f'train_input, in step {step + 1}', source, position, batch, self._program.check)
            position += batch_size

    def _train(self, stop: StopSignals, mini_batches: Iterator[Any]) -> None:
        p, state = self.params, self._state
        if state.step >= p.num_steps:
            return
        if any(every and state.step // every * every + every < p.num_steps for every in (p.checkpoint_every_steps, p.eval_every_steps)):
            state.prepare()
        batches = InputMeter(mini_batches)
        while state.step < p.num_steps and not stop.name:
            start_s = time.perf_counter()
            is_timed = self._is_timed(state.step + 1)
            self._site.begin(f'step {state.step + 1}',
                        is_bounded=self._num_untimed_steps >= NUM_UNBOUNDED_STEPS and not is_timed)
            try:
                results = self._step(iter(batches))
            except BadIdError:
                self._check_ids(state.step)   # says which example of the data it is
                raise
            self._num_untimed_steps += not is_timed
            state.check()
            state.step += 1
            self._check_finite(results)
            if p.check_replicas_every_steps and state.step % p.check_replicas_every_steps == 0:
                self._program.check_replicas()
            self._progress.update(state.step, time.perf_counter() - start_s, results)
            self._summarize(results, batches)
            is_evaluated = self._is_evaluated_at(state.step)
            is_due = state.step % p.checkpoint_every_steps == 0 and not state.num_nonfinite_in_a_row
            if is_due or is_evaluated:
                self._save()
            if is_evaluated:
                self._evaluate(stop)

    @contextlib.contextmanager
    def _beside_training(self, what: str) -> Iterator[None]:
        """In which files are written that the training can do without: a line if they cannot be, and one line until they can again."""
        try:
            yield
            self._unwritten.discard(what)
        except OSError as error:
            if what not in self._unwritten:
                self._progress.message(f'step {self._state.step}: {what} cannot be written: {error}. The training goes on without.')
            self._unwritten.add(what)

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
                state.save(is_at_end=True)
                raise ValueError(f'train_input ends in step {state.step + 1} of {self.params.num_steps}; let it repeat '
                                 f'(train_input.num_epochs=none), or lower train.num_steps.') from None
            if state.step == index == 0:
                with self._beside_training('TensorBoard files'):
                    self._summaries['train'].images(0, self._experiment.task.images(batch))
            if not program.has_traced(batch):
                self._site.begin(f'step {state.step + 1}')   # anew, and without a limit
            if index < num_batches - 1:
                program.accumulate(batch, state.step, index)
        number, shown = state.step + 1, self._timeline_step or 0
        if self._is_timed(number):
            results, timeline = program.timed_step(batch, state.step, num_batches - 1)
            self._timelines.append(timeline)
            if number == shown:
                with self._beside_training('the timeline'):
                    self._report(number)
        else:
            results = program.train_step(batch, state.step, num_batches - 1)
        return {name: value.numpy().item() for name, value in results.items()}

    def _report(self, step: int) -> None:
        measured = self._timelines[NUM_WARM_UP_STEPS:] or self._timelines[-1:]
        report = self._outcome.timeline = write_report(os.path.join(self._logdir, 'timeline'), step, self._program.plan, measured)
        self._progress.message(f'{report.text()}; {WHY_THEY_DIFFER}; {report.png}')
        self._summaries['train'].png(step, 'timeline', report.png)

    def _check_finite(self, results: dict[str, float]) -> None:
        """Counts skipped steps.

        Raises:
          NonFiniteError: too many steps in a row, or all steps of the run, were skipped as not finite.
          ValueError: no step of the run updated anything, and the last one had no example that counts.
        """
        state = self._state
        is_last_chance = state.step >= self.params.num_steps and not state.num_updates
        if results['is_finite']:
            state.num_nonfinite_in_a_row = 0
            had_no_weight, self._has_no_weight = self._has_no_weight, results['weight'] == 0
            state.num_updates += not self._has_no_weight
            if self._has_no_weight and is_last_chance:
                raise ValueError(f'no step of this run updated anything: all examples of step {state.step} have weight 0; look at the '
                                 f'weights that train_input gives.')
            if self._has_no_weight and not had_no_weight:
                self._progress.message(f'step {state.step} is skipped, and so are those after it that are alike: all of its examples '
                                       f'have weight 0')
            return
        self._check_ids(state.step - 1)
        state.num_nonfinite += 1
        state.num_nonfinite_in_a_row += 1
        found = f'loss {results["loss"]:g} and gradient norm {results["gradient_norm"]:g}'
        most = self._experiment.params.task.learner.max_nonfinite_steps
        if state.num_nonfinite_in_a_row < most and not is_last_chance:
            self._progress.message(f'step {state.step} is skipped: {found} ({state.num_nonfinite_in_a_row} in a row)')
            return
        with self._beside_training('TensorBoard files'):
            self._summaries['train'].scalars(state.step, {'nonfinite_steps': state.num_nonfinite})
        state.check(is_at_end=True)
        why = f'{most} steps in a row were not finite' if state.num_nonfinite_in_a_row >= most else 'no step of this run was finite'
        advice = remedy(self._experiment.params, self._checkpointer, self._logdir, state.step - state.num_nonfinite_in_a_row)
        raise NonFiniteError(f'step {state.step} has {found}, and {why}. {advice}')

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
        with self._beside_training('TensorBoard files'):
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
            self._site.begin(f'the evaluation after step {step} on {name}')
            start_s = time.perf_counter()
            evaluation = self._evaluations.run(name, lambda: bool(stop.name))
            if evaluation is None:
                return
            metrics, picture = evaluation.metrics, None
            self._evaluated[name] = step, metrics
            note = ''
            with self._beside_training('pictures'):
                picture = self._evaluations.draw(name, step, evaluation)
            with self._beside_training('TensorBoard files'):
                self._summaries[f'eval_{name}'].scalars(step, metrics)
                if picture:
                    self._outcome.pictures[name] = picture
                    self._summaries[f'eval_{name}'].png(step, picture.name, picture.path)
            self._state.check(is_at_end=True)   # or it could not be marked
            with self._beside_training('the log of evaluations'):
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

    def _find_best(self) -> None:
        """If best.json was lost, marks the best checkpoint by the logged evaluations, so that it is kept."""
        if self._checkpointer.best():
            return
        p, task = self.params, self._experiment.params.task
        best_input = p.best_input or min(self._experiment.eval_inputs, default='')
        steps = [step for step in self._checkpointer.steps() if step <= self._state.step]   # later ones are damaged
        with self._beside_training('the mark of the best checkpoint'):
            for line in self._log.read():
                if line['input'] == best_input and line['step'] in steps and task.best_metric in line:
                    self._checkpointer.mark_best(line['step'], line[task.best_metric], task.best_is_largest)

    # Checkpoints.

    def _save(self, is_at_end: bool = False) -> None:
        if not self._state.is_saved:
            self._site.begin(f'the checkpoint of step {self._state.step}')
            self._state.save(is_at_end)

    def _finish(self, stop: StopSignals) -> None:
        state, outcome = self._state, self._outcome
        self._site.begin('the end of the training')
        state.check(is_at_end=True)
        if stop.name or state.step >= self.params.num_steps:
            self._save(is_at_end=True)
            losses = [metrics['loss'] for step, metrics in self._evaluated.values() if step == state.step]
            if not stop.name and not state.num_nonfinite_in_a_row and all(map(math.isfinite, losses)):
                self._checkpointer.prune()
        outcome.step, outcome.signal, outcome.best = state.step, stop.name, self._checkpointer.best()
        outcome.num_nonfinite = state.num_nonfinite
        if stop.name:
            self._progress.message(f'{stop.name}: stopped after step {state.step}, whose checkpoint is saved; the same command goes on '
                                   f'from there')
        for line in self._log.read():
            if line['step'] == state.step:
                outcome.metrics[line['input']] = {name: value for name, value in line.items() if name not in ('step', 'input')}
        outcome.metrics |= {name: metrics for name, (step, metrics) in self._evaluated.items() if step == state.step}
        for one in self._summaries.values():
            one.close()
