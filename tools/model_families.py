"""Families of models that grow: those of the GPipe paper's Table 1, and small relatives of them."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lingpipe.training.experiment import Experiment


@dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes:
      experiment: of (size, K), an experiment; sizes are 1, 2 and so on.
      naive_batch, batch: the examples of a mini-batch of Naive-1, and of Pipeline-K.
      name: of (size, K), what the paper calls the model.
      printed: column -> the parameters that the paper prints, in millions.
    """
    experiment: Callable[[int, int], Experiment.Params]
    naive_batch: int
    batch: int
    name: Callable[[int, int], str]
    printed: dict[str, float]


def families() -> dict[str, Family]:
    """Name -> family of the paper."""
    from lingpipe.params.image import imagenet
    from lingpipe.params.translation import table1

    def depth(num_cells: int) -> int:
        return max(18, 9 * num_cells)

    return {
        'transformer': Family(
            lambda size, k: table1.experiment(size, k), 4, 32, lambda size, k: f'L={size}',
            {'Naive-1': 282.2, 'Pipeline-1': 785.8, 'Pipeline-8': 5300, 'Pipeline-32': 21_000,
             'Pipeline-128': 83_900}),
        'amoebanet_d': Family(
            lambda size, k: imagenet.amoebanet_d(depth(k), 16 * size, k, 1), 25, 128,
            lambda size, k: f'({depth(k)}, {16 * size})',
            {'Naive-1': 82, 'Pipeline-1': 318, 'Pipeline-2': 542, 'Pipeline-4': 1050,
             'Pipeline-8': 1800}),
    }


def small_families() -> dict[str, Family]:
    """Name -> family that fills devices of 0.1 to 1 GB in the same way."""
    from lingpipe.params.image import imagenet
    from lingpipe.params.translation import table1

    def transformer(num_layers: int, num_cells: int) -> Experiment.Params:
        params: Experiment.Params = table1.experiment(num_layers, num_cells)
        params.task.model.set(vocab_size=1000, model_dim=256, hidden_dim=1024, num_heads=8)
        params.train_input.set(vocab_size=1000, target_length=128)
        return params

    def amoebanet(size: int, num_cells: int) -> Experiment.Params:
        params = imagenet.amoebanet_d(9, 12 + 4 * size, num_cells, 1)
        params.override('task.model.layers[1].num_classes', '10')
        params.override('train_input.name', 'cifar10')
        params.override('train_input.transform.size', '64')
        params.eval_inputs = {}
        return params

    return {
        'transformer': Family(transformer, 4, 8, lambda size, k: f'L={size}', {}),
        'amoebanet_d': Family(amoebanet, 16, 8, lambda size, k: f'(9, {12 + 4 * size})', {}),
    }
