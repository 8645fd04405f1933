"""Early start: what the trainer does if TensorFlow starts while an experiment's Params are made.

TensorFlow makes its logical devices when it starts, and building a layer of Keras starts it. How
many devices there must be is in the Params, which are not known then. So the trainer starts itself
again with the same command, and makes the devices first. Only a process that has not imported
TensorFlow before may do so: others belong to somebody else, such as a notebook.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from lingpipe.process import environment

# Environment variable 'CPUS THREADS': what is configured before the Params are made.
_RESERVED = 'LINGPIPE_CPUS_AND_THREADS'


def run(command: Callable[[], int], flags: Sequence[str]) -> int:
    """Returns what the command returns, if need be in another process that makes devices first.

    Args:
      command: makes the Params, and then configures TensorFlow for them.
      flags: those of this process, which the other one gets.

    Raises:
      StartedTooEarlyError: TensorFlow has started too early, and another process is no remedy.
    """
    may_start_again = 'tensorflow' not in sys.modules and not environment.left(_RESERVED)
    if reserved := environment.left(_RESERVED):
        from lingpipe import cluster  # It imports TensorFlow, which takes seconds.
        num_cpu_devices, intra_op_threads = map(int, reserved.split())
        cluster.configure(num_cpu_devices, intra_op_threads)
    try:
        return command()
    except ValueError as error:
        from lingpipe import cluster
        if not may_start_again or not isinstance(error, cluster.StartedTooEarlyError):
            raise
        environment.leave(_RESERVED, f'{error.num_cpu_devices} {error.intra_op_threads}')
    environment.start_trainer(flags)
