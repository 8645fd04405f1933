"""Misclassified: a picture of the test images that a classifier is most sure of and wrong about.

Shapes: B mini-batch, V classes, h and w pixels, C channels.
"""
from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lingpipe.training.problem import Review
from lingpipe.wording.counts import are, counted

NUM_SHOWN = 36
NUM_COLUMNS = 6
NAME_WIDTH = 26   # Letters that fit above an image.


class _WrongImage(NamedTuple):
    """A misclassified image; the first two fields order the images, the surest last."""
    probability: float
    minus_order: int
    pixels: np.ndarray
    label: int
    predicted: int


class Misclassified(Review):
    """Keeps the images of an evaluation that the network is most sure of and wrong about.

    These are the NUM_SHOWN images whose wrong class has the highest probability. The predicted
    class is the one with the largest logit, as for the metric accuracy. Padding, of weight 0, is
    never shown. Neither is an image with a logit of nan or inf, because it has no prediction.
    """
    name = 'misclassified'

    def __init__(self, image: str, label: str, logits: str, class_names: Sequence[str] = ()):
        """
        Args:
          image: name of the value of the mini-batch that holds the images [B, h, w, C], or grey
            ones [B, h, w].
          label: name of the value of the mini-batch that holds their classes, int [B] or [B, 1].
          logits: name of the value that the network writes, [B, V], or [B, 1] for two classes.
          class_names: names of the classes in order; a class without a name is shown as a number.
        """
        self.fetch = (logits,)
        self._image = image
        self._label = label
        self._logits = logits
        self._class_names = class_names
        self._worst: list[_WrongImage] = []   # A heap.
        self._order = itertools.count()
        self.num_wrong = 0
        self.num_seen = 0

    def see(self, batch: Mapping[str, Any], fetched: Mapping[str, Any]) -> None:
        """Counts the images of a mini-batch, and keeps the worst of them."""
        logits = np.asarray(fetched[self._logits]).astype(np.float32)
        if logits.shape[-1] == 1:   # That of the second of two classes, as for a sigmoid.
            logits = np.concatenate([np.zeros_like(logits), logits], -1)
        labels = np.asarray(batch[self._label]).reshape(-1)
        is_real = np.asarray(batch['weight']) != 0
        predicted = logits.argmax(-1)  # [B]
        is_wrong = is_real & (predicted != labels)
        self.num_seen += int(is_real.sum())
        self.num_wrong += int(is_wrong.sum())

        for i in np.flatnonzero(is_wrong & np.isfinite(logits.max(-1))):
            probability = float(1 / np.exp(logits[i] - logits[i].max()).sum())
            if len(self._worst) == NUM_SHOWN and probability <= self._worst[0].probability:
                continue
            pixels, = pictures(np.asarray(batch[self._image][i:i + 1]))
            heapq.heappush(self._worst, _WrongImage(
                probability, -next(self._order), pixels, int(labels[i]), int(predicted[i])))
            if len(self._worst) > NUM_SHOWN:
                heapq.heappop(self._worst)

    def rows(self) -> list[tuple[str, str, float]]:
        """Returns (true class, predicted class, its probability) of each image of the picture."""
        return [(self._name_of(wrong.label), self._name_of(wrong.predicted), wrong.probability)
                for wrong in self._sorted()]

    def text(self) -> str:
        """Returns how many images are misclassified, as a sentence."""
        of_all = f'{self.num_wrong:,} of {counted(self.num_seen, "image")}'
        return f'{of_all} {are(self.num_wrong)} misclassified'

    def save_png(self, path: str, title: str) -> None:
        """Draws each image with 'true -> predicted (probability)', the surest first."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        worst = self._sorted()
        num_rows = max(1, -(-len(worst) // NUM_COLUMNS))
        height = 0.3 + 2.1 * num_rows   # In inches.
        figure = Figure(figsize=(11, height), dpi=100)
        FigureCanvasAgg(figure)

        shown = f', the {len(worst)} surest of them' if len(worst) < self.num_wrong else ''
        figure.suptitle(f'{title}: {self.text()}{shown}; true -> predicted (probability)',
                        y=1 - 0.08 / height, va='top', fontsize=11, parse_math=False)

        # Matplotlib's automatic layout takes longer than the drawing, so the places are given.
        places = {'left': 0.01, 'right': 0.99, 'bottom': 0.08 / height, 'top': 1 - 0.68 / height,
                  'wspace': 0.08, 'hspace': 0.25}
        grid = figure.subplots(num_rows, NUM_COLUMNS, squeeze=False, gridspec_kw=places)
        axes = list(grid.flat)
        for ax in axes:
            ax.axis('off')
        for ax, wrong, row in zip(axes, worst, self.rows(), strict=False):
            is_small = max(wrong.pixels.shape) <= 64
            ax.imshow(wrong.pixels, interpolation='nearest' if is_small else 'antialiased')
            ax.set_title(caption(*row), fontsize=9, parse_math=False)
        figure.savefig(path, format='png')

    def _sorted(self) -> list[_WrongImage]:
        return sorted(self._worst, key=lambda wrong: wrong[:2], reverse=True)

    def _name_of(self, label: int) -> str:
        has_name = 0 <= label < len(self._class_names)
        return str(self._class_names[label]) if has_name else str(label)


def caption(true: str, predicted: str, probability: float) -> str:
    """Returns '8 -> 1 (0.93)'. If the names are long, they are cut and take two lines."""
    one_line = f'{true} -> {predicted} ({probability:.2f})'
    if len(one_line) <= NAME_WIDTH:
        return one_line
    return f'{cut(true, NAME_WIDTH)}\n-> {cut(predicted, NAME_WIDTH - 10)} ({probability:.2f})'


def cut(name: str, width: int) -> str:
    """Returns a name cut to a width; dots stand for its end."""
    return name if len(name) <= width else f'{name[:width - 3]}...'


def pictures(images: np.ndarray) -> np.ndarray:
    """Returns images [B, h, w, C], or grey ones [B, h, w], as uint8 [B, h, w, 3]; see `picture`."""
    return picture(images if images.ndim == 4 else images[..., np.newaxis])


def picture(image: np.ndarray) -> np.ndarray:
    """Returns images [..., h, w, C] as uint8 [..., h, w, 3] that a person can look at.

    Each image is scaled so that its darkest value is 0 and its brightest 255, because an input may
    give pixels in [0, 1], in [-1, 1] or in standard deviations. If there are not 3 channels, their
    mean is shown in grey. A value that is not finite counts as 0.
    """
    values = image.astype(np.float32)
    values = np.where(np.isfinite(values), values, 0)
    if values.shape[-1] != 3:
        values = np.repeat(values.mean(-1, keepdims=True), 3, -1)
    low = values.min((-3, -2, -1), keepdims=True)
    high = values.max((-3, -2, -1), keepdims=True)
    scaled = (values - low) / np.where(high > low, high - low, 1) * 255
    return scaled.round().astype(np.uint8)
