"""Evaluation: losses and metrics of a whole data set, forward only, through the cells of the run.

The loop and --mode=eval both evaluate by these means.
"""
from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from absl import logging

from lingpipe.checkpoint import side_files
from lingpipe.input import Input
from lingpipe.input.first_batch import (
    check_batch,
    check_unread,
    first_batch,
    named,
    nonfinite,
)
from lingpipe.input.unread_batch import UnreadBatch, can_be_sent, has_end
from lingpipe.layers import nested
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.bad_ids import BadIdError
from lingpipe.pipeline.execution.batch_checks import is_of_spec
from lingpipe.pipeline.execution.evaluator import Evaluated, Evaluator
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.execution.reading_hosts import check_same_data, reads_on_workers
from lingpipe.training.problem import Problem, Review
from lingpipe.training.reporting.run_report import TENSORBOARD
from lingpipe.training.reporting.summaries import Summaries

Metrics = dict[str, float]
# Name -> tensor [B, ...], or a nested value of such. It may be an UnreadBatch.
Batch = Mapping[str, Nested]

GIVEN = 'evaluate(x)'   # The name of the input that a call was given.


@dataclasses.dataclass(frozen=True)
class Picture:
    """What a problem's review drew of an evaluation: its name, the file, and a few words."""
    name: str
    path: str
    text: str


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Losses and metrics by name, and what the problem's review has seen, if it makes one."""
    metrics: Metrics
    review: Review | None = None


