"""Faults of links: that of a worker or of the trainer is cut, is slow or loses packets."""
from __future__ import annotations

import random

from lingpipe.tools.faults.disturbed_run import DisturbedRun
from lingpipe.tools.faults.network import Link


def cut(run: DisturbedRun, chance: random.Random) -> str:
    """Cuts a link for 1, 5 or 30 seconds, as a cable that is pulled out: nobody is told."""
    seconds = chance.choice((1, 5, 30))
    return f'{_with_a_link(run, chance, Link(is_cut=True), seconds)} for {seconds} s'


def delay(run: DisturbedRun, chance: random.Random) -> str:
    """Delays all packets of a link by 20 to 200 ms each way, for some seconds."""
    delay_s, seconds = chance.uniform(0.02, 0.2), chance.uniform(4., 10.)
    name = _with_a_link(run, chance, Link(delay_s=delay_s), seconds)
    return f'{name} by {delay_s * 1e3:.0f} ms for {seconds:.1f} s'


def lose(run: DisturbedRun, chance: random.Random) -> str:
    """Loses 1 to 20 % of the packets of a link, for some seconds."""
    loss, seconds = chance.uniform(0.01, 0.2), chance.uniform(4., 10.)
    name = _with_a_link(run, chance, Link(loss=loss), seconds)
    return f'{loss:.0%} of the packets of {name} for {seconds:.1f} s'


def _with_a_link(run: DisturbedRun, chance: random.Random, link: Link, seconds: float) -> str:
    """Replaces a link for some seconds; returns whose link it was."""
    network = run.place.network
    assert network is not None
    number = chance.randrange(len(network.links))
    network.links[number] = link
    try:
        run.wait(seconds)
    finally:
        network.links[number] = Link()
    return f'worker {number}' if number < len(run.workers) else 'the trainer'
