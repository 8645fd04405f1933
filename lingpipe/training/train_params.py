"""TrainParams: how long a run trains, and what happens between its steps and how often."""
from __future__ import annotations

from lingpipe.hyperparams import Params, field


class TrainParams(Params):
    """Lengths and intervals of a run, in steps unless the name says otherwise."""
    num_steps: int = field(
        1000, 'Updates, including those made before the run was resumed.', least=0)
    checkpoint_every_steps: int = field(
        1000, 'Steps between two checkpoints; there is always one at the end.', least=1)
    keep: int = field(
        3, 'How many of the newest checkpoints stay. The best one stays too, and so does one with '
           'which a step was finite.', least=1)
    eval_every_steps: int = field(
        0, 'Steps between two evaluations; 0: only at the end.', least=0)
    summary_every_steps: int = field(
        100, 'Steps between two summaries for TensorBoard.', least=1)
    log_every_s: float = field(
        10.0, 'Seconds between two lines of progress.', least=0, most=10**9)
    check_replicas_every_steps: int = field(
        0, 'Steps between two comparisons of all replicas, bit by bit; 0: none.', least=0)
    timeline_step: int | None = field(
        None, 'The last of the few steps whose tasks are timed and drawn, with a breakdown of '
              'their time; none: no step.', least=1)
    checkpoint_in_background: bool = field(
        True, 'Whether steps go on while a checkpoint is written. It is written from copies, which '
              'take the memory of weights and slots once more until then.')
    step_timeout_s: float = field(
        600.0, 'Seconds that a step on workers may take before they count as lost. The first four '
               'steps of a process, of which one is traced, and steps that are timed may take as '
               'long as all workers answer.', least=0.1, most=10**9)
    worker_timeout_s: float = field(
        300.0, 'Seconds to wait for workers that do not answer, at the start and after one was '
               'lost.', least=0, most=10**9)
    elastic_after_s: float | None = field(
        None, 'Seconds after which a run goes on without workers that do not answer, at the start '
              'and after one was lost, with fewer cells or replicas but the same results. They are '
              'taken in again at a checkpoint once they answer. None: it waits for them.',
        least=1, most=10**6)
    best_input: str = field(
        '', 'The eval input whose best_metric says which checkpoint is best; empty: the first by '
            'name.')

    def saves_before_end(self, step: int) -> bool:
        """Whether a run that is at `step` saves another checkpoint before that of the last step."""
        return any(every and step // every * every + every < self.num_steps
                   for every in (self.checkpoint_every_steps, self.eval_every_steps))
