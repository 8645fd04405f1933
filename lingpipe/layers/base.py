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

In a network, every layer reads and writes named values (Params.reads, Params.writes); see
layers/sequential.py.
"""
from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import Configurable, field
from lingpipe.layers.context import Context, DecodingContext
from lingpipe.layers.cost import Cost
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.weight import Initializer, Weight


class Layer(Configurable):
    """The base of all layers.

    A subclass declares Params, its weights and children in __init__, fprop, and optionally cost.
    """

    class Params(Configurable.Params):
        """Name and wiring, which every layer has."""
        name: str = field('', 'Name among its siblings, part of the path of every weight; made '
                              'from the class if empty.')
        reads: dict[str, str] = field({}, 'In a network: argument of fprop -> name of the value '
                                          'it is given; an argument without default that is not '
                                          'named here reads the value of its own name.')
        writes: str | dict[str, str] = field('x', 'In a network: the name of the value that fprop '
                                                  'returns, or, when it returns a dict, '
                                                  'key -> name of the value.')
        share: dict[str, str] = field({}, "Weights that are another layer's (tied): own name -> "
                                          'path of the other weight.')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        """Declares the layer.

        Args:
          params: its Params.
          path: the path of the layer, which ends with its own name; by default Params.name or, if
            that is empty, the class's name.
        """
        super().__init__(params)
        self.path = path or self.params.name or type(self).__name__.lower()
        self.children: dict[str, Layer] = {}
        self.own_weights: dict[str, Weight] = {}

    # Weights and children.

    def add_weight(self, name: str, shape: Sequence[int],
                   initializer: Initializer = 'glorot_uniform', *,
                   is_trainable: bool = True, dtype: tf.DType = tf.float32) -> None:
        """Declares theta.<name>."""
        assert name not in self.own_weights and name not in self.children, name
        self.own_weights[name] = Weight(
            f'{self.path}/{name}', tuple(int(n) for n in shape), initializer, dtype, is_trainable,
            self.params.share.get(name))

    def add_child(self, params: Layer.Params, name: str = '') -> Any:
        """Makes a layer under this one's path and returns it; its weights are theta.<name>."""
        name = name or params.name
        assert name and name not in self.own_weights and name not in self.children, name
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

    # Running.

    def fprop(self, theta: NestedMap, ctx: Context, *args: Any, **kwargs: Any) -> Any:
        """The layer's function. It must be a pure function of its arguments.

        The arguments after ctx are tensors or nested values.
        """
        raise NotImplementedError(f'{type(self).__name__} has no fprop')

    def cost(self, *args: Any, **kwargs: Any) -> Cost | None:
        """The cost, by a formula, for inputs given as tf.TensorSpec, as fprop takes them.

        This default returns None: there is no formula. `pricing.price` then traces fprop.
        """
        return None

    def updated_state(self, name: str, state: NestedMap, value: Any) -> dict[str, tf.Tensor]:
        """Returns new values of non-trainable weights; called once a training step.

        Args:
          name: what fprop gave to ctx.emit_moments, ctx.emit_mean or ctx.emit_state.
          state: the present values of the layer's own weights, by name.
          value: what fprop emitted as `name`, merged over the mini-batch: (mean, variance), the
            mean, or the state.

        Returns:
          Tensors by the names of own weights.
        """
        raise NotImplementedError(f'{type(self).__name__} emits {name!r} but has no updated_state')

    # Decoding, one position at a time: see pipeline/decoding/decoder.py. There are n sentences with
    # k hypotheses each; the hypotheses stand where time stands in fprop.

    # Whether each position of fprop's result depends only on the same position of its inputs.
    is_positionwise = False

    # Whether decode returns the best next ids: NestedMap(log_sum, values, ids), as Logits does.
    gives_candidates = False

    def prepare(self, theta: NestedMap, ctx: Context, *args: Any,
                **inputs: Any) -> NestedMap:
        """Precomputes, once per sentence, what `decode` needs that does not depend on the target.

        This default reads nothing. An overriding method names the arguments of fprop that it reads;
        an argument that depends on the target is left out of the call.

        Returns:
          Tensors [n, ...].
        """
        return NestedMap()

    def initial_past(self, num_sentences: int | tf.Tensor, ctx: DecodingContext,
                     **specs: tf.TensorSpec) -> NestedMap:
        """What `decode` remembers of each hypothesis before the first position.

        Args:
          num_sentences: n.
          ctx: the context of the first position.
          specs: those of what decode reads. Only their dtypes can be relied on.

        Returns:
          Tensors [n, k, ..., t, channels], of which t may grow.
        """
        return NestedMap()

    def decode(self, theta: NestedMap, ctx: DecodingContext, kept: NestedMap, past: NestedMap,
               *args: Any, **inputs: Any) -> tuple[Any, NestedMap]:
        """Computes fprop for one position. Returns its result and the new past.

        This default reads what fprop reads. An overriding method names the arguments of fprop that
        it reads.

        Args:
          theta: the weights.
          ctx: the context of the position.
          kept: what `prepare` returned.
          past: what earlier positions left behind, for each hypothesis.
          inputs: values [n, k, ...] of this position if they depend on the target; others as they
            are.
        """
        if not self.is_positionwise:
            raise ValueError(f'{self.path}: {type(self).__name__} does not say how it is decoded '
                             'position by position; give it decode(), or is_positionwise = True '
                             'if no position looks at another.')
        return self.fprop(theta, ctx, *args, **inputs), past

    # Wiring.

    # Arguments of fprop with a default that read the value of their own name if there is one. So
    # padding is never forgotten: a loss that works without weights uses those of the mini-batch.
    optional_reads: Sequence[str] = ('weight',)

    # Whether the result for an example depends on the other examples of the mini-batch, as in a
    # contrastive loss. A plan with more than one micro-batch or replica is then refused.
    needs_whole_batch = False

    # Whether the copies of the last example, of weight 0, that fill up the last mini-batch of an
    # evaluation would change a loss or metric, as they change the mean of a penalty over the
    # examples. That mini-batch is then evaluated without them, at its own size, as it is where a
    # layer says needs_whole_batch.
    counts_copies = False

    # Names of own weights whose next value depends on the examples in a way that cannot be merged
    # over the parts of a mini-batch. A plan with more than one part, or an update from more than
    # one mini-batch, is then refused.
    unmerged_state: Sequence[str] = ()

    # Whether fprop can read strings. A network that gives them to a layer that cannot is refused.
    takes_text = False

    # Whether two layers of this class whose Params are equal, but for the name, compute the same
    # function of theta, inputs and Context.seed(path of the layer, name), and emit the same under
    # their paths, so that tracing one of them is enough. It is not inherited: a subclass may do
    # something else, and says so itself.
    is_traced_once = False

    # What becomes of the masks of what the layer reads; see layers/masks.py. '' stands for 'passes'
    # if the layer is positionwise, and otherwise for 'ends'.
    mask_rule = ''

    def id_ranges(self, **specs: Any) -> dict[str, int]:
        """Argument of fprop -> n, if its values must be whole numbers from 0 to n - 1.

        Values where the layer's argument `weight` is 0 do not count. What comes straight from the
        mini-batch, or through layers without weights, is checked before a run starts and named when
        a step fails (pipeline/execution/bad_ids.py).

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
                if name in parameters and parameters[name].default is not inspect.Parameter.empty
                and name not in self.params.reads}

    def takes_masks(self, reads: Mapping[str, str]) -> dict[str, str]:
        """Argument of fprop -> name of the value whose mask it is given, if that has one.

        Only asked of layers with the mask_rule 'takes'.

        Args:
          reads: argument -> name of the value, as `reads` gives it.
        """
        return {}

    def reads(self) -> dict[str, str]:
        """Argument of fprop -> name of the value it reads in a network.

        Raises:
          ValueError: Params.reads names an argument that fprop does not have.
        """
        parameters = list(inspect.signature(self.fprop).parameters.values())[2:]  # After ctx.
        known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        names = dict(self.params.reads)
        for argument in names:
            if argument not in known:
                raise ValueError(f'{self.path}: reads names the argument {argument!r}, but fprop '
                                 f'of {type(self).__name__} takes {", ".join(known) or "none"}; '
                                 'correct the name in Params.reads.')

        for parameter in parameters:
            if parameter.name in known and parameter.default is parameter.empty:
                names.setdefault(parameter.name, parameter.name)
        return {argument: names[argument] for argument in known if argument in names}

    def written(self, result: Any) -> dict[str, Any]:
        """Returns the values that the layer writes, by name, given what fprop returned.

        A result of None writes nothing.

        Raises:
          ValueError: Params.writes names an output that fprop did not return.
        """
        writes = self.params.writes
        if result is None:
            return {}
        if isinstance(writes, str):
            return {writes: result}
        if writes and not isinstance(result, dict):
            raise ValueError(f'{self.path}: writes names the outputs {", ".join(writes)}, but '
                             f'fprop of {type(self).__name__} returns one value without a name; '
                             "set writes to the value's name.")
        missing = [key for key in writes if key not in result]
        if missing:
            raise ValueError(f'{self.path}: writes names the output {missing[0]!r}, but fprop of '
                             f'{type(self).__name__} returns {", ".join(sorted(result))}; correct '
                             'the name in Params.writes.')
        return {name: result[key] for key, name in writes.items()}
