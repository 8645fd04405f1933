"""KerasLayer: a layer of Keras 3 as a layer of a pipeline.

    KerasLayer.Params(layer=keras.layers.LSTM(64))
    KerasLayer.Params(class_name='LSTM', config='{"units": 64}', input_shape=(100, 32))

Params do not keep the object itself, but its class, its configuration and, if it is built, the
values of its weights. All of this but the values can be written as text. Operations of keras.ops
are layers without weights.

A Keras layer keeps its state in variables, whereas a pipeline passes state as values. So the layer
is called without side effects (keras_call.py), and fprop returns as values what the layer would
assign to its state (keras_state.py). It is built without memory for its variables
(keras_building.py).

A layer either gives the numbers of Keras (those of keras.Model.train_on_batch on the whole
mini-batch) or is refused by name (keras_checks.py). There are these differences from Keras:

  - BatchNormalization normalises with the moments of the micro-batch; only its moving averages are
    those of the mini-batch;
  - what a layer passes to `add_loss` is averaged over the micro-batches, which is right for a mean
    over examples, as Keras' own losses are;
  - a layer of your own that mixes examples mixes those of a micro-batch, unless
    Params.mixes_examples is set; from_keras finds out by calling the layer;
  - random numbers follow from the seed of the experiment, not from those of Keras;
  - the output has the dtype of x where both are floats, unless Params.has_keras_dtypes.
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.layers.base import Layer
from lingpipe.layers.context import Context
from lingpipe.layers.keras_arguments import KerasArguments, encoded_arguments, parsed_object
from lingpipe.layers.keras_building import (
    build,
    built_shapes,
    class_name_of,
    class_of,
    config_of,
    inner_layers,
    symbolic_output,
    unique,
    with_constants,
)
from lingpipe.layers.keras_call import CallResult, KerasCall, as_keras_takes_it
from lingpipe.layers.keras_checks import (
    check_is_layer,
    check_shapes,
    check_supported,
    check_writes,
    has_code_of_users,
    mixes_examples,
)
from lingpipe.layers.keras_initial_values import (
    ParamsWithValues,
    initializers_from,
    initializers_of,
    values_of,
)
from lingpipe.layers.keras_state import KerasState
from lingpipe.layers.masks import mask_of
from lingpipe.layers.nested import NestedMap
from lingpipe.layers.shapes import dims

_EXAMPLE = '{"units": 64}'


class KerasLayer(Layer):
    """Tensors through a Keras layer, in the dtype of the first one if both are floats.

    Params.reads names the tensors: `x`, or `x_0`, `x_1`, ... for a list, or the names that `call`
    of the Keras layer gives them, such as `query` and `value`. A layer of several outputs returns
    `x_0`, `x_1`, ..., which Params.writes names. It may name `logits` too, those of which an
    activation of the layer makes the softmax or sigmoid.

    Where Keras makes a mask of an output, the layer writes it beside the output, as the value that
    layers/masks.py names. It is given the masks of what it reads, or the one that Params.reads
    names for the argument `mask`. What the layer adds to its loss is a penalty
    (Context.emit_penalty): regularizers of weights count as they are, those of activities are means
    over the mini-batch. Weights are named as in Keras, without the layer's own name; equal names
    are numbered.

    The file's docstring says what gives other numbers than Keras; keras_checks.py, what is refused.
    """

    mask_rule = 'takes'
    training_only_remedy = ''   # Tracing finds out, so there is nothing to set.

    class Params(ParamsWithValues):
        """The Keras layer, and what it is given."""
        class_name: str = field(REQUIRED, 'Class in keras.layers, or one registered with Keras '
                                          "as 'package>Name', or the full name of a class.")
        config: str = field('{}', 'Its configuration as JSON: {"units": 64}.')
        arguments: str = field('{}', 'What its call is given besides tensors, as JSON: '
                                     '{"return_attention_scores": true}.')
        input_shape: tuple[int | None, ...] | None = field(
            None, 'Shape of one example of every tensor that it reads, None for a dimension that '
                  'varies. In the network of an experiment it need not be given: it follows from '
                  'the input and the layers before.', least=1)
        input_shapes: dict[str, tuple[int | None, ...]] = field(
            {}, 'Tensor -> its shape, where that is not input_shape.', least=1)
        input_dtype: str = field('float32', 'Dtype of every tensor that it reads.')
        input_dtypes: dict[str, str] = field({}, 'Tensor -> its dtype, where that is not '
                                                 'input_dtype.')
        has_values: bool = field(False, 'Whether the weights begin with the values of the Keras '
                                        'layer that it was made of, which are not in this text.')
        has_keras_dtypes: bool = field(False, 'Whether tensors are cast to input_dtype, and '
                                              'outputs have the dtype that Keras gives them.')
        drops_mask: bool = field(False, 'Whether the output has no mask, though that of the '
                                        'input, or one that Keras makes, is lost.')
        keeps_gradient_rows: bool = field(
            True, 'Whether the optimizer gets the gradients of an embedding, or of what a layer of '
                  'your own gathers, row by row, as in Keras, where most square each row, and not '
                  'the sum of an id\'s rows. They take the memory of an output for every '
                  'micro-batch, in place of that of the table.')
        mixes_examples: bool = field(False, 'Whether the result for an example depends on others '
                                            'of the mini-batch, which then cannot be split. '
                                            'from_keras finds out.')
        averages_state: bool = field(False, 'Whether floating-point state that depends on the '
                                            'examples becomes its mean over the micro-batches: '
                                            'right for moving averages of means.')

        def __init__(self, layer: Any = None, **values: Any):
            """
            Args:
              layer: a layer or operation of Keras, in place of class_name and config. If it is
                built, the weights begin with the values that it has now, and the shapes of what it
                reads need not be given.
              values: of the fields. `arguments` may be a dict.

            Raises:
              ValueError: the layer cannot be described by a class and a configuration.
            """
            if isinstance(arguments := values.get('arguments'), Mapping):
                values['arguments'] = json.dumps(encoded_arguments(arguments, lambda value: None))
            if layer is None:
                super().__init__(**values)
                return
            check_is_layer(layer)
            are_given = 'input_shape' in values or 'input_shapes' in values
            shapes = {} if are_given else built_shapes(layer)
            layer = with_constants(layer)
            initial_values = values_of(layer)
            super().__init__(**{'class_name': class_name_of(layer), 'config': config_of(layer),
                                'has_values': bool(initial_values), 'input_shapes': shapes,
                                **values})
            self.with_values(initial_values)

        def check(self) -> None:
            """Raises ValueError for an unknown class, or a config that is no JSON object."""
            class_of(self.class_name)
            parsed_object(self.config, 'config', _EXAMPLE)
            parsed_object(self.arguments, 'arguments', '{"return_state": true}')

    params: Params

    def __init__(self, params: Params, path: str = ''):
        super().__init__(params, path)
        p = self.params
        self.keras_layer = build(self.path, p.class_name,
                                 parsed_object(p.config, 'config', _EXAMPLE))
        self._arguments = KerasArguments(self.path, self.keras_layer, named_tensors(p),
                                         parsed_object(p.arguments, 'arguments', '{}'))
        self.specs = {name: self._spec(name) for name in self._arguments.names}
        self.takes_text = any(spec.dtype == 'string' for spec in self.specs.values())
        output = symbolic_output(self.path, self.keras_layer, self._arguments, self.specs,
                                 p.config)
        self.output_specs = keras.tree.flatten(output)
        check_supported(self.path, self.keras_layer, self.output_specs)
        check_writes(self.path, p.class_name, p.writes, len(self.output_specs))

        self._add_weights()
        self._state = KerasState(self.path, p.class_name, self.keras_layer, self._variables,
                                 p.averages_state)
        self._call = KerasCall(self.path, self.keras_layer, self._arguments, self._variables,
                               self._state)
        self._data_names = self._call.names_of_data(self.specs) if self._state.names else ()
        self.unmerged_state = [name for name in self._data_names
                               if not self._state.is_averaged(name)]

        layers = inner_layers(self.keras_layer)
        has_activity_regularizer = any(layer.activity_regularizer is not None for layer in layers)
        self.decoding_remedy = (
            f'use a layer of lingpipe in place of {p.class_name}, as layers.LayerNorm, or a '
            'subclass of KerasLayer with is_positionwise = True if no position looks at another')
        rank = len(next(iter(self.specs.values())).shape)
        in_training, in_predictions = (mixes_examples(self.keras_layer, rank, training)
                                       for training in (True, False))
        self.needs_whole_batch = p.mixes_examples or in_training
        self.mixes_in_training_only = not p.mixes_examples and in_training and not in_predictions
        if p.mixes_examples:
            self.whole_batch_remedy = ('set mixes_examples=False of its Params, if its examples '
                                       'are to see those of their micro-batch only')
        self.has_embedding = any(
            isinstance(layer, keras.layers.Embedding) and layer.trainable_weights
            for layer in layers)
        is_of_users = has_code_of_users(p.class_name, p.config)
        self.keeps_gradient_rows = p.keeps_gradient_rows and (self.has_embedding or is_of_users)
        self.counts_copies = is_of_users or has_activity_regularizer

    def _spec(self, name: str) -> keras.KerasTensor:
        """The symbolic examples of a tensor. Raises ValueError if its shape is not given."""
        p = self.params
        shape = p.input_shapes.get(name, p.input_shape)
        if shape is None:
            raise ValueError(f'{self.path}: the shape of {name} is not known, since '
                             f'{p.class_name} is not built and stands in no list of layers of an '
                             'experiment; set input_shape to the shape of one example.')
        return keras.KerasTensor((None, *shape), p.input_dtypes.get(name, p.input_dtype))

    def _add_weights(self) -> None:
        """Declares the weights of the Keras layer, with the values that they begin with.

        Raises:
          ValueError: there are values for other weights.
        """
        p = self.params
        weights = list(getattr(self.keras_layer, 'weights', []))
        names = unique([variable.name for variable in weights])
        self._variables = dict(zip(names, weights, strict=True))
        initializers = (
            initializers_from(p.initial_values, weights, self.path, p.class_name)
            if p.has_values else initializers_of(weights))
        for (name, variable), initializer in zip(self._variables.items(), initializers,
                                                 strict=True):
            self.add_weight(name, variable.shape, initializer, is_trainable=variable.trainable,
                            dtype=tf.as_dtype(variable.dtype))
            if name in p.share:   # Its owner pays for it.
                variable.regularizer = None

    def takes_masks(self, reads: Mapping[str, str]) -> dict[str, str]:
        """The masks of all tensors."""
        return {_mask_key(name): reads[name] for name in self._arguments.names}

    def reads(self) -> dict[str, str]:
        """Tensor -> name of the value it is, and that of `mask` where Params.reads names one.

        Raises:
          ValueError: Params.reads names a tensor that the Keras layer is not given.
        """
        names = self._arguments.names
        named = dict(self.params.reads)
        for name in named:
            if name not in (*names, 'mask'):
                raise ValueError(f'{self.path}: reads names the argument {name!r}, but the '
                                 f'arguments of {self.params.class_name} hold '
                                 f'{", ".join(names)}; correct the name in Params.reads.')
        return {**{name: named.get(name, name) for name in names},
                **({'mask': named['mask']} if 'mask' in named else {})}

    def fprop(self, theta: NestedMap, ctx: Context, x: tf.Tensor | None = None,
              mask: tf.Tensor | None = None, **values: tf.Tensor) -> tf.Tensor | NestedMap:
        """Tensors [b, ...] and their masks, where they have one, through the Keras layer.

        Emits the layer's losses and, in training, its other state.

        Args:
          theta: the weights.
          ctx: the context.
          x: the tensor of this name, if there is one.
          mask: its mask, if it has one.
          values: the other tensors by name, and their masks as `mask_NAME`.

        Returns:
          The output or, if Keras gives it a mask, {'x': output, 'mask': mask}. Several outputs are
          {'x_0': output, ...} with 'mask_x_0' and so on.

        Raises:
          ValueError: the layer would ignore a mask, or changes its state in a way that a pipeline
            cannot follow.
        """
        inputs = {name: value for name, value in {'x': x, 'mask': mask, **values}.items()
                  if value is not None}
        tensors = {name: self._cast(name, inputs[name]) for name in self._arguments.names}
        masks = {name: self._usable(inputs.get(_mask_key(name))) for name in tensors}
        seeds = self._call.seeds(ctx)
        try:
            call = self._call(theta, seeds, tensors, masks, ctx.training)
        except ValueError as error:
            check_shapes(self.path, self.params.class_name, self.specs, tensors, error)
            raise

        first = next(iter(tensors.values()))
        if ctx.training:
            self._state.emit_moments(ctx, call.moments)
            self._state.emit_assigned(ctx, call.assigned, self._data_names,
                                      [*seeds, *inputs.values()], dims(first)[0])
        if call.losses:
            losses = [tf.cast(tf.reduce_sum(loss), tf.float32) for loss in call.losses]
            ctx.emit_penalty(self.path, 'loss', tf.add_n(losses))
        return self._result(call, first.dtype)

    def written(self, result: Any) -> dict[str, Any]:
        """The outputs under Params.writes, and their masks, if they have any."""
        if not isinstance(result, dict):
            result = {'x': result}
        writes = self.params.writes
        keys = {'x': writes} if isinstance(writes, str) else dict(writes)
        outputs = super().written(result['x'] if isinstance(writes, str) else result)
        masks = {mask_of(name): result[_mask_key(key)] for key, name in keys.items()
                 if _mask_key(key) in result}
        return {**outputs, **masks}

    def updated_state(self, name: str, state: NestedMap, value: Any) -> dict[str, tf.Tensor]:
        """The moving averages of a BatchNormalization, or the weight `name`, one step on."""
        return self._state.updated(name, state, value)

    def _cast(self, name: str, tensor: tf.Tensor) -> tf.Tensor:
        """The tensor as the Keras layer was built for it, if Params say so."""
        if not self.params.has_keras_dtypes:
            return tensor
        return as_keras_takes_it(self.path, name, tensor, self.specs[name])

    def _usable(self, mask: tf.Tensor | None) -> tf.Tensor | None:
        """The mask, or None if the Keras layer would lose it and may.

        Raises:
          ValueError: it would lose the mask and must not.
        """
        supports_masks = getattr(self.keras_layer, 'supports_masking', False)
        if mask is None or supports_masks or self._arguments.takes_mask:
            return mask
        if not self.params.drops_mask:
            raise ValueError(f'{self.path}: {self.params.class_name} does not support masks, and '
                             'would lose that of its input; set drops_mask=True if that is meant.')
        return None

    def _result(self, call: CallResult, dtype: tf.DType) -> tf.Tensor | NestedMap:
        """What fprop returns, given the call and the dtype of the first tensor."""
        p = self.params
        outputs = list(call.outputs)
        if not p.has_keras_dtypes and dtype.is_floating:
            outputs = [tf.cast(y, dtype) if y.dtype.is_floating else y for y in outputs]
        keys = ['x'] if len(outputs) == 1 else [f'x_{i}' for i in range(len(outputs))]
        results = dict(zip(keys, outputs, strict=True))
        if not p.drops_mask:
            results |= {_mask_key(key): mask for key, mask in zip(keys, call.masks, strict=True)
                        if mask is not None}
        if isinstance(p.writes, dict) and 'logits' in p.writes:
            results['logits'] = call.logits
        return outputs[0] if list(results) == ['x'] else NestedMap(results)


def named_tensors(params: KerasLayer.Params) -> list[str]:
    """The names of the tensors that Params give a source, a shape or a dtype."""
    return [name for name in {**params.reads, **params.input_shapes, **params.input_dtypes}
            if name != 'mask']


def _mask_key(name: str) -> str:
    """The name of the mask of a tensor, among arguments and results of fprop."""
    return 'mask' if name == 'x' else f'mask_{name}'
