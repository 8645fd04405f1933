"""Evaluator: a program's network forward only, pipelined over the same devices."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from lingpipe.cluster import HOME
from lingpipe.layers import nested
from lingpipe.pipeline.execution import results
from lingpipe.pipeline.execution.accumulators import Accumulators
from lingpipe.pipeline.execution.bad_ids import BadId, find_bad_id
from lingpipe.pipeline.execution.cell_trace import CellTracer
from lingpipe.pipeline.execution.compiled_task import CompiledTask
from lingpipe.pipeline.execution.mean_weight import MeanWeight, asked_for
from lingpipe.pipeline.execution.placed import placed
from lingpipe.pipeline.execution.step_graph import Ran, check_batch, explained, run_tasks
from lingpipe.pipeline.execution.traffic import Traffic, forward_traffic
from lingpipe.pipeline.execution.wire import Wire
from lingpipe.pipeline.planning import plan as plan_lib
from lingpipe.pipeline.planning.cell import Cell
from lingpipe.pipeline.planning.schedules import forward_only
from lingpipe.pricing import trace

if TYPE_CHECKING:
    from lingpipe.pipeline.execution.program import Program


class Evaluator:
    """The evaluation step of a Program; with the moving averages of the weights where the learner keeps them.

    The constructor plans the step, which tells whether the network can run on such mini-batches.
    The first step traces it.
    """

    def __init__(self, program: Program, batch_spec: dict[str, Any], num_micro_batches: int, fetch: Sequence[str]):
        """As Program.evaluator."""
        size = nested.leaves(batch_spec)[0].shape[0]
        m = program.plan.params.num_micro_batches
        m = num_micro_batches or (m if size and size % m == 0 else 1)
        params = program.plan.params.copy()
        params.set(num_micro_batches=m, num_replicas=1, sum_groups=1, devices=(), recompute='none', device_bytes=None)
        params.layers_per_cell = tuple(len(cell.elements) for cell in program.plan.cells)
        plan = plan_lib.make_plan(program.network, batch_spec, params, [c.device for c in program.plan.cells])
        fetched = {name: value for element in plan.elements for name, value in element.writes.items() if name in fetch}
        for name in fetch:
            if name not in fetched:
                raise ValueError(f'no layer writes {name!r}; there are {", ".join(sorted({n for e in plan.elements for n in e.writes}))}.')
            fetched[name].readers.append(len(plan.elements))
        self._program, self._plan, self._batch_spec, self._fetched = program, plan, batch_spec, fetched
        self._is_broken = False
        self._accumulators: list[Accumulators] = []
        self._run: Callable[[dict[str, Any]], Ran] | None = None
        self._step: Any = None

    @property
    def counts_copies(self) -> bool:
        """Whether copies that fill up a mini-batch would change losses or metrics, though of weight 0."""
        layers = self._program.network.layers()
        return any(layer.counts_copies or layer.needs_whole_batch for layer in layers)

    def check(self, batch: dict[str, Any]) -> BadId | None:
        """Raises ValueError for a mini-batch of another spec; returns an id in it that a layer cannot use, if there is one."""
        return find_bad_id(self._plan.elements, check_batch(batch, self._batch_spec))

    def names_without(self, metric: str) -> list[str]:
        """The names of the losses and metrics that `step` will give; [] as soon as `metric` is found to be one of them.

        Each layer is traced by itself, the last first, which is most often the one that has the
        metric.
        """
        losses: list[str] = ['loss']
        metrics: list[tuple[str, str]] = []
        if metric == 'loss':
            return []
        for element in reversed(self._plan.elements):
            made = trace(element.layer, training=False, **{argument: value.spec for argument, value in element.reads.items()})
            losses += [f'loss/{path}/{name}' for path, name in made.emissions.losses]
            metrics += made.emissions.metrics
            if metric in losses or any(metric in (name, f'{name}/{path}') for path, name in metrics):
                return []
        named = [name for _, name in metrics]
        return [*losses[:1 if len(losses) == 2 else None],   # the only one is 'loss' alone
                *(name if named.count(name) == 1 else f'{name}/{path}' for path, name in metrics)]

    def step(self, batch: dict[str, Any]) -> tuple[dict[str, tuple[tf.Tensor, tf.Tensor]], dict[str, Any]]:
        """Returns ({name: (sum, weight)} of losses and metrics, {name: value} of what is fetched, for the whole mini-batch)."""
        batch = check_batch(batch, self._batch_spec)
        if self._run is None:
            self._run, self._step = self._build()
        if self._is_broken:
            for accumulators in self._accumulators:
                accumulators.reset()
        self._is_broken = True  # If the step fails, the accumulators hold partial sums.
        with explained(self._plan.elements, batch):
            try:
                made = self._step(*nested.leaves(batch))
            except tf.errors.CancelledError:   # Often all that is said when a device fails; see Program._call.
                self._run(nested.map_leaves(tf.convert_to_tensor, batch))
                raise
        self._is_broken = False
        return made['sums'], made['outputs']

    def sent_bytes(self) -> Traffic:
        """The bytes that cross between devices in a step; see traffic.py."""
        return forward_traffic(self._cells(), self._plan.params.num_micro_batches, HOME, fetched=self._fetched.values())

    def _cells(self) -> list[Cell]:
        """The cells of the plan. They are made anew, since their outputs include what is fetched."""
        return [Cell(c.index, c.elements, c.device) for c in self._plan.cells]

    def _build(self) -> tuple[Callable[[dict[str, Any]], Ran], Any]:
        """Returns (a function that runs the tasks on a mini-batch, the traced step)."""
        program, batch_spec, fetched = self._program, self._batch_spec, self._fetched
        m = self._plan.params.num_micro_batches
        cells = self._cells()
        variables = program.placed.averaged()
        self._accumulators = [Accumulators(cell.device, []) for cell in cells]
        tasks: dict[tuple[str, int], CompiledTask] = {}
        for cell, accumulators in zip(cells, self._accumulators, strict=True):
            tracer = CellTracer(cell, program.placed.reader(cell, variables), accumulators, program.seed, 'none', training=False,
                                jit_compile=self._plan.params.jit_compile)
            forward, _ = tracer.trace([], is_fused=False)
            assert forward is not None
            tasks['F', cell.index] = forward
        mean_weight = MeanWeight(self._plan.elements, training=False) if asked_for(tasks.values()) else None

        def run(batch: dict[str, Any]) -> Ran:
            """One mini-batch through all cells: calls that are added to a graph or, eagerly, run one by one."""
            with tf.device(HOME):
                weight = mean_weight and mean_weight.of(batch, m)
            return run_tasks(forward_only(len(cells), m), cells, tasks, batch, tf.constant(0, tf.int64),
                             tf.constant(0), program.placed.shared_reader(variables), Wire(None), mean_weight=weight)

        def body(*flat: tf.Tensor) -> Any:
            """One mini-batch through all cells, and what the layers emitted."""
            ran = run(nested.pack_like(batch_spec, list(flat)))
            with tf.device(HOME):
                outputs = {name: nested.pack_like(value.spec, [tf.concat([ran.values[(value, i), j] for j in range(m)], 0)
                                                               for i in range(len(value.specs))]) for name, value in fetched.items()}
            emitted = []
            for cell, accumulators, last in zip(cells, self._accumulators, ran.last, strict=True):
                with tf.device(cell.device), tf.control_dependencies([last]):
                    emitted.append(placed(lambda a=accumulators: _read_and_reset(a))())
            with tf.device(HOME):
                return {'sums': results.named_sums(emitted), 'outputs': outputs}

        return run, tf.compat.v1.wrap_function(body, nested.leaves(batch_spec))


def _read_and_reset(accumulators: Accumulators) -> results.Emitted:
    read = nested.map_leaves(lambda t: [tf.identity(x) for x in t] if isinstance(t, tuple) else tf.identity(t), results.read(accumulators))
    accumulators.reset()
    return read
