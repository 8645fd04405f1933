"""Run: what a notebook, a script and the trainer's commands do with one logdir.

All of them go through this file, so that there is one way to train or to evaluate. Each call takes
the weights from the newest checkpoint, and training ends with a checkpoint. So the result of a call
does not depend on the calls that this process has made before. Only the traced network is kept from
call to call, because tracing takes long.
"""
from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable, Sequence
from typing import overload

import tensorflow as tf

from lingpipe.api.arguments import check_outputs, check_steps, refuse_examples, refuse_unknown
from lingpipe.api.evaluating import Evaluating, check_inputs, metrics_on_examples
from lingpipe.api.generating import GeneratingRun
from lingpipe.api.open_run import WeightsHeld
from lingpipe.api.views import PlanTable, TimelinePicture, Weights, newest_timeline
from lingpipe.api.watching import Watch
from lingpipe.checkpoint import side_files
from lingpipe.checkpoint.chosen_step import NEWEST
from lingpipe.checkpoint.facts import Metadata
from lingpipe.cluster.client import LostWorkerError
from lingpipe.commands.recovery import has_started_again
from lingpipe.export import check_dtype, check_path, export
from lingpipe.layers.nested import Nested
from lingpipe.process.stop_signals import StopSignals
from lingpipe.training import newest_checkpoint
from lingpipe.training.evaluation import Metrics
from lingpipe.training.loop import TrainLoop
from lingpipe.training.loop_options import LoopOptions
from lingpipe.training.outcome import Outcome
from lingpipe.training.recorded_params import origin_of_weights
from lingpipe.training.site import Site
from lingpipe.training.traced_network import TracedNetwork
from lingpipe.wording.counts import counted
from lingpipe.wording.keras_words import are_examples, method_of


