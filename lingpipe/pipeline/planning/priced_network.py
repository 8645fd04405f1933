"""Priced network: what is known of a network before it is cut, its layers' time and memory."""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping

from lingpipe.layers.nested import Nested
from lingpipe.layers.sequential import Sequential
from lingpipe.layers.weight import Weight
from lingpipe.pipeline.planning.dataflow import Element, residuals_of, wire
from lingpipe.pipeline.planning.fitting_partition import MAX_TRIED
from lingpipe.pipeline.planning.kept_tensors import CellGraph, cell_graph
from lingpipe.pipeline.planning.layer_times import LayerTimes, layer_times
from lingpipe.pipeline.planning.memory import Memory
from lingpipe.pipeline.planning.micro_batches import check_state, check_whole, split_spec
from lingpipe.pipeline.planning.pipeline_params import PipelineParams


@dataclasses.dataclass(frozen=True, eq=False)
class PricedNetwork:
    """What is known of a network before it is cut.

    Attributes:
      params: K, M and the rest.
      elements: its layers, wired for one micro-batch.
      times: of its layers.
      memory: what cells of its layers hold.
      graphs: the graphs of its cells, if they are shared with other Params.
      splits: whether a schedule may split backwards. Whole ones hold less.
    """
    params: PipelineParams
    elements: tuple[Element, ...]
    times: LayerTimes
    memory: Memory
    graphs: Callable[[range], CellGraph] | None = None
    splits: bool = True

    @functools.cached_property
    def graph_of(self) -> Callable[[range], CellGraph]:
        """A function of the layers of a cell: the graph from which to choose what it keeps."""
        return self.graphs or cell_graphs(self.elements, self.times, self.memory)


def cell_graphs(elements: tuple[Element, ...], times: LayerTimes,
                memory: Memory) -> Callable[[range], CellGraph]:
    """A function of the layers of a cell; it makes each graph once.

    Cells of layers that are alike share their minimum cuts.

    Args:
      elements, times, memory: as of PricedNetwork.
    """
    first_alike: dict[Hashable, CellGraph] = {}

    @functools.lru_cache(maxsize=MAX_TRIED)
    def graph_of(span: range) -> CellGraph:
        layers = slice(span.start, span.stop)
        graph = cell_graph(elements[layers], memory.recipes[layers], times.forward[layers])
        first = first_alike.setdefault((graph.tensors, graph.ops, graph.needed), graph)
        return dataclasses.replace(graph, cheapest_sets=first.cheapest_sets)

    return graph_of


def price(network: Sequential, batch_spec: Mapping[str, Nested], params: PipelineParams,
          is_frozen: Callable[[str], bool], slot_bytes: Callable[[Weight], int],
          update_bytes: Callable[[Weight, bool], int]) -> PricedNetwork:
    """A network that is wired, timed and counted; arguments as of `make_plan`."""
    elements = wire_parts(network, batch_spec, params, is_frozen)
    return PricedNetwork(params, elements, layer_times(elements, params),
                         memory_of(elements, params, slot_bytes, update_bytes))


def wire_parts(network: Sequential, batch_spec: Mapping[str, Nested], params: PipelineParams,
               is_frozen: Callable[[str], bool] = lambda path: False) -> tuple[Element, ...]:
    """The elements of a network for one micro-batch; arguments as of `make_plan`.

    Raises:
      ValueError: R M does not divide the batch, or a layer cannot be given a part of it.
    """
    check_whole(network, params.num_micro_batches, params.num_replicas)
    check_state(network, params.num_micro_batches * params.num_replicas)
    micro_batch_spec = split_spec(batch_spec, params.num_micro_batches, params.num_replicas)
    return wire(network, micro_batch_spec, is_frozen,
                num_parts=params.num_micro_batches * params.num_replicas)


def memory_of(elements: tuple[Element, ...], params: PipelineParams,
              slot_bytes: Callable[[Weight], int],
              update_bytes: Callable[[Weight, bool], int]) -> Memory:
    """What cells of a network that is wired would hold; arguments as of `make_plan`."""
    return Memory(
        elements,
        residuals=functools.partial(residuals_of, elements),
        slot_bytes=slot_bytes,
        update_bytes=update_bytes,
        num_replicas=params.num_replicas,
        is_summed_in_groups=params.sum_groups > 1,
        receives_gradients=params.replica_reduction == 'add',
        shards_slots=params.shard_slots)
