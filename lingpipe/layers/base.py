"""Layer: Params, weights, and fprop, a pure function of the weights it is given, its inputs and a Context.

A layer that is built owns no variable: it declares its weights (path, shape, initialiser), so that a network of
billions of weights can be counted, priced and partitioned in a second. Who runs it makes the variables, where it wants
them, and passes their values as theta.

    class Scale(Layer):
        class Params(Layer.Params):
            dim: int = field(REQUIRED, 'Channels of the input.')

        def __init__(self, params, path=''):
            super().__init__(params, path)
            self.add_weight('scale', [self.params.dim], 'ones')

        def fprop(self, theta, ctx, x):
            return x * tf.cast(theta.scale, x.dtype)

        def cost(self, x):                                    # optional: without it, fprop is traced
            return Cost(flops=x.shape.num_elements(), num_weights=self.num_weights, outputs=x)

In a network every layer reads named values and writes named values (Params.reads, Params.writes); see
layers/sequential.py.
"""
from __future__ import annotations

import dataclasses
import inspect
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from lingpipe.hyperparams import Configurable, field
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap

Initializer: TypeAlias = str | keras.initializers.Initializer


def initializer_named(name: Initializer) -> keras.initializers.Initializer:
    """The initializer of a name, Keras' or the one it lacks; what is an initializer already is returned.

    'he_normal_fan_out' keeps the variance of gradients where Keras' he_normal, whose fan is the inputs, keeps that of activations
    (He et al., 2015, arXiv:1502.01852, eq. 14 and 10): the usual one for ImageNet.

    Raises:
      ValueError: there is no such initializer.
    """
    if name == 'he_normal_fan_out':
        return keras.initializers.VarianceScaling(2., 'fan_out', 'truncated_normal')
    try:
        return keras.initializers.get(name)
    except ValueError:
        raise ValueError(f'{name!r} is no initializer; write he_normal, he_normal_fan_out, glorot_uniform, zeros, or another name in '
                         'keras.initializers.') from None


@dataclasses.dataclass(frozen=True)
class Weight:
    """A weight that a layer declares; nothing is allocated.

    Attributes:
      path: the layer's path, '/', the name: the key of checkpoints, summaries and regular expressions.
      shape: its dimensions.
      dtype: float32, unless it is not a number to be trained.
      initializer: a Keras initializer or a name of `initializer_named`; `initial_value` gives it the seed.
      is_trainable: whether gradients update it; otherwise Layer.updated_state may.
      shared_with: the path of the weight it stands for (tied weights), or None.
    """
    path: str
    shape: tuple[int, ...]
    initializer: Initializer
    dtype: tf.DType = tf.float32
    is_trainable: bool = True
    shared_with: str | None = None

    @property
    def size(self) -> int:
        """The number of scalars."""
        return int(tf.TensorShape(self.shape).num_elements() or 0)

    def initial_value(self, experiment_seed: int) -> tf.Tensor:
        """The first value: a function of the experiment's seed and the path alone, whatever the partition."""
        initializer = initializer_named(self.initializer)
        config = initializer.get_config()
        if 'seed' in config:
            config['seed'] = zlib.crc32(f'{experiment_seed}/{self.path}'.encode()) & 0x7fffffff
            initializer = type(initializer).from_config(config)
        dtype = 'float32' if self.dtype in (tf.float32, tf.bfloat16, tf.float16) else self.dtype.name
        return tf.cast(tf.convert_to_tensor(initializer(self.shape, dtype=dtype)), self.dtype)


