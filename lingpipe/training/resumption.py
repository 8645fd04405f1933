"""Resumption: which Params may differ between the parts of one run.

A run may continue on other devices, with other cells and for longer. What it learns must stay the
same, or its checkpoints would not mean the same, unless a person allows a change.
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from absl import logging

from lingpipe.hyperparams import diff
from lingpipe.pipeline.planning.layout import layout_of
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.training.experiment import Experiment

# Paths of Params that say where and how long a run trains, not what it learns, or what from_keras
# finds out, for which a plan that does not fit is refused, or what kept_order sets.
MAY_CHANGE = re.compile(
    r'(pipeline(?!\.(num_micro_batches|num_replicas|sum_groups|cross_replica_batch_norm|'
    r'wire_dtype|jit_compile|use_graph_optimizer|replica_reduction)$)'
    r'|train|train_input\.shuffle_rounds|eval_inputs|initialize_from|hooks|task\.outputs'
    r'|task\.model.*\.mixes_examples)\b.*')

# Paths that may change the plan: its cuts, what it recomputes, or which cells share a device.
_CHANGES_PLAN = re.compile(r'pipeline\.(?!(read_on_workers|cells_per_gpu|devices)\b).*')

# Paths for which no error suggests --allow_change: a change of one of them alone changes the
# variables, or how many examples a step takes, so that no checkpoint fits.
_NOT_OFFERED = ('task.learner.optimizer', 'task.learner.bfloat16_slots', 'task.learner.frozen',
                'task.learner.accumulate', 'train_input.batch_size')

# Paths of what makes other adapters (layers/low_rank.py). A checkpoint fits if alpha alone differs.
_MAKES_ADAPTERS = re.compile(r'(.*\.)?adapters(\.(rank|targets|alpha))?')

NUM_DIFFERENCES_SHOWN = 5

Difference = tuple[str, Any, Any]   # path, value before, value now


def check_recorded(text: str, now: Experiment.Params, allowed: Sequence[str] = ()) -> None:
    """Raises ValueError if the run that recorded its Params as `text` cannot resume with `now`.

    `allowed` is that of `check_resumable`.

    A text that cannot be read, for example because a class was renamed, costs only a warning: the
    person who moved an unreadable params.txt away has said that it is the same experiment.
    """
    if text == now.to_text():
        return
    try:
        stored = Experiment.Params.from_text(text)
    except ValueError as error:
        logging.warning('the Params that the checkpoint holds cannot be read, so nothing tells '
                        'whether they are those of this experiment: %s', error)
        return
    check_resumable(stored, now, allowed)


def check_resumable(stored: Experiment.Params, now: Experiment.Params,
                    allowed: Sequence[str] = ()) -> list[Difference]:
    """Raises ValueError if a run that began with the Params `stored` cannot resume with `now`.

    Args:
      stored: those of the run.
      now: those with which it is to resume.
      allowed: paths of what a person lets differ all the same; * stands for any text, as in
        'task.learner.*'.

    Returns:
      What differs only because it is allowed.
    """
    patterns = [_pattern(path) for path in allowed]
    for path, pattern in zip(allowed, patterns, strict=True):
        if not any(pattern.fullmatch(name) for name in (*_paths(stored), *_paths(now))):
            raise ValueError(f'--allow_change={path} names no value of the experiment; write a '
                             f'path as --set has it, with * for any text, as task.learner.*.')

    def forbidden(differences: list[Difference]) -> list[Difference]:
        return [difference for difference in differences
                if not any(pattern.fullmatch(difference[0]) for pattern in patterns)]

    fixed = _fixed_differences(stored, now)
    changed = forbidden(fixed)
    if changed and forbidden(_fixed_differences(_with_one_replica(stored), _with_one_replica(now))):
        raise ValueError(
            f'it holds a run whose {differences_text(changed)} differ; its checkpoints would not '
            f'mean the same. Set them back, or choose another logdir ({_taking_text(changed)})'
            f'{_allowing_text(changed)}.')
    return [difference for difference in fixed if difference not in changed]


def why_plan_matters(pipeline: PipelineParams) -> str:
    """The values for which results depend on the plan; '' if they do not."""
    return ' and '.join(f'pipeline.{name}={getattr(pipeline, name)}'
                        for name in ('wire_dtype', 'jit_compile', 'use_graph_optimizer')
                        if getattr(pipeline, name) not in (False, 'as_is'))


def warn_of_plan(stored: Experiment.Params, now: Experiment.Params) -> None:
    """Warns if the plan may differ from that before, and the results depend on it."""
    changed = [difference for difference in diff(stored.pipeline, now.pipeline, 'pipeline')
               if _CHANGES_PLAN.fullmatch(difference[0])]
    before, after = (layout_of(params.pipeline.devices) for params in (stored, now))
    if before and after and before != after:
        changed.append(('the devices of cells', before, after))
    if changed and (reasons := why_plan_matters(now.pipeline)):
        logging.warning('with %s, results depend on where the network is cut and on what else the '
                        'plan says, and %s differ: the results of this run may differ from those '
                        'without the change', reasons, differences_text(changed))


def _pattern(path: str) -> re.Pattern[str]:
    """Matches the paths that a path with * means."""
    return re.compile(re.escape(path).replace(r'\*', '.*'), re.DOTALL)


def _taking_text(changed: Sequence[Difference]) -> str:
    """How another run takes the weights along."""
    text = 'initialize_from takes its weights along'
    if any(before is not None and _MAKES_ADAPTERS.fullmatch(path) for path, before, _ in changed):
        text += (' if the new run has the same adapters, or more; if not, begin with a '
                 'hugging_face export of it, which merges them')
    return text


def _allowing_text(changed: Sequence[Difference]) -> str:
    """How to let values differ; '' if a checkpoint would not fit then."""
    for path, before, now in changed:
        has_averages = path == 'task.learner.ema_decay' and None in (before, now)
        has_other_adapters = _MAKES_ADAPTERS.fullmatch(path) and not path.endswith('.alpha')
        if has_averages or has_other_adapters or path in _NOT_OFFERED:
            return ''
    paths = [path for path, _, _ in changed[:NUM_DIFFERENCES_SHOWN]]
    return f', or let them differ with {" ".join(map("--allow_change={}".format, paths))}'


def _paths(params: Experiment.Params) -> list[str]:
    """The paths of all values of the Params."""
    return [line.partition(' : ')[0] for line in params.to_text().splitlines()]


def differences_text(changed: Sequence[Difference]) -> str:
    """The first differences that `diff` has found, as a part of a sentence."""
    listed = ', '.join(f'{path} (was {before!r}, is {now!r})'
                       for path, before, now in changed[:NUM_DIFFERENCES_SHOWN])
    return f'{listed}{" and others" if len(changed) > NUM_DIFFERENCES_SHOWN else ""}'


def _fixed_differences(stored: Experiment.Params, now: Experiment.Params) -> list[Difference]:
    """Differences of Params that must stay the same in a run."""
    return [difference for difference in diff(stored, now)
            if not MAY_CHANGE.fullmatch(difference[0])]


def _with_one_replica(params: Experiment.Params) -> Experiment.Params:
    """The experiment, or the one without replicas that gives the same bits."""
    params = params.copy()
    p = params.pipeline
    if not (p.cross_replica_batch_norm and p.num_replicas > 1):
        p.set(num_micro_batches=p.num_replicas * p.num_micro_batches,
              sum_groups=p.num_replicas * p.sum_groups,
              num_replicas=1, cross_replica_batch_norm=False)
    return params
