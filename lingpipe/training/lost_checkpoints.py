"""Lost checkpoints: those that the log of a logdir mentions and that are gone."""
from __future__ import annotations

import os
import re

from absl import logging


def warn_of_lost_checkpoints(logdir: str) -> None:
    """Warns if the log of a logdir without checkpoints mentions steps."""
    try:
        with open(os.path.join(logdir, 'train.log'), encoding='utf-8', errors='replace') as file:
            steps = [int(match[1]) for line in file if (match := re.match(r'step (\d+)/', line))]
    except OSError:
        return
    if max(steps, default=0) > 1:
        logging.warning('%s has no checkpoint, but its train.log tells of %d steps: a new run '
                        'begins; if it had checkpoints, as on a disk that is not mounted, stop it '
                        'and bring them back', logdir, max(steps))
