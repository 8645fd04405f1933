"""Conversion: from_keras, which makes the Params of a network of a Keras model."""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from absl import logging

from lingpipe.keras_models.compiled import LABELS, has_logits, labels_of, losses_of
from lingpipe.keras_models.graph import Call, Graph, Value, functional, graph_of, keys_of
from lingpipe.keras_models.keras_model import KerasModel
from lingpipe.keras_models.likeness import check_alike
from lingpipe.keras_models.logits import logits_of
from lingpipe.keras_models.lost_masks import readers_of_lost_masks
from lingpipe.keras_models.names import differing, is_made_by_keras, stable_names
from lingpipe.keras_models.probe import adds_a_sum_when_called, mixes_when_called
from lingpipe.layers.base import Layer
from lingpipe.layers.keras_arguments import KerasArguments, encoded_arguments
from lingpipe.layers.keras_checks import has_code_of_users
from lingpipe.layers.keras_layer import KerasLayer
from lingpipe.layers.sequential import Sequential
from lingpipe.wording.counts import counted
from lingpipe.wording.values import show


def from_keras(model: keras.Model, name: str = 'model', labels: str = LABELS
               ) -> KerasModel.Params:
    """Returns the Params of a network that computes what a Keras model computes.

    Every call of a layer becomes a KerasLayer, and every nested model a Sequential, so that a
    pipeline may cut anywhere between layers. Weights begin with the values that they have in the
    model. The network reads the model's inputs by their names (a model of one input without a name
    of its own reads `x`), and writes its outputs by theirs. If the model is compiled with a loss,
    that is the last layer, and reads `labels` (of several outputs, `labels_OUTPUT`);
    `learner_from_keras` gives the learner.

    Args:
      model: Sequential or Functional. It may have any number of inputs and outputs, nested models,
        layers that are called several times, and operations of keras.ops.
      name: of the network, with which the paths of weights begin.
      labels: what the loss of the only output reads, as 'label' for the image inputs.

    Raises:
      ValueError: the model has no known graph, or a layer that cannot be described by a class and a
        configuration, or that a pipeline cannot run as Keras does.
    """
    inner = functional(model)
    if inner is None:
        raise ValueError(_without_graph(model))
    inputs = _input_names(inner)
    _check_batch_size(model, inner)
    graph = graph_of(model, name, inputs)
    keras_names, outputs = _output_names(inner, inputs)
    names_of_labels = labels_of(outputs, labels)
    reserved = _reserved(model, inputs, outputs, names_of_labels)
    renamed, copies = _renaming(graph, inputs, outputs, reserved)

    values = zip(outputs, graph.outputs, has_logits(model, keras_names), strict=True)
    _warn_of_lost_masks(graph, bool(model.compiled and model.loss))
    logits = logits_of(graph, renamed, {output: value for output, value, has in values if has})
    layers = [*_layers(graph, '', _Names(renamed, logits.written), []), *copies]
    taken = [layer.name for layer in layers]   # A layer of Keras may be called loss.
    layers += [loss.set(name=differing(loss.name, taken))
               for loss in losses_of(model, keras_names, outputs, names_of_labels, logits)]
    params = KerasModel.Params(name=name, layers=tuple(layers), inputs=tuple(inputs),
                               outputs=tuple(outputs))
    if model.compiled and model.optimizer.gradient_accumulation_steps:
        # Keras adds up the gradients of mini-batches.
        for _, nested in params.walk():
            if isinstance(nested, KerasLayer.Params):
                nested.keeps_gradient_rows = False
    return params.with_keras_model(model)


def _warn_of_lost_masks(graph: Graph, has_loss: bool) -> None:
    """Warns of layers and losses that read a mask here, and none in Keras."""
    for reader, (value, attention) in readers_of_lost_masks(graph).items():
        is_output = reader in graph.outputs
        if has_loss or not is_output:
            logging.warning(
                'Keras takes the mask of %r away when the MultiHeadAttention %r has read it, so '
                '%s %r has none there. Here it has one, and results differ from those of Keras '
                'where something is masked, unless you give the mask as attention_mask, with '
                'values that have none', value, attention,
                'the loss or the layer of the output' if is_output else 'the layer', reader)