class Run(GeneratingRun):
    """One run in one logdir. `lingpipe.start` makes it.

    It holds the lock of the logdir until `close`, or until the end of a `with` statement.

    Attributes:
      params: the experiment's, frozen.
      logdir: where all files are.
      experiment: the problem and the inputs, made of the Params.
    """

    # Training and evaluation.

    def train(self, steps: int | None = None, *examples: object, evaluate: bool = True,
              timeline: bool = False, **unknown: object) -> Outcome:
        """Trains, and returns how that ended.

        It begins with the newest checkpoint of the logdir and ends with another. Ctrl-C, or
        "Interrupt" in a notebook, ends it after the step, with a checkpoint.

        Args:
          steps: how many steps more; default: until train.num_steps.
          *examples: refused, since train_input has them.
          evaluate: whether the eval inputs are used.
          timeline: whether a few steps are timed soon after the start.
          **unknown: refused, with a word on where an argument of Keras is here.

        Raises:
          TypeError: there is no such argument.
          NonFiniteError: learner.max_nonfinite_steps in a row, or all steps of this run.
          ValueError: the checkpoints do not fit, the input ended, or nothing could be learned.
          OSError: the last checkpoint cannot be written, or a worker is lost.
          SystemExit: SIGTERM or SIGHUP came, and the checkpoint is saved.
        """
        refuse_examples(steps, *examples, *map(unknown.get, 'xy'))
        refuse_unknown('train', unknown, 'steps, evaluate, timeline')
        if not self._is_writer:
            raise ValueError(f'this run only reads {self.logdir}; start one without only_reads.')
        if self._options.checkpoint != NEWEST:
            raise ValueError(f'--checkpoint={self._options.checkpoint} is for evaluating and the '
                             f'like; training goes on from the newest: leave it out.')
        check_steps(steps)

        with side_files.warnings_into(self._log_path):
            options = LoopOptions(has_evaluation=evaluate, has_timeline=timeline,
                                  allow_change=self._options.allow_change)
            if not self._options.devices:   # No worker is waited for: the loop looks at signals.
                outcome = self.at_site(lambda site: self._train(site, steps, options))
            else:
                with StopSignals() as stop:
                    options = dataclasses.replace(options, stop=stop)
                    outcome = self.at_site(
                        lambda site: self._train(site, steps, options), stop,
                        may_renew=self._is_trainer)
        if outcome.signal in ('SIGTERM', 'SIGHUP') and not self._is_trainer:
            raise SystemExit(128 + signal.Signals[outcome.signal])
        return outcome

    def _train(self, site: Site, steps: int | None, loop_options: LoopOptions) -> Outcome:
        with self._turns.long_use('train'):
            return self._train_in_turn(site, steps, loop_options)

    def _train_in_turn(self, site: Site, steps: int | None, loop_options: LoopOptions) -> Outcome:
        experiment = self.experiment
        if steps is not None:
            step = newest_checkpoint.newest_whole_step(self.logdir) or 0
            experiment = experiment.lasting(step + int(steps))
        # The plan of a run that has lost a worker is in its log; the forecast takes time.
        is_resumed = has_started_again() and newest_checkpoint.newest_step(self.logdir)
        has_shown_plan = self._network is not None or bool(is_resumed)
        network = self._traced(site)
        loop_options = dataclasses.replace(
            loop_options, has_overview=not has_shown_plan,
            held=self.metadata_held(newest_checkpoint.facts_of(self.logdir, NEWEST)),
            may_begin=self._weights_held.are_initial,
            when_restored=lambda: self.claim(experiment.params),
            check_logdir=lambda: self.keep_logdir(experiment.params))
        self._network, self._weights_held = None, WeightsHeld()
        loop = TrainLoop(experiment, self.logdir, loop_options, site, network)
        try:
            outcome = loop.run()
        except (tf.errors.OpError, LostWorkerError):
            self._left = network if loop.has_ended() else None
            raise
        self._network = network   # After an error, a new run would begin with what is in it.
        facts = newest_checkpoint.facts_of(self.logdir, NEWEST)
        is_saved = facts is not None and facts['step'] == outcome.step
        # A hook may have evaluated another network meanwhile.
        self._weights_held = WeightsHeld(facts if is_saved else None)
        return outcome

    @overload
    def evaluate(self, x: str | int | None = None, *, checkpoint: str | int | None = None,
                 say: Callable[[str], object] = ..., **unknown: object) -> dict[str, Metrics]: ...

    @overload
    def evaluate(self, x: Nested, y: Nested | None = None, *, sample_weight: Nested | None = None,
                 checkpoint: str | int | None = None, say: Callable[[str], object] = ...,
                 **unknown: object) -> Metrics: ...

    def evaluate(self, x: Nested | None = None, y: Nested | None = None, *,
                 sample_weight: Nested | None = None, checkpoint: str | int | None = None,
                 say: Callable[[str], object] = lambda line: None, **unknown: object
                 ) -> dict[str, Metrics] | Metrics:
        """Evaluates a checkpoint on every eval input or on the examples that it is given.

        Args:
          x: default: every eval input. Or examples with arrays [N, ...] by name, the array itself
            if the network takes only one, a DataFrame, or a tf.data.Dataset of batches of such or
            of tuples (x, y) or (x, y, sample_weight). Or a checkpoint, as evaluate('best').
          y: the labels of x, in the same way, if x does not have them by name.
          sample_weight: what each example of x counts, [N]; default: 1.
          checkpoint: 'newest', 'best' or a step; default: as --checkpoint says, or else the newest.
          say: shows a line for each eval input, once it is evaluated.
          **unknown: refused, as those of `train`.

        Returns:
          Metrics by name for each eval input by name or, of x, metrics by name.

        Raises:
          TypeError: there is no such argument.
          ValueError: there is no eval input or no such checkpoint, or they or x do not fit.
          OSError: a worker is lost.
        """
        refuse_unknown('evaluate', unknown, 'x, y, sample_weight, checkpoint, say')
        if are_examples(x, y, sample_weight):
            return self.at_site(
                lambda site: self._evaluate_examples(site, (x, y, sample_weight), checkpoint))
        if x in self.params.eval_inputs:
            raise ValueError(f'{x!r} is an eval input, and evaluate() takes examples or a '
                             f'checkpoint; write evaluate()[{x!r}] for its metrics.')
        return self.at_site(
            lambda site: self._evaluate(site, x if checkpoint is None else checkpoint, say))

    def _evaluate(self, site: Site, checkpoint: str | int | None,
                  say: Callable[[str], object]) -> dict[str, Metrics]:
        check_inputs(self.experiment)
        network, metadata = self.restored(site, checkpoint)
        return self._evaluating(site, network, say).on_all(metadata)

    def _evaluating(self, site: Site, network: TracedNetwork,
                    say: Callable[[str], object]) -> Evaluating:
        return Evaluating(site, self.experiment, network.evaluations, self.logdir, say)

    def _evaluate_examples(self, site: Site, examples: tuple[Nested, Nested, Nested],
                           checkpoint: str | int | None) -> Metrics:
        network, metadata = self.restored(site, checkpoint)
        return metrics_on_examples(site, network, examples, metadata['step'])

    def watch(self, *, say: Callable[[str], object] = print) -> str:
        """Evaluates each new checkpoint while another process trains in the logdir.

        It ends with the run. SIGTERM, SIGHUP or Ctrl-C ends it at once; started again, it evaluates
        what is not in LOGDIR/evaluations.jsonl.

        Args:
          say: shows a line for each evaluation.

        Returns:
          The name of the signal that ended it, or ''.

        Raises:
          ValueError: there is no eval input, or a checkpoint does not fit.
          OSError: a worker is lost, or LOGDIR/evaluations.jsonl cannot be written.
        """
        if self._options.checkpoint != NEWEST:
            raise ValueError(f'--checkpoint={self._options.checkpoint} names one checkpoint, and '
                             '--watch evaluates all new ones; leave one of the two out.')
        with StopSignals() as stop:
            self.at_site(lambda site: self._watch(site, stop, say))
        return stop.name

    def _watch(self, site: Site, stop: StopSignals, say: Callable[[str], object]) -> None:
        def restored(step: int) -> tuple[Evaluating, Metadata]:
            """Gives the program the weights of a step."""
            site.begin(f'the checkpoint of step {step}')
            network = self._traced(site)
            return self._evaluating(site, network, say), self._restore(network, str(step))

        with self._turns.long_use('watch'):
            Watch(self.experiment, self.logdir, stop, restored).run(say)

    # Predictions and exports.

    def predict(self, examples: Nested, outputs: Sequence[str] = (),
                checkpoint: str | int | None = None, **unknown: object) -> dict[str, Nested]:
        """Computes the outputs of any number of examples with the newest checkpoint.

        Neither labels nor weights of examples are needed. The outputs have the bits that an
        evaluation computes with.

        Args:
          examples: arrays [N, ...] by the name of the input, or the array itself if the network
            takes only one; or a tf.data.Dataset of batches of such examples, or of tuples whose
            first element they are; or the name of an eval input; or a function that makes such
            examples of the Predictor, which knows what the network takes.
          outputs: names of values; default: task.outputs.
          checkpoint: 'newest', 'best' or a step; default: as --checkpoint says, or else the newest.
          **unknown: refused, as those of `train`.

        Returns:
          Name -> NumPy array [N, ...] of every output.

        Raises:
          TypeError: there is no such argument.
          ValueError: there is no checkpoint, the examples do not fit, or there are no such outputs.
          OSError: a worker is lost.
        """
        refuse_unknown('predict', unknown, 'examples, outputs, checkpoint')
        check_outputs(outputs)
        return self.at_site(lambda site: self._predict(site, examples, outputs, checkpoint))

    def _predict(self, site: Site, examples: Nested, outputs: Sequence[str],
                 checkpoint: str | int | None) -> dict[str, Nested]:
        network, metadata = self.restored(site, checkpoint)
        site.begin(f'predictions with the checkpoint of step {metadata["step"]}')
        if isinstance(examples, str):
            source = self.experiment.eval_inputs.get(examples)
            if source is not None:
                self.experiment.task.check_facts(metadata.get('task', {}), source)
            return network.predictions.of_input(examples, outputs)
        if isinstance(examples, tf.data.Dataset):
            return network.predictions.of_dataset(examples, outputs)
        predictor = network.predictions.predictor(outputs)
        return predictor.predict(examples(predictor) if callable(examples) else examples)

    def export(self, path: str | os.PathLike[str], format: str = 'saved_model',
               checkpoint: str | int | None = None, dtype: str = 'float32') -> str:
        """Writes the newest checkpoint for programs that know nothing of lingpipe.

        Args:
          path: of a file or, for saved_model, hugging_face and peft, of a directory. An earlier
            export there is replaced.
          format: saved_model, keras, npz, safetensors, hugging_face, peft or onnx.
          checkpoint: 'newest', 'best' or a step; default: as --checkpoint says, or else the newest.
          dtype: float32, bfloat16 or float16, to which hugging_face rounds the weights.

        Returns:
          The path, with the suffix of the format.

        Raises:
          ValueError: there is no checkpoint, or the network cannot be written in this format.
          OSError: the path cannot be written. What was there before still is.
        """
        path = check_path(os.path.expanduser(os.fspath(path)), format)
        check_dtype(dtype, format)
        return self.at_site(lambda site: self._export(site, path, format, checkpoint, dtype))

    def _export(self, site: Site, path: str, format: str, checkpoint: str | int | None,
                dtype: str) -> str:
        network, metadata = self.restored(site, checkpoint)
        site.begin(f'the export of step {metadata["step"]}')
        facts = {'step': metadata['step'], 'model': self._options.model,
                 'task': metadata.get('task', {})}
        source = self.params.initialize_from.directory
        # Config and tokenizer are the same in all runs since the first. Adapters alone, as peft has
        # them, belong to the weights that this run began with.
        if format == 'hugging_face':
            source = origin_of_weights(source)
        return export(network.program, network.predictions.predictor(), path, format, facts,
                      source, dtype)

    # What there is to look at.

    @property
    def step(self) -> int:
        """The step of the newest checkpoint; 0 if there is none."""
        return newest_checkpoint.newest_step(self.logdir) or 0

    @property
    def weights(self) -> Weights:
        """The weights of the newest checkpoint, or else the initial ones: path -> NumPy array.

        They are those that train, not their averages, which `export` writes. A new run takes those
        that `initialize_from` names when it begins to train. An array is copied when it is read;
        once the run holds other weights, that is a ValueError.
        """
        return self.at_site(self.newest_weights)

    @property
    def plan(self) -> PlanTable:
        """The cells and their costs, as a table. No variable is made for it."""
        return self._at_site(lambda site: PlanTable(
            self.experiment.make_plan(site.devices, site.pipeline),
            self.params.train_input.batch_size, self.experiment.task.remarks()))

    def timeline(self) -> TimelinePicture:
        """The picture of the newest steps that were timed; if there are none, of the prediction.

        `train(timeline=True)` times some.
        """
        return newest_timeline(self.logdir) or TimelinePicture.of_plan(self.plan.plan)

    def __getattr__(self, name: str) -> object:
        """Raises AttributeError, with a word on what is here in place of a method of Keras."""
        if place := method_of(name):
            raise AttributeError(f"a run has no {name}; Keras' {name} is {place}", name=name,
                                 obj=self)
        return object.__getattribute__(self, name)   # It raises Python's own AttributeError.

    def __repr__(self) -> str:
        state = 'closed' if self._is_closed else f'step {self.step}'
        return f'Run({self.logdir}, {state}, {counted(self.params.pipeline.num_cells, "cell")})'
