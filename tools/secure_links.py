"""Writes and runs links between machines that strangers on the network can neither read nor use.

    python -m lingpipe.tools.secure_links --hosts=10.0.0.5,10.0.0.6 --output=links

makes a folder for every host, and prints what to start there. The links of a host are run by

    python -m lingpipe.tools.secure_links --run=links/10.0.0.5

Workers and trainer listen on loopback, each at another port. Every host reaches all of them on its
own loopback, at the same addresses:

    host A                                              host B
    trainer -- 127.0.0.1:2223 -- stunnel == network == stunnel -- 127.0.0.1:2223 -- worker of B

stunnel encrypts with TLS 1.3. Both of its ends show a certificate that --output has made for these
hosts only; nobody else can connect. Whoever can read the folder of a host can join, so copy it to
that host alone.

stunnel cannot tell which user connects to it. So this tool accepts the connections on loopback,
closes those of other users, and starts an stunnel for each of the rest, as inetd would.
"""
from __future__ import annotations

import ipaddress
import os
import pathlib
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

from lingpipe.cluster import server, user_filter
from lingpipe.process import closed_pipe
from lingpipe.tools import link_keys, link_settings, parser
from lingpipe.tools.command_line import check_folder, command
from lingpipe.tools.link_process import LinkProcess
from lingpipe.tools.link_settings import BOTH_ENDS, Loopback

_HOST = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]{0,63}')   # openssl takes as many characters.
_NUMBERS = re.compile(r'[0-9.]+')   # a host of these is an IPv4 address
_LINES = re.compile(r'((\[[0-9]+\]|[A-Za-z]+ ?= ?.*|[;#].*|)\n)*')   # of a configuration
_COPY_AGAIN = ('copy the folder of this host again, from the --output where it was made, or make '
               'new links')
_LOOK_EVERY_S = 1.


def make(hosts: Sequence[str], folder: pathlib.Path, port: int, outer_port: int, days: int) -> str:
    """Writes the folder of each host, with the configuration of stunnel and new keys.

    Args:
      hosts: names or addresses at which the hosts reach each other. The trainer is on the first.
      folder: gets a folder for every host; no file of them may be there yet.
      port: of the first worker on loopback; the others and the trainer follow.
      outer_port: of the first worker's link in the network; the others follow.
      days: how long the keys are valid.

    Returns:
      What to start on which host.

    Raises:
      ValueError: a host is no name or number, or is there twice.
      OSError: openssl is missing or fails, or a folder is there.
    """
    _check(hosts, folder, port, outer_port)
    link_keys.make(hosts, folder, days)
    loopback = Loopback(len(hosts), port)
    owners = [*hosts, hosts[0]]   # of each place: the workers and the trainer
    for host in hosts:
        here = [link_settings.inward(f'{port + i}', f'{host}:{outer_port + i}', loopback.address(i))
                for i, owner in enumerate(owners) if owner == host]
        link_keys.write(folder / host / 'here.conf', BOTH_ENDS + ''.join(here))
        for i, owner in enumerate(owners):
            if owner != host:
                to = link_settings.outward(f'{owner}:{outer_port + i}', owner)
                link_keys.write(folder / host / f'to-{port + i}.conf', BOTH_ENDS + to)
    return _advice(hosts, folder, loopback)


def _check(hosts: Sequence[str], folder: pathlib.Path, port: int, outer_port: int) -> None:
    """Raises ValueError for hosts that cannot be linked, and OSError where their folders are."""
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ValueError(f'--hosts has {host!r}; write names or IPv4 addresses with commas '
                             'between, each of up to 64 letters, digits, ., - and _.')
        if _NUMBERS.fullmatch(host) and not _is_address(host):
            raise ValueError(f'--hosts has {host!r}, which is no IPv4 address; write four numbers '
                             'from 0 to 255, as 10.0.0.5, or a name.')
    if len(set(hosts)) < max(2, len(hosts)):
        raise ValueError(f'--hosts={",".join(hosts)} has a host twice, or fewer than two; name '
                         'every host once, with commas between.')
    if max(port, outer_port) + len(hosts) > 65535:
        raise ValueError(f'{len(hosts)} hosts need as many ports and one more, and ports end at '
                         '65535; choose smaller ones.')
    for host in hosts:
        if os.path.lexists(folder / host):
            raise OSError(f'{folder / host} is there already, and keys are never replaced; name '
                          'another --output.')


