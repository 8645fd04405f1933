"""Serve: a worker serves the cells of trainings that name its address; it ends with a signal."""
from __future__ import annotations

from typing import Any

from lingpipe.cluster import addresses, server


def serve(params: Any | None, values: Any) -> int:
    """Serves at --address; the experiment, if there is one, says how many threads an op has, as in the training."""
    if not values.address:
        raise ValueError('--address is missing; name the address that the worker listens at, as 127.0.0.1:2222.')
    server.check_gpus(values.devices)
    config = server.session_config(values.devices, params.intra_op_threads if params else 1,
                                   params.pipeline.use_graph_optimizer if params else False)
    address = addresses.own_address(values.address) if addresses.SOURCES.fullmatch(values.address) else values.address
    server.serve(address, config, values.hangs_after_s)