class Evaluations:
    """The evaluations of a program on its eval inputs.

    The step of each is traced once for every shape of its mini-batches, when one is first run.
    """

    def __init__(self, program: Program, inputs: Mapping[str, Input], problem: Problem,
                 logdir: str):
        self.inputs = inputs
        self._program, self._problem, self._logdir = program, problem, logdir
        self._evaluators: dict[Any, Evaluator] = {}   # by the spec of a mini-batch, and fetch
        self._has_reviews = True

    def of_examples(self, source: Input) -> Evaluations:
        """The evaluations on a single input, named GIVEN, that the experiment does not have.

        There are no reviews. Both objects share the steps that either of them traces.
        """
        other = copy.copy(self)
        other.inputs, other._has_reviews = {GIVEN: source}, False
        return other

    def check(self, name: str) -> None:
        """Reads one mini-batch of the eval input `name`, and computes nothing.

        Raises:
          ValueError: the network cannot be evaluated on it, the input is empty or cannot be read,
            gives weights of examples by another name, or workers that are to read it have other
            data.
        """
        source = self.inputs[name]
        with named(_title(name)):
            check_unread(source, self._program.network.reads().values())
            specs, batches = source.specs(), source.batches()
            evaluators = [self._evaluator(source, spec) for spec in specs]
            if evaluators[0].counts_copies and len(specs) == 1 and source.num_real_examples(0):
                last = (source.num_batches() or 1) - 1
                size = source.num_real_examples(last * source.params.batch_size)
                self._evaluator(source, _of_size(specs[0], size))
        first = first_batch(
            _title(name), source, 0, batches,
            lambda batch: self._evaluator(source, _spec_of(source, batch)).check(batch))
        if first is None:
            raise ValueError(f'{_title(name)} has no examples; correct it, or leave it out.')
        if self._is_read_on_workers(source):
            with named(_title(name)):
                check_same_data(UnreadBatch(source, 0, made=first), evaluators[0].reading_hosts)

    def check_metric(self, name: str, metric: str, field: str = 'task.best_metric') -> None:
        """Raises ValueError unless an evaluation on the eval input `name` will give `metric`.

        Nothing is computed. `field` is the path in Params that names the metric, for the error.
        """
        source = self.inputs[name]
        names = self._evaluator(source, source.spec()).names_without(metric)
        if names and metric not in self._problem.derived_metrics(dict.fromkeys(names, 1.)):
            why = self._problem.why_not_measured(metric)
            raise ValueError(f'{field}={metric!r} is not among the metrics of {name}: '
                             f'{", ".join(names)}{why and f" ({why})"}; name one of them.')

    def run(self, name: str,
            is_stopping: Callable[[], bool] = lambda: False) -> Evaluation | None:
        """Evaluates the weights as they are on the eval input `name`.

        Returns:
          None if is_stopping() became true before the end.

        Raises:
          ValueError: it has no examples, or one that the network cannot use.
        """
        source = self.inputs[name]
        self._program.make_replicas_equal()
        review = self._review(source)
        sums: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
        why_nonfinite = ''
        for evaluator, batches in self._at_once(name):
            for (position, batch), (results, fetched) in zip(
                    batches.items(), self._steps(name, evaluator, batches), strict=True):
                if not why_nonfinite and not math.isfinite(float(results['loss'][0])):
                    why_nonfinite = nonfinite(source, position, batch)
                for metric, (value, weight) in results.items():
                    sums[metric].append((float(value), float(weight)))
                if review:
                    review.see(batch, fetched)
            if is_stopping():
                return None
        if not sums:
            raise ValueError(f'{_title(name)} has no examples; correct it, or leave it out.')
        metrics = {metric: mean(pairs) for metric, pairs in sums.items()}
        if why_nonfinite:
            logging.warning('%s: the loss is not finite, and %s', _title(name), why_nonfinite)
        return Evaluation({**metrics, **self._problem.derived_metrics(metrics)}, review)

    def _at_once(self, name: str) -> Iterator[tuple[Evaluator, dict[int, Batch]]]:
        """Yields evaluators with the mini-batches, by position, that each evaluates at once."""
        batch_size = self.inputs[name].params.batch_size
        evaluated = (
            (number * batch_size, *self._without_copies(name, number * batch_size, batch))
            for number, batch in enumerate(self._batches(self.inputs[name])))
        for evaluator, alike in itertools.groupby(evaluated, key=lambda one: one[1]):
            while batches := {position: batch for position, _, batch
                              in itertools.islice(alike, evaluator.num_at_once)}:
                yield evaluator, batches

    def _batches(self, source: Input) -> Iterator[Batch]:
        """The mini-batches of an eval input, or only their positions if workers read them.

        If there is a review, which looks at the examples, this process makes them as well.
        """
        if not self._is_read_on_workers(source):
            return source.batches()
        batch_size = source.params.batch_size
        if self._review(source):
            return (UnreadBatch(source, number * batch_size, made=batch)
                    for number, batch in enumerate(source.batches()))
        return (UnreadBatch(source, number * batch_size)
                for number in range(source.num_batches() or 0))

    def _is_read_on_workers(self, source: Input) -> bool:
        """Whether workers make the mini-batches of an eval input: they do if they can.

        If they have several shapes, this process makes them, since it has to know which comes.
        """
        return (reads_on_workers(self._program.plan) and can_be_sent(source) and has_end(source)
                and len(source.specs()) == 1)

    def _steps(self, name: str, evaluator: Evaluator,
               batches: Mapping[int, Batch]) -> list[Evaluated]:
        """The results and fetched values of mini-batches by position; see Evaluator.steps.

        Raises:
          ValueError: an example, which is named, is one that the network cannot use.
        """
        def check(position: int) -> None:
            check_batch(_title(name), self.inputs[name], position, batches[position],
                        evaluator.check)

        try:
            evaluated = evaluator.steps(list(batches.values()))
        except BadIdError:
            for position in batches:
                check(position)
            raise
        for position, (results, _) in zip(batches, evaluated, strict=True):
            if not math.isfinite(float(results['loss'][0])):
                check(position)
        return evaluated

    def _evaluator(self, source: Input, spec: dict[str, Nested]) -> Evaluator:
        """Returns the evaluator for mini-batches of a spec of an eval input."""
        review = self._review(source)
        fetch = review.fetch if review else ()
        key = (tuple(nested.flatten(spec)), tuple(fetch))
        if key not in self._evaluators:
            self._evaluators[key] = self._program.evaluator(spec, fetch=fetch)
        return self._evaluators[key]

    def _review(self, source: Input) -> Review | None:
        return self._problem.review(source) if self._has_reviews else None

    def _without_copies(self, name: str, position: int,
                        batch: Batch) -> tuple[Evaluator, Batch]:
        """Returns the evaluator for the mini-batch at a position, and the examples that it takes.

        Usually it takes all of them: the copies that fill up the last mini-batch have weight 0, so
        they change nothing, and one traced step serves all mini-batches of a shape. If a layer
        counts copies despite their weight, they are cut off.
        """
        source = self.inputs[name]
        spec = _spec_of(source, batch)
        evaluator = self._evaluator(source, spec)
        if not evaluator.counts_copies:
            return evaluator, batch
        size = source.num_real_examples(position)
        if size == nested.leaves(spec)[0].shape[0]:
            return evaluator, batch
        return self._evaluator(source, _of_size(spec, size)), nested.map_leaves(
            lambda tensor: tensor[:size], dict(batch))

    def write(self, name: str, step: int, evaluation: Evaluation, summaries: Summaries,
              optional: Callable[[str], AbstractContextManager[None]]) -> Picture | None:
        """Writes the files of an evaluation; returns its picture, if its problem draws one.

        Args:
          name: of the eval input.
          step: number of steps before the evaluation.
          evaluation: what `run` returned.
          summaries: get the metrics and the picture.
          optional: makes a context in which a failure to write files of a kind is no error.
        """
        picture = None
        with optional('pictures'):
            picture = self._draw(name, step, evaluation)
        with optional(TENSORBOARD):
            summaries.scalars(step, evaluation.metrics)
            if picture:
                summaries.png(step, picture.name, picture.path)
        return picture

    def _draw(self, name: str, step: int, evaluation: Evaluation) -> Picture | None:
        """Writes the picture of an evaluation, if its problem draws one; may raise OSError."""
        review = evaluation.review
        if not review:
            return None
        directory = os.path.join(self._logdir, 'pictures')
        side_files.make_directory(directory)
        path = os.path.join(directory, f'{review.name}-{name}.png')
        side_files.make_way_for_file(path)
        review.save_png(path, f'{name} after step {step}')
        return Picture(review.name, path, review.text())