def _is_address(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _advice(hosts: Sequence[str], folder: pathlib.Path, loopback: Loopback) -> str:
    """Says what to start on which host."""
    lines = []
    for i, host in enumerate(hosts):
        run_flag = shlex.quote(f'--run={folder / host}')
        lines += [f'On {host}, with a copy of {folder / host}:',
                  f'  python -m lingpipe.tools.secure_links {run_flag} &',
                  f'  python -m lingpipe.trainer --mode=worker --address={loopback.address(i)}']
    lines += [f'And on {hosts[0]}, with the flags of the run:',
              f'  python -m lingpipe.trainer --devices={loopback.workers} '
              f'--address={loopback.trainer}']
    return '\n'.join(lines)


def run(folder: pathlib.Path) -> None:
    """Runs the links of a host until SIGTERM or Ctrl-C, and ends all of their connections.

    Raises:
      OSError: stunnel is missing, ends by itself or only crashes, a port is taken, or the folder
        is not one of `make`.
    """
    if link_keys.missing('stunnel'):
        raise OSError(f'{link_keys.missing("stunnel")}.')
    if not (folder / 'here.conf').exists():
        raise OSError(f'--run={folder} has no here.conf; name the folder of this host, which '
                      '--output has made.')
    user_filter.check_system()
    _check_keys(folder)
    listeners = {_listener(port): name for name, port in _ports(folder).items()}

    stunnel = LinkProcess(lambda: _stunnel(folder, 'here.conf'))
    connections: list[subprocess.Popen[bytes]] = []
    try:
        closed_pipe.say(f'links of {folder} are up', sys.stdout)
        while True:
            ready, _, _ = select.select(list(listeners), [], [], _LOOK_EVERY_S)
            for listener in ready:
                connections += _connected(listener, folder, listeners[listener])
            connections = [one for one in connections if one.poll() is None]
            stunnel.look()
    finally:
        stunnel.end()
        for process in connections:
            process.kill()
            process.wait()
        for listener in listeners:
            listener.close()


def _ports(folder: pathlib.Path) -> dict[str, int]:
    """Returns the port on loopback of each link to another host, by the name of its configuration.

    Raises:
      OSError: a configuration is not one of `make`.
    """
    ports = {path.name: path.stem.removeprefix('to-') for path in sorted(folder.glob('to-*.conf'))}
    for name, port in ports.items():
        if not re.fullmatch('[0-9]{1,5}', port) or not 0 < int(port) < 65536:
            raise OSError(f'{folder / name} names no port; {_COPY_AGAIN}')
    for name in ('here.conf', *ports):
        text = (folder / name).read_text(encoding='utf-8', errors='replace')
        if not text.startswith('foreground = yes\n') or not _LINES.fullmatch(text):
            raise OSError(f'{folder / name} is no configuration of links; {_COPY_AGAIN}')
    return {name: int(port) for name, port in ports.items()}


def _check_keys(folder: pathlib.Path) -> None:
    """Raises OSError unless the keys of a host are whole, and of the authority beside them."""
    why_not = link_keys.why_not(folder)
    if why_not:
        raise OSError(f'the keys in {folder} cannot be used ({why_not}); {_COPY_AGAIN}')


def _listener(port: int) -> socket.socket:
    """Returns a socket that listens at a port on loopback; raises OSError if that is taken."""
    try:
        return socket.create_server(('127.0.0.1', port))
    except OSError as error:
        raise OSError(f'the links cannot listen at 127.0.0.1:{port}: {_in_words(error)}; end '
                      'the process that does, or make links with another --port.') from error


def _in_words(error: OSError) -> str:
    """Returns why, without the address that Python adds in parentheses."""
    return str(error.strerror).partition(' (')[0]


def _connected(listener: socket.socket, folder: pathlib.Path, configuration: str
               ) -> list[subprocess.Popen[bytes]]:
    """Accepts a connection; returns the stunnel that serves it, unless it is a stranger's."""
    try:
        connection, _ = listener.accept()
        with connection:
            user = user_filter.stranger(connection)
            if not user:
                return [_stunnel(folder, configuration, connection)]
    except OSError:   # the connection has ended meanwhile
        return []
    closed_pipe.say(f'{configuration}: closed a connection of {user} of this machine', sys.stderr)
    return []


def _stunnel(folder: pathlib.Path, configuration: str, connection: socket.socket | None = None
             ) -> subprocess.Popen[bytes]:
    """Starts stunnel, for one connection or for all that come; it ends with this process."""
    parent = os.getpid()
    end = connection.fileno() if connection else subprocess.DEVNULL
    return subprocess.Popen(['stunnel', configuration], cwd=folder, stdin=end, stdout=end,
                            preexec_fn=lambda: server.end_with_parent(parent, signal.SIGKILL))


@command
def main(argv: list[str] | None = None) -> None:
    """Parses the flags, and makes links or runs those of a host."""
    p = parser('secure_links', __doc__)
    p.add_argument('--hosts', default='',
                   help='names or addresses of the hosts, with commas; the trainer is on the first')
    p.add_argument('--output', default='', help='a folder; gets a folder for every host')
    p.add_number('--port', 2222, 'of the first worker on loopback; the others and the trainer '
                 'follow', least=1, most=65535)
    p.add_number('--outer_port', 2322, "of the first worker's link in the network; the others "
                 'follow', least=1, most=65535)
    p.add_number('--days', link_keys.DAYS, 'how long the keys are valid', least=1, most=36500)
    p.add_argument('--run', default='', help='the folder of this host; runs its links')
    args = p.parse_args(argv)
    if args.run:
        if args.hosts or args.output:
            p.error('--run takes what --hosts and --output have made; give either these or --run')
        run(pathlib.Path(args.run))
    else:
        if not args.hosts:
            p.error('there is nothing to do; give --hosts and --output, or --run')
        check_folder('--output', args.output)
        print(make(args.hosts.split(','), pathlib.Path(args.output), args.port, args.outer_port,
                   args.days))


if __name__ == '__main__':
    main()
