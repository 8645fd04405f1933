"""Served network: the layers of a prediction as one TensorFlow function, without cells.

The function takes any number of examples. Its variables are the weights that evaluation uses.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import tensorflow as tf

from lingpipe import cluster
from lingpipe.layers import nested
from lingpipe.layers.context import Context
from lingpipe.layers.nested import Nested
from lingpipe.pipeline.execution.predictor import Predictor
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.dataflow import Value
from lingpipe.process.error_text import sentence

Tensors = dict[str, tf.Tensor]


class ServedNetwork:
    """A network as a function of named tensors, [N, ...] each.

    Attributes:
      module: what is saved; its attribute `weights` has a variable for the path of every weight
        that the outputs need.
      inputs: name of an argument -> tf.TensorSpec [None, ...].
      outputs: name of a result -> tf.TensorSpec [None, ...].
    """

    def __init__(self, program: Program, predictor: Predictor):
        """Copies the weights to the first CPU.

        Raises:
          ValueError: two inputs, or two outputs, would have one name.
        """
        self._predictor, self._seed = predictor, program.seed
        values = program.evaluated_weights()
        paths = dict.fromkeys(weight.shared_with or weight.path for element in predictor.elements
                              for weight in element.layer.weights())
        with tf.device(cluster.HOME):
            self._weights = {path: tf.Variable(values[path], trainable=False, name=path)
                             for path in paths}
        self.module = tf.Module(name='lingpipe')
        self.module.weights = self._weights

        self._needed = {name: spec for name, spec in predictor.input_specs.items()
                        if name not in predictor.optional_inputs}
        self.inputs = signature(self._needed)
        self.outputs = signature(predictor.output_specs)

    def in_parts(self) -> tf.types.experimental.ConcreteFunction:
        """The function that runs micro-batches of an evaluation, one after the other.

        The bits of its results are those of the evaluation, since a matrix product may round
        otherwise for another number of rows. Where examples see each other, the function fails
        unless it is given whole micro-batches.
        """
        return self._traced(self._run_in_parts)

    def at_once(self, is_inlined: bool = False) -> tf.types.experimental.ConcreteFunction:
        """The function that runs all examples at once, however many.

        Args:
          is_inlined: whether the graph holds the ops themselves, as a converter wants them, and not
            a call.

        Raises:
          ValueError: a layer cannot do without knowing the number of examples, or its result for
            an example depends on the others, which would be more of them or fewer here.
        """
        if layer := self._predictor.mixing_layer:
            remedy = (f'if it does so in training alone, {layer.training_only_remedy}, or else '
                      if layer.training_only_remedy else '')
            raise ValueError(
                f'the result of {layer.path} for an example depends on the others, of which a '
                f'micro-batch has {self._predictor.part_size}; {remedy}use the signature '
                'serving_default of a saved_model, which takes a multiple of that many examples.')
        try:
            return self._traced(self._run, is_inlined)
        except Exception as error:   # A layer is anyone's code.
            raise ValueError(f'a layer needs to know the number of examples: '
                             f'{sentence(error)}') from error

    def _traced(self, run: Callable[..., Tensors],
                is_inlined: bool = False) -> tf.types.experimental.ConcreteFunction:
        """Traces a function. Grappler, which changes bits, is off in it unless it is inlined."""
        if is_inlined:
            return tf.function(run, autograph=False).get_concrete_function(**self.inputs)
        inner = tf.function(run, autograph=False, experimental_attributes={'_noinline': True})

        @tf.function(autograph=False)
        def served(**inputs: tf.Tensor) -> Tensors:
            with tf.control_dependencies(_checks_of_lengths(inputs)):
                checked = {name: tf.identity(tensor) for name, tensor in inputs.items()}
            outputs: Tensors = inner(**checked)
            return outputs

        return served.get_concrete_function(**self.inputs)

    def _run(self, **inputs: tf.Tensor) -> Tensors:
        """The outputs of any number of examples, all at once."""
        return self._outputs(Context(False, self._seed), inputs)

    def _outputs(self, ctx: Context, inputs: Mapping[str, tf.Tensor]) -> Tensors:
        """The outputs of the examples of one call."""
        num_examples = _num_examples(inputs)
        batch = self._packed(inputs, lambda spec: tf.ones([num_examples, *spec.shape], spec.dtype))
        values: dict[Value, Nested] = {}
        for element in self._predictor.elements:
            layer = element.layer
            arguments = {
                argument: values[value] if value in values else batch[value.name]
                for argument, value in element.reads.items()}
            weights = {weight.path: tf.convert_to_tensor(
                self._weights[weight.shared_with or weight.path]) for weight in layer.weights()}
            written = layer.written(layer.fprop(layer.theta(weights), ctx, **arguments))
            values.update({element.writes[name]: value for name, value in written.items()})
        return _flat({name: values[value] for name, value in self._predictor.outputs.items()})

    def _run_in_parts(self, **inputs: tf.Tensor) -> Tensors:
        """The outputs of any number of examples, micro-batch by micro-batch."""
        part_size = self._predictor.part_size
        num_examples = _num_examples(inputs)
        with tf.control_dependencies(self._checks_of_copies(num_examples)):
            num_parts = -(-num_examples // part_size)
        rows = tf.minimum(tf.range(num_parts * part_size), num_examples - 1)
        parts = {name: tf.reshape(tf.gather(tensor, rows),
                                  tf.concat([[num_parts, part_size], tf.shape(tensor)[1:]], 0))
                 for name, tensor in inputs.items()}

        # A layer may draw random numbers here, too: those of a micro-batch of a prediction.
        micro_batches = tf.range(num_parts) % (self._predictor.batch_size // part_size)

        def run_part(part: tuple[Tensors, tf.Tensor]) -> Tensors:
            examples, micro_batch = part
            return self._outputs(
                Context(False, self._seed, micro_batch=micro_batch),
                {name: tf.ensure_shape(tensor, [part_size, *tensor.shape[1:]])
                 for name, tensor in examples.items()})

        specs = {name: tf.TensorSpec([part_size, *spec.shape[1:]], spec.dtype)
                 for name, spec in self.outputs.items()}
        outputs = tf.map_fn(run_part, (parts, micro_batches), fn_output_signature=specs,
                            parallel_iterations=1)
        return {name: tf.reshape(tensor, [-1, *specs[name].shape[1:]])[:num_examples]
                for name, tensor in outputs.items()}

    def _checks_of_copies(self, num_examples: tf.Tensor) -> list[tf.Operation]:
        """Ops that fail if copies would fill up a micro-batch whose examples see each other."""
        if not self._predictor.mixing_layer:
            return []
        return [tf.debugging.Assert(num_examples % self._predictor.part_size == 0, [
            f'{self._predictor.mixing_sentence}, not', num_examples])]

    def _packed(self, inputs: Mapping[str, tf.Tensor],
                default: Callable[[tf.TensorSpec], tf.Tensor]) -> dict[str, Nested]:
        """The nested values of the mini-batch."""
        by_path = {safe(path): path for path, _ in nested.flatten(self._needed)}
        tensors = {by_path[name]: tensor for name, tensor in inputs.items()}
        flat = [tensors[path] if path in tensors else default(spec)
                for path, spec in nested.flatten(self._predictor.input_specs)]
        packed: dict[str, Nested] = nested.pack_like(self._predictor.input_specs, flat)
        return packed


def signature(specs: Mapping[str, Nested]) -> dict[str, tf.TensorSpec]:
    """Flat names -> specs of any number of examples.

    Raises:
      ValueError: two values would have one name.
    """
    flat: dict[str, tf.TensorSpec] = {}
    paths: dict[str, str] = {}
    for path, spec in nested.flatten(dict(specs)):
        name = safe(path)
        if name in flat:
            raise ValueError(f'the values {paths[name]!r} and {path!r} would both be {name} in the '
                             'exported model, whose names have letters, digits and _ only; give '
                             'one of them another name.')
        paths[name] = path
        flat[name] = tf.TensorSpec([None, *spec.shape], spec.dtype, name)
    return flat


def _num_examples(inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
    return tf.shape(next(iter(inputs.values())))[0]


def _checks_of_lengths(inputs: Mapping[str, tf.Tensor]) -> list[tf.Operation]:
    """Ops that fail unless all inputs have equally many examples."""
    (first, tensor), *others = inputs.items()
    length = tf.shape(tensor)[0]
    return [tf.debugging.Assert(length == tf.shape(other)[0], [
        f'{first} and {name} have unequal numbers of examples:', length, tf.shape(other)[0],
        '; give both the same number']) for name, other in others]


def _flat(values: Mapping[str, Nested]) -> Tensors:
    return {safe(path): tensor for path, tensor in nested.flatten(dict(values))}


def safe(path: str) -> str:
    """A path as the name of an argument: letters, digits and _."""
    return re.sub(r'\W', '_', path)
