"""Chosen plan: the Params of a run whose plan is left to the planner.

A new run takes the fastest plan that --mode=plan finds. Another process looks for it, since timing
layers starts TensorFlow, whose devices depend on the plan. A run that is resumed keeps its plan, or
its checkpoints might not mean the same.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys

from absl import logging

from lingpipe.commands.plan_freedom import freedom
from lingpipe.commands.run_options import RunOptions
from lingpipe.pipeline.planning.search_space import FREE
from lingpipe.training import recorded_params
from lingpipe.training.experiment import Experiment

# What a plan consists of, besides the fields that a planner is free to choose.
_CONSEQUENCES = ('layers_per_cell', 'layer_seconds', 'layer_backward_seconds')


def with_plan(params: Experiment.Params, options: RunOptions) -> Experiment.Params:
    """The Params with the values that the planner chooses, frozen.

    Raises:
      ValueError: nothing fits, or the values that are set exclude each other.
    """
    allowed = freedom(options)
    stored = recorded_params.recorded(options.logdir) if options.logdir else None
    if stored is not None:
        planned = params.copy()
        has_changed = any(getattr(params.pipeline, name) != getattr(stored.pipeline, name)
                          for name in allowed.given.intersection(FREE))
        for name in (*allowed.free, *(() if has_changed else _CONSEQUENCES)):
            if name not in allowed.given:
                planned.pipeline[name] = getattr(stored.pipeline, name)
        return planned.freeze()
    if options.mode in ('eval', 'decode', 'predict', 'export'):
        # They say themselves that nothing is there.
        return params

    flags = best_flags(options)
    logging.info('the planner chose %s', ' '.join(flags))
    return params.copy().override_all(
        flag.removeprefix('--set=') for flag in flags).freeze()


def best_flags(options: RunOptions) -> list[str]:
    """The --set flags of the best plan, which another process finds.

    Raises:
      ValueError: it finds none.
    """
    if not options.model or options.model.startswith('__main__.'):
        raise ValueError('the planner times layers in another process, which cannot import an '
                         'experiment of a notebook or script, nor be given Python objects; put the '
                         'experiment into a module, or set num_cells and the like yourself.')
    path = os.pathsep.join(filter(None, sys.path))   # A script's folder is on the path of no other.
    done = subprocess.run(
        [sys.executable, '-m', 'lingpipe.trainer', *options.command_line, '--mode=plan', '--json'],
        capture_output=True, text=True, check=False, env={**os.environ, 'PYTHONPATH': path})
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ['it said nothing']
        raise ValueError(lines[-1].removeprefix('trainer: '))
    flags: list[str] = json.loads(done.stdout)['plans'][0]['flags']
    return flags
