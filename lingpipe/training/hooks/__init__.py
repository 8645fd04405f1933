"""Hooks: what an experiment has called while it trains: after steps, evaluations, checkpoints.

    Experiment.Params(..., hooks=(hooks.CSV.Params(), hooks.EarlyStopping.Params(patience=3)))

    hook.py                Hook, the base of all, and what a hook may look at
    hook_calls.py          calls the hooks of a run, and deals with those that raise
    csv_file.py            CSV: a line for every step, and one for every evaluation
    early_stopping.py      EarlyStopping: ends a run whose metric gets no better
    histograms.py          Histograms: weights and what optimizers keep, for TensorBoard
    weights_and_biases.py  WeightsAndBiases: needs the package wandb
    mlflow_run.py          MLflow: needs the package mlflow

Hooks run in the trainer's process only, between steps. What they look at they may not change: the
weights of a step are the same whatever hooks there are.
"""
from lingpipe.training.hooks.csv_file import CSV
from lingpipe.training.hooks.early_stopping import EarlyStopping
from lingpipe.training.hooks.histograms import Histograms
from lingpipe.training.hooks.hook import Hook, HookedRun
from lingpipe.training.hooks.mlflow_run import MLflow
from lingpipe.training.hooks.weights_and_biases import WeightsAndBiases

__all__ = [
    'CSV', 'EarlyStopping', 'Histograms', 'Hook', 'HookedRun', 'MLflow', 'WeightsAndBiases',
]
