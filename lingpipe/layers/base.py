"""Layer: Params, weights, and fprop, a pure function of weights, inputs and a Context.

A layer owns no variable. It declares its weights (path, shape, initializer), so that a network of
billions of weights can be counted, priced and partitioned in a second. Whoever runs the layer
creates the variables on the devices of their choice and passes the values as theta.

    class Scale(Layer):
        class Params(Layer.Params):
            dim: int = field(REQUIRED, 'Channels of the input.')

        params: Params

        def __init__(self, params, path=''):
            super().__init__(params, path)
            self.add_weight('scale', [self.params.dim], 'ones')

        def fprop(self, theta, ctx, x):
            return x * tf.cast(theta.scale, x.dtype)

        def cost(self, x):    # Optional: without it, fprop is traced.
            return Cost(flops=x.shape.num_elements(), num_weights=self.num_weights, outputs=x)

What a layer is besides, in files of their own:

    wired_function.py      in a network, it reads and writes named values
    decoded_function.py    it can be computed one position at a time
    layer_traits.py        what it says about itself, so that a plan that does not fit is refused
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.layers.cost import Cost
from lingpipe.layers.decoded_function import DecodedFunction
from lingpipe.layers.layer_traits import LayerTraits
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.weight import Initializer, Weight, check_name, whole_numbers


class Layer(DecodedFunction, LayerTraits):
    """The base of all layers.

    A subclass declares Params, its weights and children in __init__, fprop, and optionally cost.
    """

    class Params(DecodedFunction.Params):
        """Name, wiring and shared weights, which every layer has."""
        share: dict[str, str] = field({}, "Weights that are another layer's (tied): own name -> "
                                          'path of the other weight.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        """Declares a layer without weights and children; the arguments are WiredFunction's."""
        super().__init__(params, path)
        self.children: dict[str, Layer] = {}
        self.own_weights: dict[str, Weight] = {}

    def add_weight(self, name: str, shape: Sequence[int],
                   initializer: Initializer = 'glorot_uniform', *,
                   is_trainable: bool = True, dtype: tf.DType | str = tf.float32) -> None:
        """Declares theta.<name>."""
        self.check_begun()
        check_name(self.path, name, {**self.own_weights, **self.children})
        self.own_weights[name] = Weight(
            f'{self.path}/{name}', whole_numbers(self.path, name, shape), initializer,
            tf.as_dtype(dtype), is_trainable, self.params.share.get(name))

    def add_child(self, params: Layer.Params, name: str = '') -> Any:
        """Makes a layer under this one's path and returns it; its weights are theta.<name>."""
        self.check_begun()
        name = name or params.name
        check_name(self.path, name, {**self.own_weights, **self.children})
        self.children[name] = params.instantiate(f'{self.path}/{name}')
        return self.children[name]

    def weights(self) -> Iterator[Weight]:
        """All weights, including those of the children, in the order of declaration."""
        yield from self.own_weights.values()
        for child in self.children.values():
            yield from child.weights()

    def layers(self) -> Iterator[Layer]:
        """This layer and all layers below it."""
        yield self
        for child in self.children.values():
            yield from child.layers()

    def theta(self, values: Mapping[str, tf.Tensor]) -> NestedMap:
        """Returns the nested theta of fprop, given tensors by weight path."""
        own = {name: values[weight.path] for name, weight in self.own_weights.items()}
        of_children = {name: child.theta(values) for name, child in self.children.items()}
        return NestedMap({**own, **of_children})

    def initial_theta(self, experiment_seed: int = 0) -> NestedMap:
        """The theta of all initial values: for tests and notebooks, where there is no pipeline."""
        return self.theta({weight.path: weight.initial_value(experiment_seed)
                           for weight in self.weights()})

    @property
    def num_weights(self) -> int:
        """The number of trainable scalars. A shared weight counts where it is owned."""
        return sum(weight.size for weight in self.weights()
                   if weight.is_trainable and weight.shared_with is None)

    def cost(self, *args: Any, **kwargs: Any) -> Cost | None:
        """The cost, by a formula, for inputs given as tf.TensorSpec, as fprop takes them.

        This default returns None: there is no formula. `pricing.price` then traces fprop.
        """
        return None

    def updated_state(self, name: str, state: NestedMap, value: Any) -> dict[str, tf.Tensor]:
        """Returns new values of non-trainable weights; called once a training step.

        Args:
          name: what fprop gave to ctx.emit_moments, ctx.emit_mean or ctx.emit_state.
          state: the layer's own weights by name, with what emissions before this one have set.
          value: what fprop emitted as `name`, merged over the mini-batch: (mean, variance), the
            mean, or the state.

        Returns:
          Tensors by the names of own weights that do not train.
        """
        raise NotImplementedError(f'{self.path} emits {name!r} for weights; give it '
                                  'updated_state(self, name, state, value).')
