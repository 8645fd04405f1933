"""Temperature: how often each language is seen, by its number of pairs (Arivazhagan et al., 2019, arXiv:1907.05019, section 4.2).

    p_l = (n_l / sum n)^(1 / T), divided by their sum         T = 1: as in the data; 5: the paper's choice; inf: all alike
"""
from __future__ import annotations

import numpy as np


def shares(sizes: np.ndarray, temperature: float) -> np.ndarray:
    """p_l of numbers of pairs n_l: float64 [L] with sum 1; a language without pairs has none."""
    sizes = np.asarray(sizes, np.float64)
    scaled = np.where(sizes > 0, np.power(np.maximum(sizes, 1) / max(1., sizes.sum()), 1 / temperature), 0.)
    return scaled / scaled.sum()


def apportioned(parts: np.ndarray, total: int) -> np.ndarray:
    """`total` as whole numbers in proportion to parts, int64 [n]: largest remainders, and no part that is not 0 gets none.

    The numbers are exact if the parts are whole numbers with that sum.
    """
    wanted = np.asarray(parts, np.float64) / np.sum(parts) * total
    least = (wanted > 0).astype(np.int64)
    assert least.sum() <= total, (least.sum(), total)
    found = np.maximum(np.floor(wanted + 1e-9).astype(np.int64), least)
    missing = total - int(found.sum())
    if missing > 0:
        found[np.argsort(found - wanted, kind='stable')[:missing]] += 1
    while missing < 0:   # of those that can spare one, from the one furthest above its part
        spare = np.where(found > least, found - wanted, -np.inf)
        taken = np.argsort(-spare, kind='stable')[:min(-missing, int((found > least).sum()))]
        found[taken] -= 1
        missing += len(taken)
    return found
