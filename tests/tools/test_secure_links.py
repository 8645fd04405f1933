"""Links between machines: this user gets through, another user and who has no key do not."""
from __future__ import annotations

import functools
import os
import pathlib
import shlex
import signal

import pytest

from lingpipe.tools import link_keys, secure_links
from lingpipe.tools.faults.network import Network
from tests.support import links
from tests.support.forks import Fork
from tests.support.links import ANSWER, ASKS, ASKS_BY_TLS, HAS_KEY, WHY_NOT
from tests.support.local_workers import server_of, wait_until

NOBODY = 65534


def run_links(namespace: str, folder: str) -> None:
    """Runs the links of a machine."""
    links.enter(namespace)
    secure_links.run(pathlib.Path(folder))


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_only_this_user_with_a_key_gets_through_the_links_of_two_machines(tmp_path):
    network = Network(2, seed=0)
    hosts = [network.host(i) for i in range(2)]
    namespaces = [links.namespace_of(network.prefix(i)) for i in range(2)]
    secure_links.make(hosts, tmp_path, port=2222, outer_port=2322, days=1)

    asks_with_key = ASKS_BY_TLS + HAS_KEY.format(tmp_path / hosts[0])
    reply = functools.partial(links.reply, network.prefix(0))

    forks = [Fork(run_links, namespace, str(tmp_path / host))
             for namespace, host in zip(namespaces, hosts, strict=True)]
    forks.append(Fork(links.answer, namespaces[1], 2223))
    try:
        wait_until(lambda: reply(ASKS, '127.0.0.1/2223') == ANSWER)
        assert reply(ASKS, '127.0.0.1/2223', NOBODY) == b''
        assert reply(ASKS, f'{hosts[1]}/2323') == b''
        assert reply(asks_with_key, f'{hosts[1]}:2323') == ANSWER
        assert reply(ASKS_BY_TLS, f'{hosts[1]}:2323') == b''
    finally:
        for fork in forks:
            fork.terminate()
            fork.communicate()
        network.close()


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_links_come_back_when_their_stunnel_is_killed(tmp_path):
    """They ended, and the run waited for workers that nobody could reach any more."""
    network = Network(1, seed=0)
    host, namespace = network.host(0), links.namespace_of(network.prefix(0))
    secure_links.make([host, 'b.example'], tmp_path, port=2222, outer_port=2322, days=1)
    asks_with_key = ASKS_BY_TLS + HAS_KEY.format(tmp_path / host)

    def is_answered() -> bool:
        return links.reply(network.prefix(0), asks_with_key, f'{host}:2322') == ANSWER

    forks = [Fork(run_links, namespace, str(tmp_path / host)),
             Fork(links.answer, namespace, 2222)]
    try:
        wait_until(is_answered)
        os.kill(server_of(forks[0].pid), signal.SIGKILL)
        wait_until(lambda: not is_answered())
        wait_until(is_answered)
    finally:
        for fork in forks:
            fork.terminate()
        _, errors = forks[0].communicate()
        forks[1].communicate()
        network.close()
    assert 'stunnel has ended (SIGKILL) and is started again' in errors


@pytest.mark.skipif(bool(link_keys.missing('openssl')), reason=link_keys.missing('openssl'))
def test_what_to_start_is_quoted_for_a_shell(tmp_path):
    """A folder with a space in its name was two words of the command."""
    folder = tmp_path / "my links'"
    advice = secure_links.make(['a.example', 'b.example'], folder, 2222, 2322, 1)
    words = [shlex.split(line) for line in advice.splitlines() if '--run=' in line]
    assert [line[3] for line in words] == [f'--run={folder}/a.example', f'--run={folder}/b.example']


@pytest.mark.skipif(bool(link_keys.missing('openssl')), reason=link_keys.missing('openssl'))
def test_every_host_gets_a_folder_that_only_its_user_can_read(tmp_path):
    advice = secure_links.make(['a.example', 'b.example'], tmp_path, 2222, 2322, 1)
    files = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob('*')}
    assert sorted(files) == [
        'a.example', 'a.example/ca.pem', 'a.example/cert.pem', 'a.example/here.conf',
        'a.example/key.pem', 'a.example/to-2223.conf',
        'b.example', 'b.example/ca.pem', 'b.example/cert.pem', 'b.example/here.conf',
        'b.example/key.pem', 'b.example/to-2222.conf', 'b.example/to-2224.conf']
    assert [name for name, path in files.items() if path.stat().st_mode & 0o077] == []
    assert files['a.example/key.pem'].read_text() != files['b.example/key.pem'].read_text()
    assert advice.endswith(
        'And on a.example, with the flags of the run:\n'
        '  python -m lingpipe.trainer --devices=127.0.0.1:2222,127.0.0.1:2223 '
        '--address=127.0.0.1:2224')


@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.parametrize(('name', 'text', 'sentence'), [
    ('to-x.conf', '', 'to-x.conf names no port; copy the folder'),
    ('here.conf', 'rubbish\n', 'here.conf is no configuration of links; copy'),
    ('key.pem', 'rubbish\n', 'the keys in .* cannot be used .*; copy'),
    ('ca.pem', '', 'the keys in .* cannot be used .*; copy'),
    ('ca.pem', 'of another authority', 'used .cert.pem does not fit ca.pem: .*; copy'),
])
def test_a_folder_that_is_not_whole_is_refused_before_stunnel_runs(
        tmp_path, name, text, sentence):
    secure_links.make(['a.example', 'b.example'], tmp_path, 2222, 2322, 1)
    if text == 'of another authority':
        link_keys.make(['a.example'], tmp_path / 'other', 1)
        text = (tmp_path / 'other/a.example' / name).read_text()
    (tmp_path / 'a.example' / name).write_text(text)
    with pytest.raises(OSError, match=sentence):
        secure_links.run(tmp_path / 'a.example')
