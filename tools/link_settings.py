"""Settings of links: the address of every process on loopback, and what stunnel is told.

Workers and trainer listen on loopback, each at another port. Every machine, or pod, reaches all of
them on its own loopback, at the same addresses: worker i at 127.0.0.1:(port + i), and the trainer
after the last worker. stunnel carries what comes there to the machine of that process, encrypted.
"""
from __future__ import annotations

import dataclasses

# Settings that both ends share. stunnel's limits would cut links that have nothing to send.
BOTH_ENDS = '''foreground = yes
pid =
syslog = no
debug = warning
sslVersionMin = TLSv1.3
CAfile = ca.pem
cert = cert.pem
key = key.pem
verifyChain = yes
TIMEOUTidle = 2000000000
socket = l:TCP_NODELAY=1
socket = r:TCP_NODELAY=1
'''


@dataclasses.dataclass(frozen=True)
class Loopback:
    """The addresses at which each machine reaches all processes on its own loopback.

    Attributes:
      num_workers: how many workers there are; the trainer's place follows theirs.
      port: of worker 0.
    """
    num_workers: int
    port: int

    @property
    def last_port(self) -> int:
        """The trainer's port."""
        return self.port + self.num_workers

    def address(self, place: int) -> str:
        """Returns the address of worker number `place`, or the trainer's after the last."""
        return f'127.0.0.1:{self.port + place}'

    @property
    def workers(self) -> str:
        """The addresses of all workers, as --devices takes them."""
        return ','.join(map(self.address, range(self.num_workers)))

    @property
    def trainer(self) -> str:
        """The trainer's address."""
        return self.address(self.num_workers)


def inward(name: str, accept: str, connect: str) -> str:
    """Returns the settings of an end that takes connections from the network to loopback."""
    return f'[{name}]\naccept = {accept}\nconnect = {connect}\n'


def outward(connect: str, certificate: str) -> str:
    """Returns the settings of an end that connects to another machine.

    Args:
      connect: the address of that machine's end.
      certificate: the name that the certificate there must have.
    """
    return f'client = yes\ncheckHost = {certificate}\nconnect = {connect}\n'
