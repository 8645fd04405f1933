"""Cluster: the devices of cells, in this process or in workers on this and other machines.

One controller, which is the trainer, builds the graph of a step and, unless workers do, reads the
input. Workers are TensorFlow servers, which hold the weights of their cells and run their tasks.

    devices.py         what --devices says
    addresses.py       the addresses of workers, from TF_CONFIG, Slurm or Kubernetes
    ports.py           which ports of this machine are free, and how others reach them
    workers.py         what the controller asks and tells a worker
    client.py          the controller's connection to its workers
    at_once.py         calls of several workers at the same time
    services.py        the calls that the controller makes to workers
    server.py          the worker's side
    address_filter.py  at which addresses of this machine a server is reached
    user_filter.py     which users of this machine a server lets in
    admission.py       the same on kernels that let few processes filter connections
    watchdog.py        a time limit for steps
    returned.py        whether workers that were missing answer again

Threads, logical CPUs and Grappler are set in process/tensorflow_settings.py.

TensorFlow's gRPC has neither passwords nor encryption: anyone who reaches the port of a worker or
of a controller can run any op there, and ops can read and write files. Servers therefore listen at
loopback unless they are told otherwise, and let in no other user of the same machine. With several
machines, use a network of their own (a VLAN, a VPN, or a Kubernetes NetworkPolicy, which
lingpipe.tools.launch_kubernetes writes), or a firewall that admits only these machines.
"""
from lingpipe.process.tensorflow_settings import (
    HOME,
    MAX_DEVICES,
    StartedTooEarlyError,
    check_devices,
    configure,
    default_devices,
    expected_devices,
    place,
    set_graph_optimizer,
)

__all__ = ['HOME', 'MAX_DEVICES', 'StartedTooEarlyError', 'check_devices', 'configure',
           'default_devices', 'expected_devices', 'place', 'set_graph_optimizer']
