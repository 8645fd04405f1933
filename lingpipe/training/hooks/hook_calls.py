"""Hook calls: calls the hooks of a run in their order, and deals with those that raise."""
from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from lingpipe.process.error_text import sentence
from lingpipe.training.hooks.hook import Hook, HookedRun, How


class HookError(ValueError):
    """A hook has raised an error, and its Params say that the run stops then."""


class HookCalls:
    """The hooks of one process's part of a run.

    Attributes:
      failure: the error with which the run must end; None as long as there is none.
    """

    def __init__(self, hooks: Sequence[Hook], run: HookedRun):
        self.failure: HookError | None = None
        self._hooks, self._run = list(hooks), run

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def start(self, step: int) -> None:
        """Calls on_start."""
        for hook in self._hooks[:]:
            with self._handled(hook, 'on_start', step):
                hook.on_start(self._run, step)

    def want_gradients(self, step: int) -> bool:
        """Whether a hook whose turn it is reads the gradients of this step."""
        return any(hook.wants_gradients for hook in self._whose_turn(step))

    def step(self, step: int, results: Mapping[str, float],
             gradients: Mapping[str, np.ndarray]) -> None:
        """Calls on_step of those whose turn it is."""
        run = dataclasses.replace(self._run, gradients=gradients)
        for hook in self._whose_turn(step):
            with self._handled(hook, 'on_step', step):
                hook.on_step(run, step, dict(results))

    def evaluation(self, step: int, name: str, metrics: Mapping[str, float]) -> None:
        """Calls on_evaluation."""
        for hook in self._hooks[:]:
            with self._handled(hook, 'on_evaluation', step):
                hook.on_evaluation(self._run, step, name, dict(metrics))

    def checkpoint(self, step: int, path: str) -> None:
        """Calls on_checkpoint."""
        for hook in self._hooks[:]:
            with self._handled(hook, 'on_checkpoint', step):
                hook.on_checkpoint(self._run, step, path)

    def end(self, step: int, how: How) -> None:
        """Calls on_end, once."""
        for hook in self._hooks[:]:
            with self._handled(hook, 'on_end', step):
                hook.on_end(self._run, how)
        self._hooks.clear()

    def _whose_turn(self, step: int) -> list[Hook]:
        return [hook for hook in self._hooks if step % hook.params.every_steps == 0]

    @contextlib.contextmanager
    def _handled(self, hook: Hook, method: str, step: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:   # Hooks are anyone's code.
            self._hooks = [other for other in self._hooks if other is not hook]
            what = f'{type(hook).__name__}.{method} fails after step {step}: {sentence(error)}'
            if hook.params.on_error == 'go_on':
                self._run.say(f'hook {what.rstrip(".")}. The run goes on without it.')
            elif self.failure is None:
                self.failure = HookError(
                    f'the hook {what.rstrip(".")}. The run stops, as its on_error=stop says; '
                    f'correct the hook or leave it out, and the run goes on from its last '
                    f'checkpoint.')
                self.failure.__cause__ = error
