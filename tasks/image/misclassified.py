"""Misclassified: a picture of the test images that a classifier is most sure of and wrong about.

Shapes: B mini-batch, V classes, h and w pixels, C channels.
"""
from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lingpipe.training.problem import Review

NUM_SHOWN = 36
NUM_COLUMNS = 6
NAME_WIDTH = 26   # letters that fit above an image


class Misclassified(Review):
    """Keeps the NUM_SHOWN wrong images of one evaluation to whose wrong class the network gives the highest probability.

    The class of the largest logit is the predicted one, as for the metric accuracy. Padding, of weight 0, is never shown, nor is an
    image with a logit of nan or inf, for which nothing is predicted.
    """
    name = 'misclassified'

    def __init__(self, image: str, label: str, logits: str, class_names: Sequence[str] = ()):
        """
        Args:
          image: name of the value of the mini-batch that holds images [B, h, w, C].
          label: of the one that holds their classes, int [B].
          logits: of the one that the network writes, [B, V].
          class_names: of the classes in order; a class without a name is shown as its number.
        """
        self.fetch = (logits,)
        self._image, self._label, self._logits, self._class_names = image, label, logits, class_names
        self._worst: list[tuple[float, int, np.ndarray, int, int]] = []   # a heap: (probability, -order, picture, true, predicted)
        self._order = itertools.count()
        self.num_wrong = self.num_seen = 0

    def see(self, batch: Mapping[str, Any], fetched: Mapping[str, Any]) -> None:
        """Counts a mini-batch, and keeps the images that the network is most sure of and wrong about."""
        logits = np.asarray(fetched[self._logits]).astype(np.float32)
        labels, is_real = np.asarray(batch[self._label]), np.asarray(batch['weight']) != 0
        self.num_seen += int(is_real.sum())
        predicted = logits.argmax(-1)  # [B]
        is_wrong = is_real & (predicted != labels)
        self.num_wrong += int(is_wrong.sum())
        for i in np.flatnonzero(is_wrong & np.isfinite(logits.max(-1))):
            probability = float(1 / np.exp(logits[i] - logits[i].max()).sum())
            if len(self._worst) < NUM_SHOWN or probability > self._worst[0][0]:
                pixels = picture(np.asarray(batch[self._image][i]))
                heapq.heappush(self._worst, (probability, -next(self._order), pixels, int(labels[i]), int(predicted[i])))
                if len(self._worst) > NUM_SHOWN:
                    heapq.heappop(self._worst)

    def rows(self) -> list[tuple[str, str, float]]:
        """(true class, predicted class, probability of that) of the images of the picture, in its order."""
        return [(self._name_of(true), self._name_of(predicted), probability) for probability, _, _, true, predicted in self._sorted()]

    def text(self) -> str:
        return f'{self.num_wrong:,} of {self.num_seen:,} images are misclassified'

    def save_png(self, path: str, title: str) -> None:
        """Each image with 'true -> predicted (probability)', the surest first."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        worst = self._sorted()
        num_rows = max(1, -(-len(worst) // NUM_COLUMNS))
        height = 0.3 + 2.1 * num_rows   # inches; the places are given, since finding them takes longer than drawing
        figure = Figure(figsize=(11, height), dpi=100)
        FigureCanvasAgg(figure)
        shown = f', the {len(worst)} surest of them' if len(worst) < self.num_wrong else ''
        figure.suptitle(f'{title}: {self.text()}{shown}; true -> predicted (probability)', y=1 - 0.08 / height, va='top', fontsize=11,
                        parse_math=False)
        places = {'left': 0.01, 'right': 0.99, 'bottom': 0.08 / height, 'top': 1 - 0.68 / height, 'wspace': 0.08, 'hspace': 0.25}
        axes = list(figure.subplots(num_rows, NUM_COLUMNS, squeeze=False, gridspec_kw=places).flat)
        for ax in axes:
            ax.axis('off')
        for ax, (_, _, pixels, _, _), row in zip(axes, worst, self.rows(), strict=False):
            ax.imshow(pixels, interpolation='nearest' if max(pixels.shape) <= 64 else 'antialiased')
            ax.set_title(caption(*row), fontsize=9, parse_math=False)
        figure.savefig(path, format='png')

    def _sorted(self) -> list[tuple[float, int, np.ndarray, int, int]]:
        return sorted(self._worst, key=lambda one: one[:2], reverse=True)

    def _name_of(self, label: int) -> str:
        return str(self._class_names[label]) if 0 <= label < len(self._class_names) else str(label)


def caption(true: str, predicted: str, probability: float) -> str:
    """'8 -> 1 (0.93)'; in two lines, cut, if the names are long."""
    one_line = f'{true} -> {predicted} ({probability:.2f})'
    if len(one_line) <= NAME_WIDTH:
        return one_line
    return f'{cut(true, NAME_WIDTH)}\n-> {cut(predicted, NAME_WIDTH - 10)} ({probability:.2f})'


def cut(name: str, width: int) -> str:
    """The beginning of a name that is too long."""
    return name if len(name) <= width else f'{name[:width - 3]}...'


def picture(image: np.ndarray) -> np.ndarray:
    """uint8 [..., h, w, 3] of an image, or images, [..., h, w, C]: each from its darkest value (0) to its brightest (255).

    So it can be seen whatever the input made of the pixels: [0, 1], [-1, 1] or standard deviations. Other than 3 channels become their
    mean, grey; a value that is not finite counts as 0.
    """
    values = image.astype(np.float32)
    values = np.where(np.isfinite(values), values, 0)
    if values.shape[-1] != 3:
        values = np.repeat(values.mean(-1, keepdims=True), 3, -1)
    low, high = values.min((-3, -2, -1), keepdims=True), values.max((-3, -2, -1), keepdims=True)
    return ((values - low) / np.where(high > low, high - low, 1) * 255).round().astype(np.uint8)