class Layer(Configurable):
    """The base of all layers. Subclasses: Params, __init__ (children and weights), fprop, and optionally cost."""

    class Params(Configurable.Params):
        """Name and wiring, which every layer has."""
        name: str = field('', 'Name among its siblings, part of the path of every weight; made from the class if empty.')
        reads: dict[str, str] = field({}, "In a network: argument of fprop -> name of the value it is given; an argument "
                                          "without default that is not named here reads the value of its own name.")
        writes: str | dict[str, str] = field('x', 'In a network: the name of the value that fprop returns, or, when it '
                                                  'returns a dict, key -> name of the value.')
        share: dict[str, str] = field({}, 'Weights that are another layer\'s (tied): own name -> path of the other weight.')

    def __init__(self, params: Any, path: str = ''):
        """Declares the layer under `path`, its own name included; default: Params.name, or the class's name."""
        super().__init__(params)
        self.path = path or self.params.name or type(self).__name__.lower()
        self.children: dict[str, Layer] = {}
        self.own_weights: dict[str, Weight] = {}

    # Declaring.

    def add_weight(self, name: str, shape: Sequence[int], initializer: Initializer = 'glorot_uniform', *,
                   is_trainable: bool = True, dtype: tf.DType = tf.float32) -> None:
        """Declares theta.<name>."""
        assert name not in self.own_weights and name not in self.children, name
        self.own_weights[name] = Weight(f'{self.path}/{name}', tuple(int(n) for n in shape), initializer, dtype,
                                        is_trainable, self.params.share.get(name))

    def add_child(self, params: Layer.Params, name: str = '') -> Any:
        """Makes the layer of `params` under this one's path and returns it; its weights are theta.<name>."""
        name = name or params.name
        assert name and name not in self.own_weights and name not in self.children, name
        self.children[name] = params.instantiate(f'{self.path}/{name}')
        return self.children[name]

    def weights(self) -> Iterator[Weight]:
        """All weights, the children's included, in the order of declaration."""
        yield from self.own_weights.values()
        for child in self.children.values():
            yield from child.weights()

    def layers(self) -> Iterator[Layer]:
        """This layer and all below it."""
        yield self
        for child in self.children.values():
            yield from child.layers()

    def theta(self, values: dict[str, tf.Tensor]) -> NestedMap:
        """The nested theta of fprop from tensors by weight path."""
        theta = NestedMap({name: values[weight.path] for name, weight in self.own_weights.items()})
        for name, child in self.children.items():
            theta[name] = child.theta(values)
        return theta

    def initial_theta(self, experiment_seed: int = 0) -> NestedMap:
        """theta of the first values of all weights: for tests and notebooks, no pipeline needed."""
        return self.theta({w.path: w.initial_value(experiment_seed) for w in self.weights()})

    @property
    def num_weights(self) -> int:
        """The number of trainable scalars, a shared weight counted where it is owned."""
        return sum(w.size for w in self.weights() if w.is_trainable and w.shared_with is None)

    # Running.

    def fprop(self, theta: NestedMap, ctx: Any, *args: Any, **kwargs: Any) -> Any:
        """The layer's function; arguments after ctx are tensors or nested values. It must be a pure function of them."""
        raise NotImplementedError(f'{type(self).__name__} has no fprop')

    def cost(self, *args: Any, **kwargs: Any) -> Cost | None:
        """The cost for inputs given as tf.TensorSpec, as fprop takes them, by a formula.

        This default returns None: there is no formula. `pricing.price` then traces fprop.
        """
        return None

    def updated_state(self, name: str, state: NestedMap, value: Any) -> dict[str, tf.Tensor]:
        """New values of non-trainable weights from what fprop emitted as `name`, merged over the mini-batch.

        Args:
          name: as given to ctx.emit_moments, ctx.emit_mean or ctx.emit_state.
          state: the layer's own weights (tensors by name), as they are now.
          value: the merged (mean, variance), the mean, or the state.

        Returns:
          Tensors by the names of own weights; called once a training step.
        """
        raise NotImplementedError(f'{type(self).__name__} emits {name!r} but has no updated_state')

    # Decoding, one position at a time: see pipeline/decoding/decoder.py. n sentences, k hypotheses of each,
    # which stand where time stands in fprop.

    is_positionwise = False  # Whether each position of fprop's result follows from the same position of its inputs alone.
    gives_candidates = False  # Whether decode gives the best next ids: NestedMap(log_sum, values, ids), as Logits does.

    def prepare(self, theta: NestedMap, ctx: Any, *args: Any, **inputs: Any) -> NestedMap:
        """What `decode` needs of each sentence, made once of the values that are there before the first position; tensors [n, ...].

        This default reads nothing. An overriding method names the arguments of fprop that it reads; one that depends on the target is
        left out.
        """
        return NestedMap()

    def initial_past(self, num_sentences: Any, ctx: Any, **specs: Any) -> NestedMap:
        """What `decode` remembers of each hypothesis, before the first position: tensors [n, k, ..., t, channels], of which t may grow.

        specs: of what decode reads; only dtypes are to be relied on.
        """
        return NestedMap()

    def decode(self, theta: NestedMap, ctx: Any, kept: NestedMap, past: NestedMap, *args: Any, **inputs: Any) -> tuple[Any, NestedMap]:
        """fprop of one position: (result, the new past).

        This default reads what fprop reads. An overriding method names the arguments of fprop that it reads.

        Args:
          theta: the weights.
          ctx: a DecodingContext.
          kept: what `prepare` made.
          past: of the positions before, by hypothesis.
          inputs: values that depend on the target [n, k, ...], of this position; others as they are.
        """
        if not self.is_positionwise:
            raise ValueError(f'{self.path}: {type(self).__name__} does not say how it is decoded position by position; give it decode(), '
                             'or is_positionwise = True if no position looks at another.')
        return self.fprop(theta, ctx, *args, **inputs), past

    # Wiring.

    # Arguments of fprop that have a default, and read the value of their own name where there is one. So
    # padding is never forgotten: a loss that can do without weights uses those of the mini-batch.
    optional_reads: Sequence[str] = ('weight',)

    # Whether the result for an example depends on the other examples of the mini-batch, as in a
    # contrastive loss. A plan with more than one micro-batch or replica is then refused.
    needs_whole_batch = False

    # Whether the copies of the last example, of weight 0, that fill up the last mini-batch of an
    # evaluation would change a loss or metric, as they change the mean of a penalty over the examples.
    # That mini-batch is then evaluated without them, at its own size, as it is where a layer says
    # needs_whole_batch.
    counts_copies = False

    # Names of own weights whose next value depends on the examples in a way that nobody can merge over
    # the parts of a mini-batch. A plan with more than one part, or an update of more than one mini-batch,
    # is then refused.
    unmerged_state: Sequence[str] = ()

    # Whether fprop can read strings. A network that gives them to a layer that cannot is refused.
    takes_text = False

    # What becomes of the masks of what the layer reads; see layers/masks.py. '' stands for 'passes' if
    # it is positionwise, or else for 'ends'.
    mask_rule = ''

    def id_ranges(self, **specs: Any) -> dict[str, int]:
        """Argument of fprop -> n, if its values must be whole numbers from 0 to n - 1.

        Values where the layer's argument `weight` is 0 do not count. What comes straight from the
        mini-batch, or through layers without weights, is checked before a run starts and named when a
        step fails (pipeline/execution/bad_ids.py).

        Args:
          specs: those of `cost`.
        """
        return {}

    def reads_if_there(self) -> dict[str, str]:
        """Argument of fprop -> name of the value that it reads if the network has one of that name.

        These are the `optional_reads` that fprop has, unless Params.reads names them.
        """
        parameters = inspect.signature(self.fprop).parameters
        return {name: name for name in self.optional_reads
                if name in parameters and parameters[name].default is not inspect.Parameter.empty and name not in self.params.reads}

    def takes_masks(self, reads: Mapping[str, str]) -> dict[str, str]:
        """Argument of fprop -> name of the value whose mask it is given, if that has one.

        Only asked of layers with the mask_rule 'takes'.

        Args:
          reads: argument -> name of the value, as `reads` gives it.
        """
        return {}

    def reads(self) -> dict[str, str]:
        """Argument of fprop -> name of the value it reads in a network."""
        declared = dict(self.params.reads)
        parameters = list(inspect.signature(self.fprop).parameters.values())[2:]  # after theta, ctx
        known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        for argument in declared:
            if argument not in known:
                raise ValueError(f'{self.path}: reads names the argument {argument!r}, but fprop of {type(self).__name__} '
                                 f'takes {", ".join(known) or "none"}; correct the name in Params.reads.')
        for parameter in parameters:
            if parameter.name in known and parameter.default is parameter.empty:
                declared.setdefault(parameter.name, parameter.name)
        return {argument: declared[argument] for argument in known if argument in declared}

    def written(self, result: Any) -> dict[str, Any]:
        """Value name -> value, from what fprop returned. A result of None writes nothing."""
        writes = self.params.writes
        if result is None:
            return {}
        if isinstance(writes, str):
            return {writes: result}
        if writes and not isinstance(result, dict):
            raise ValueError(f'{self.path}: writes names the outputs {", ".join(writes)}, but fprop of {type(self).__name__} returns one '
                             f"value without a name; set writes to the value's name.")
        missing = [key for key in writes if key not in result]
        if missing:
            raise ValueError(f'{self.path}: writes names the output {missing[0]!r}, but fprop of {type(self).__name__} '
                             f'returns {", ".join(sorted(result))}; correct the name in Params.writes.')
        return {name: result[key] for key, name in writes.items()}