def _without_graph(model: keras.Model) -> str:
    """The error for a model whose graph is not known."""
    kind = f'{type(model).__name__} {getattr(model, "name", "")!r}'
    if isinstance(model, keras.Sequential) and not model.built:
        return (f'the model {kind} has not been built, so that its shapes are not known; give it a '
                'keras.Input first, or call model.build(shape).')
    if isinstance(model, keras.Model):
        return (f'the model {kind} has a call() of its own, so that nobody knows its layers before '
                'it runs; make it with keras.Model(inputs, outputs), or use it as one layer, '
                'KerasLayer.Params(layer=model).')
    remedy = ', as keras.models.load_model gives one' if isinstance(model, str) else ''
    return f'{show(model)} is no model of Keras; give a keras.Sequential or keras.Model{remedy}.'


def _check_batch_size(model: keras.Model, inner: keras.Model) -> None:
    """Raises ValueError for a Sequential that was made for the examples of its first call.

    Args:
      model: the model.
      inner: the model whose graph is its own.
    """
    sizes = [tensor.shape[0] for tensor in inner.inputs if tensor.shape]
    if isinstance(model, keras.Sequential) and sizes[0] is not None:
        raise ValueError(f'the Sequential {model.name!r} takes mini-batches of '
                         f'{counted(sizes[0], "example")} only: without a keras.Input, Keras makes '
                         'its graph for the examples of the first call, as of fit or predict, and '
                         'with batch_size for as many. Give it a number of examples that varies, '
                         'with the same layers and weights, by '
                         f'keras.Sequential([keras.Input({inner.inputs[0].shape[1:]}), '
                         '*model.layers]), and compile that.')


def _input_names(model: keras.Model) -> list[str]:
    """The names of the values that a model reads."""
    if isinstance(model.input, dict):
        return keys_of(model.input, model.inputs)
    makers = [tensor._keras_history.operation for tensor in model.inputs]
    if len(makers) == 1 and is_made_by_keras(makers[0]):
        return ['x']
    return stable_names(makers)


