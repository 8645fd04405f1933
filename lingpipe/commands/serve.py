"""Serve: a worker serves the cells of runs that name its address; it ends with a signal."""
from __future__ import annotations

import functools
from typing import NoReturn

from lingpipe.cluster import server
from lingpipe.commands.device_setup import listening_address
from lingpipe.commands.run_options import RunOptions
from lingpipe.input import readers
from lingpipe.training.experiment import Experiment


def serve(params: Experiment.Params | None, options: RunOptions) -> NoReturn:
    """Serves at --address.

    Args:
      params: say how many threads an op has, as in the run; None: one thread.
      options: the trainer's.

    Raises:
      ValueError: --address is missing or wrong, or --devices names none that the worker has.
      OSError: the worker cannot listen there.
    """
    if not options.address:
        raise ValueError('--address is missing; name the address that the worker listens at, as '
                         '127.0.0.1:2222.')
    server.check_gpus(options.devices)
    config = server.session_config(
        options.devices, params.intra_op_threads if params else 1,
        params.pipeline.use_graph_optimizer if params else False)
    offer = functools.partial(readers.offer_in_worker, config)
    server.serve(listening_address(options.address), config, options.hangs_after_s, offer)
