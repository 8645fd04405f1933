"""Serve: a worker serves the cells of runs that name its address; it ends with a signal."""
from __future__ import annotations

import functools
from typing import NoReturn

from lingpipe.cluster import server
from lingpipe.commands.device_setup import listening_address
from lingpipe.commands.experiment_params import read_params
from lingpipe.commands.run_options import RunOptions
from lingpipe.input import readers
from lingpipe.process import environment, tensorflow_settings
from lingpipe.training import registry

# Environment variable 'THREADS GRAPH_OPTIMIZER': what the Params of --model say; see _settings.
_KNOWN = 'LINGPIPE_WORKER_SETTINGS'


def serve(options: RunOptions) -> NoReturn:
    """Serves at --address, with the settings of --model or, without it, with one thread an op.

    Raises:
      ValueError: --address is missing or wrong, --devices names none that the worker has, or
        there is no such experiment.
      OSError: the worker cannot listen there.
    """
    if not options.address:
        raise ValueError('--address is missing; name the address that the worker listens at, as '
                         '127.0.0.1:2222.')
    server.check_gpus(options.devices)
    config = server.session_config(options.devices, *_settings(options))
    load = functools.partial(registry.find, options.model) if options.model else None
    offer = functools.partial(readers.offer_in_worker, config, load)
    server.serve(listening_address(options.address), config, options.hangs_after_s, offer)


def _settings(options: RunOptions) -> tuple[int, bool]:
    """The threads of an op, and whether the graph optimizer is on, as in the run.

    Making the Params may start TensorFlow, as building a layer of Keras does. Such a process cannot
    fork servers any more, so it starts again and is told what the Params say.
    """
    if known := environment.left(_KNOWN):
        num_threads, has_graph_optimizer = map(int, known.split())
        return num_threads, bool(has_graph_optimizer)
    if not options.model:
        return 1, False
    params = read_params(options)
    settings = params.intra_op_threads, params.pipeline.use_graph_optimizer
    if tensorflow_settings.has_started():
        environment.leave(_KNOWN, '{} {:d}'.format(*settings))
        environment.start_trainer(options.command_line)
    return settings
