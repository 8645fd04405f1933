"""Temperature: how often each language is seen, by its number of pairs.

    p_l = (n_l / sum n)^(1 / T), divided by their sum

T = 1 is as in the data, 5 is the choice of the paper (Arivazhagan et al., 2019, arXiv:1907.05019,
section 4.2), and inf makes all languages alike.
"""
from __future__ import annotations

import numpy as np


def shares(sizes: np.ndarray, temperature: float) -> np.ndarray:
    """Returns p_l of the numbers of pairs n_l: float64 [L] with sum 1, and 0 where n_l is 0."""
    sizes = np.asarray(sizes, np.float64)
    scaled = np.where(sizes > 0,
                      np.power(np.maximum(sizes, 1) / max(1., sizes.sum()), 1 / temperature), 0.)
    return scaled / scaled.sum()


def apportioned(parts: np.ndarray, total: int) -> np.ndarray:
    """Returns `total` as whole numbers in proportion to the parts: int64 [n].

    The largest remainders are rounded up, and every part that is not 0 gets at least 1. The numbers
    are exact if the parts are whole numbers with that sum.
    """
    wanted = np.asarray(parts, np.float64) / np.sum(parts) * total
    least = (wanted > 0).astype(np.int64)
    assert least.sum() <= total, (least.sum(), total)

    shares = np.maximum(np.floor(wanted + 1e-9).astype(np.int64), least)
    missing = total - int(shares.sum())
    if missing > 0:
        shares[np.argsort(shares - wanted, kind='stable')[:missing]] += 1
    # Of the numbers that can spare one, those furthest above their parts give one back.
    while missing < 0:
        spare = np.where(shares > least, shares - wanted, -np.inf)
        taken = np.argsort(-spare, kind='stable')[:min(-missing, int((shares > least).sum()))]
        shares[taken] -= 1
        missing += len(taken)
    return shares
