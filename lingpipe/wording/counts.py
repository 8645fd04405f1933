"""Counts in sentences: '1 cell is', '2 cells are'."""
from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Returns a number and what it counts: '1 micro-batch', '1,024 examples'.

    Args:
      number: how many there are.
      noun: what one of them is called.
    """
    return f'{number:,} {noun if number == 1 else _plural(noun)}'


def are(number: int) -> str:
    """Returns the verb for as many: 'is' or 'are'."""
    return 'is' if number == 1 else 'are'


def _plural(noun: str) -> str:
    if noun.endswith(('ch', 'sh', 's', 'x')):
        return f'{noun}es'
    if noun.endswith('y') and noun[-2] not in 'aeiou':
        return f'{noun[:-1]}ies'
    return f'{noun}s'