def _title(name: str) -> str:
    """What errors call an input."""
    return name if name == GIVEN else f'eval_inputs.{name}'


def _spec_of(source: Input, batch: Batch) -> dict[str, Nested]:
    """Returns the spec of a mini-batch of an input; the first of several if none is its own."""
    specs = source.specs()
    if len(specs) == 1:   # An UnreadBatch has no values to look at.
        return specs[0]
    return next((spec for spec in specs if is_of_spec(batch, spec)), specs[0])


def _of_size(spec: dict[str, Nested], size: int) -> dict[str, Nested]:
    """Returns the spec of mini-batches that are alike but for their number of examples."""
    sized: dict[str, Nested] = nested.map_leaves(
        lambda one: tf.TensorSpec([size, *one.shape[1:]], one.dtype), spec)
    return sized


def mean(pairs: list[tuple[float, float]]) -> float:
    """Sum of values / sum of weights, over (value sum, weight sum) of all mini-batches.

    Padding has weight 0 and does not count.
    """
    weight = math.fsum(weight for _, weight in pairs)
    total = sum(value for value, _ in pairs)   # fsum refuses inf - inf
    return total / weight if weight else math.nan


def metrics_text(metrics: Mapping[str, float]) -> str:
    """'loss 0.1234  accuracy 0.9876'."""
    return '  '.join(f'{name} {value:.4g}' for name, value in metrics.items())