def _output_names(model: keras.Model, taken: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names of a model's outputs in Keras, and those of the values that they are here.

    Outputs that are a dict have the names of its keys; others those of the layers that make them.
    """
    if isinstance(model.output, dict):
        keys = keys_of(model.output, model.outputs)
        return keys, [differing(key, taken) for key in keys]
    makers = [tensor._keras_history.operation for tensor in model.outputs]
    known: list[Any] = []
    for maker in makers:
        if not any(maker is one for one in known):
            known.append(maker)
    by_maker = stable_names(known)
    names: list[str] = []
    for maker in makers:
        name = by_maker[next(i for i, one in enumerate(known) if one is maker)]
        names.append(differing(name, [*names, *taken]))
    return list(model.output_names), names


def _reserved(model: keras.Model, inputs: Sequence[str], outputs: Sequence[str],
              labels: Sequence[str]) -> list[str]:
    """The names that the losses of a compiled model read beside its outputs.

    Raises:
      ValueError: an input or an output has one of them.
    """
    if not (model.compiled and model.loss):
        return []
    reserved = ['weight', *labels]
    for kind, names in ('input', inputs), ('output', outputs):
        for name in names:
            if name in reserved:
                raise ValueError(f'the Keras model {model.name!r} has an {kind} {name!r}, which is '
                                 f'what its loss reads: the names {", ".join(reserved)} are those '
                                 'of labels and of the weights of examples; rename it.')
    return reserved


def _renaming(graph: Graph, inputs: Sequence[str], outputs: Sequence[str], reserved: Sequence[str]
              ) -> tuple[dict[str, str], list[Layer.Params]]:
    """Value -> its name, and layers that copy a value that is an output twice, or an input."""
    written = [value for call in graph.calls() for value in call.writes]
    renamed: dict[str, str] = {}
    for value, output in zip(graph.outputs, outputs, strict=True):
        if value in written:
            renamed.setdefault(value, output)
    copies: list[Layer.Params] = [
        KerasLayer.Params(name=f'copy_{output}', class_name='Identity', writes=output,
                          reads={'x': renamed.get(value, value)}, has_keras_dtypes=True)
        for value, output in zip(graph.outputs, outputs, strict=True)
        if renamed.get(value) != output]

    taken = [*inputs, *outputs, *reserved]
    for value in written:
        if value not in renamed:
            renamed[value] = differing(value, taken)
            taken.append(renamed[value])
    return renamed, copies


@dataclasses.dataclass(frozen=True)
class _Names:
    """What values are called in the network.

    Attributes:
      renamed: value of the graph -> its name.
      logits: the name of a value -> that of its logits, which the same layer writes.
    """
    renamed: Mapping[str, str]
    logits: Mapping[str, str]


def _layers(graph: Graph, prefix: str, names: _Names,
            owners: list[tuple[keras.Operation, str]]) -> list[Layer.Params]:
    """The Params of a graph's members; `owners` gets each weight with the path of its owner."""
    layers: list[Layer.Params] = []
    for member in graph.members:
        if isinstance(member, Graph):
            nested = _layers(member, f'{prefix}{member.name}/', names, owners)
            layers.append(Sequential.Params(name=member.name, layers=tuple(nested)))
        else:
            layers.append(_layer(member, prefix, names, owners))
    return layers


def _layer(call: Call, prefix: str, names: _Names,
           owners: list[tuple[keras.Operation, str]]) -> KerasLayer.Params:
    """The Params of one call.

    Raises:
      ValueError: it cannot be had; the message names the layer.
    """
    arguments_of = {value: 'x' if len(call.inputs) == 1 else f'x_{i}'
                    for i, value in enumerate(call.inputs)}
    operation, path = call.operation, f'{prefix}{call.name}'
    try:
        arguments = encoded_arguments(
            call.arguments,
            lambda one: arguments_of[one.name] if isinstance(one, Value) else None)
        shapes = {arguments_of[value]: tuple(tensor.shape[1:])
                  for value, tensor in call.inputs.items()}
        dtypes = {arguments_of[value]: tensor.dtype for value, tensor in call.inputs.items()}
        params = KerasLayer.Params(
            layer=operation, name=call.name, arguments=json.dumps(arguments), input_shapes=shapes,
            input_dtypes=dtypes, has_keras_dtypes=True,
            reads={argument: names.renamed.get(value, value)
                   for value, argument in arguments_of.items()},
            writes=_writes(call, names),
            drops_mask=not getattr(operation, 'supports_masking', False))
        layer = params.instantiate(path)
        _check(call, layer)
        check_alike(operation, layer.keras_layer)
        is_of_users = has_code_of_users(params.class_name, params.config)
        probed = (KerasArguments(path, operation, list(shapes), arguments),
                  {arguments_of[value]: tensor for value, tensor in call.inputs.items()})
        if is_of_users or not isinstance(operation, keras.layers.Layer):
            # The axis of an operation may be None, or count from the end of any of its tensors.
            params.mixes_examples = mixes_when_called(operation, *probed)
        if is_of_users and adds_a_sum_when_called(operation, *probed):
            logging.warning(
                'the layer %r of the Keras model adds a loss that grows with the number of '
                'examples, as a sum over them does. Losses that layers add are averaged over '
                'micro-batches and replicas, so that with M micro-batches it counts 1/M of what it '
                'does in Keras; add a mean, as by keras.ops.mean, or leave num_micro_batches and '
                'num_replicas at 1', path)
        params.share = _share(layer, operation, path, owners)
        return params
    except Exception as error:   # A layer is anyone's code.
        raise ValueError(f'the layer {path!r} of the Keras model cannot be had: {error}') from error


def _writes(call: Call, names: _Names) -> str | dict[str, str]:
    """What a call writes, in the network."""
    written = [names.renamed[value] for value in call.writes]
    if len(written) > 1:
        return {f'x_{i}': name for i, name in enumerate(written)}
    if written[0] in names.logits:
        return {'x': written[0], 'logits': names.logits[written[0]]}
    return written[0]


def _share(layer: KerasLayer, operation: keras.Operation, path: str,
           owners: list[tuple[keras.Operation, str]]) -> dict[str, str]:
    """Own weight -> path of the weight of an earlier call that is the same Keras variable."""
    weights = list(getattr(operation, 'weights', []))
    if not weights:
        return {}
    share: dict[str, str] = {}
    names = list(layer.own_weights)
    if not names:   # An adapted Normalization, whose numbers are part of its configuration.
        return {}
    for name, variable in zip(names, weights, strict=True):
        owner = next((owner for known, owner in owners if known is variable), None)
        if owner is not None:
            share[name] = owner
        else:
            owners.append((variable, f'{path}/{name}'))
    return share


def _check(call: Call, layer: KerasLayer) -> None:
    """Raises ValueError unless a layer made of its configuration has the call's outputs."""
    for output in call.outputs:
        if not output.shape or output.shape[0] is not None:
            raise ValueError(f'it gives {tuple(output.shape)}, whose first dimension is not that '
                             'of any number of examples, so that a mini-batch cannot be split; '
                             'leave batch_size out of keras.Input, and keep the examples apart')
    for spec, output in zip(layer.output_specs, call.outputs, strict=True):
        if spec.shape != output.shape or spec.dtype != output.dtype:
            raise ValueError(f'made from its configuration it gives {spec.dtype} {spec.shape}, '
                             f'but in the model {output.dtype} {output.shape}; correct its '
                             'get_config')
