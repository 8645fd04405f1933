"""Announced checkpoints: the checkpoints of a run; its hooks are told of each that is whole."""
from __future__ import annotations

from lingpipe.training.run import Run
from lingpipe.training.saved_state import SavedState
from lingpipe.training.step_counts import StepCounts
from lingpipe.training.training_batches import TrainingBatches


class AnnouncedCheckpoints:
    """Saves the state of a run, and tells the hooks when the checkpoint is whole on the disk."""

    def __init__(self, run: Run, saved: SavedState, batches: TrainingBatches):
        self._run, self._saved, self._batches = run, saved, batches
        self._unannounced = 0   # the step of a checkpoint of which no hook was told

    def save(self, counts: StepCounts, is_at_end: bool = False) -> None:
        """Saves the state after a step, if it is not saved; at the end, waits until it is.

        Raises:
          OSError: at the end: it cannot be written.
        """
        if not self._saved.is_saved(counts.step):
            self.check(is_at_end=True)   # Of the checkpoint before.
            self._run.site.begin(f'the checkpoint of step {counts.step}')
            self._batches.save()
            self._saved.save(counts, is_at_end)
            self._unannounced = counts.step

    def check(self, is_at_end: bool = False) -> None:
        """Says what went wrong with the checkpoint that is being written, or announces it.

        At the end, it waits for the checkpoint.
        """
        self._saved.check(is_at_end)
        step, hooks, checkpointer = self._unannounced, self._run.hooks, self._run.checkpointer
        if hooks and step and step in checkpointer.steps():
            self._unannounced = 0
            hooks.checkpoint(step, checkpointer.path(step))
