"""Keys of links: an authority of one job, and a key with its certificate for each end.

The authority's own key is forgotten once it has signed, so no end can be added later. The command
openssl makes them: Python's ssl reads certificates and makes none.
"""
from __future__ import annotations

import os
import pathlib
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Sequence

AUTHORITY, CERTIFICATE, KEY = 'ca.pem', 'cert.pem', 'key.pem'
DAYS = 365
_PROGRAMS = {'stunnel': 'stunnel (Debian: stunnel4)', 'openssl': 'openssl'}
_NEW_KEY = ('-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes')


def missing(program: str) -> str:
    """Returns why a program cannot be run here, or ''."""
    if shutil.which(program):
        return ''
    return f'the command {program} is missing; install the package {_PROGRAMS[program]}'


def make(names: Sequence[str], folder: pathlib.Path, days: int) -> None:
    """Makes a folder for each name, with its key, its certificate and that of the authority.

    Only this user can read them.

    Args:
      names: what the certificates say, of up to 64 characters each.
      folder: gets the folders; none of them may be there yet.
      days: how long the certificates are valid.

    Raises:
      OSError: openssl is missing or fails, or a folder is there.
    """
    if missing('openssl'):
        raise OSError(f'{missing("openssl")}.')
    before = os.umask(0o077)
    try:
        for name in names:
            (folder / name).mkdir(parents=True)
        with tempfile.TemporaryDirectory() as authority:
            _openssl(authority, 'req', '-x509', *_NEW_KEY, '-subj', '/CN=lingpipe links', '-days',
                     str(days), '-keyout', 'ca.key', '-out', AUTHORITY)
            for name in names:
                home = (folder / name).absolute()
                _openssl(authority, 'req', *_NEW_KEY, '-subj', f'/CN={name}', '-keyout',
                         f'{home}/{KEY}', '-out', 'request.pem')
                _openssl(authority, 'x509', '-req', '-in', 'request.pem', '-CA', AUTHORITY,
                         '-CAkey', 'ca.key', '-CAcreateserial', '-days', str(days), '-out',
                         f'{home}/{CERTIFICATE}')
                shutil.copyfile(f'{authority}/{AUTHORITY}', home / AUTHORITY)
    finally:
        os.umask(before)


def write(path: pathlib.Path, text: str) -> None:
    """Writes a new file that only this user can read; raises OSError if it is there already."""
    with open(path, 'x', encoding='utf-8',
              opener=lambda name, how: os.open(name, how, mode=0o600)) as file:
        file.write(text)


def _openssl(folder: str, *words: str) -> None:
    """Runs the command openssl; raises OSError if it fails."""
    done = subprocess.run(['openssl', *words], cwd=folder, capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise OSError(f'openssl {words[0]} failed: {done.stderr.strip()}')


def why_not(folder: pathlib.Path) -> str:
    """Returns why the other ends would refuse the keys of a folder, or ''.

    They would if a file is missing or damaged, if the certificate has expired, and if it is another
    authority's than the one beside it. To find out, a client and a server with these files meet in
    memory.
    """
    try:
        client_side = ssl.create_default_context(cafile=str(folder / AUTHORITY))
        client_side.check_hostname = False
        client_side.verify_flags &= ~ssl.VERIFY_X509_STRICT   # as in stunnel; Python 3.13 sets it
        server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_side.load_cert_chain(folder / CERTIFICATE, folder / KEY, password=lambda: '')

        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = server_side.wrap_bio(to_server, to_client, server_side=True)
        client = client_side.wrap_bio(to_client, to_server)
        for end in (client, server, client):   # the client's first words, the answer, its verdict
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    except ssl.SSLCertVerificationError as error:
        return f'{CERTIFICATE} does not fit {AUTHORITY}: {error.verify_message}'
    except OSError as error:
        return str(error.strerror)
    return ''
