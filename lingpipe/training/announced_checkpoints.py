"""Announced checkpoints: saves the checkpoints of a run, and tells its hooks of each whole one."""
from __future__ import annotations

from lingpipe.training.run import Run
from lingpipe.training.saved_state import SavedState
from lingpipe.training.step_counts import StepCounts
from lingpipe.training.training_batches import TrainingBatches


class AnnouncedCheckpoints:
    """Saves the state of a run, and tells the hooks when the checkpoint is whole on the disk."""

    def __init__(self, run: Run, saved: SavedState, batches: TrainingBatches):
        self._run, self._saved, self._batches = run, saved, batches
        self._unannounced = 0   # the step of a checkpoint that no hook has been told of

    def save(self, counts: StepCounts, is_at_end: bool = False) -> None:
        """Saves the state after a step, unless it is saved; at the end, waits until that is done.

        Raises:
          OSError: the checkpoint at the end cannot be written.
        """
        if not self._saved.is_saved(counts.step):
            self.check(is_at_end=True)   # The one before may still be being written.
            self._run.site.begin(f'the checkpoint of step {counts.step}')
            self._batches.save()
            self._saved.save(counts, is_at_end)
            self._unannounced = counts.step

    def check(self, is_at_end: bool = False) -> None:
        """Announces the last checkpoint once it is written, or reports why it could not be.

        At the end, it waits for the checkpoint.
        """
        self._saved.check(is_at_end)
        step, hooks, checkpointer = self._unannounced, self._run.hooks, self._run.checkpointer
        if hooks and step and step in checkpointer.steps():
            self._unannounced = 0
            hooks.checkpoint(step, checkpointer.path(step))
