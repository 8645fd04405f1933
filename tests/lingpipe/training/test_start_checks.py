"""Checks before the first step: each mistake is one sentence, and later ones name their example."""
from __future__ import annotations

import io
import shutil
import types
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe import layers
from lingpipe.checkpoint import Checkpointer
from lingpipe.hyperparams import field
from lingpipe.input import ArrayInput, DatasetInput
from lingpipe.layers.sequential import Sequential
from lingpipe.learning import learning_rates, optimizers
from lingpipe.learning.learner import Learner
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.training.experiment import Experiment
from lingpipe.training.loop import LoopOptions, TrainLoop
from lingpipe.training.problem import Problem
from lingpipe.training.train_params import TrainParams

NUM_CLASSES = 5


class Tokens(ArrayInput):
    """Twenty examples of an id and a label each, one of which may be wrong."""

    class Params(ArrayInput.Params):
        size: int = field(20, 'How many examples.')
        label_at: int = field(-1, 'The example with another label; -1: none.')
        label: float = field(0., 'Its label.')
        weight: float = field(1., 'Its weight.')
        id_at: int = field(-1, 'The example with the id 99; -1: none.')
        dtype: str = field('int32', 'Dtype of the labels.')

    params: Params

    def load(self) -> Any:
        p = self.params
        index = np.arange(p.size)
        label, weight = (index % NUM_CLASSES).astype(p.dtype), np.ones(p.size, np.float32)
        label[index == p.label_at], weight[index == p.label_at] = p.label, p.weight
        return {'ids': np.where(index == p.id_at, 99, index % 7), 'label': label, 'weight': weight}


def make_params(train: Any = None, test: Any = None, num_steps: int = 4, accumulate: int = 1,
                **pipeline: Any) -> Any:
    network = (layers.Embedding.Params(name='embedding', vocab_size=7, dim=4),
               layers.Dense.Params(name='logits', input_dim=4, units=NUM_CLASSES),
               layers.CrossEntropyLoss.Params(name='loss', reads={'labels': 'label'}))
    learner = Learner.Params(learning_rate=learning_rates.Constant.Params(rate=0.1),
                             optimizer=optimizers.SGD.Params(), accumulate=accumulate)
    task = Problem.Params(model=Sequential.Params(name='model', layers=network), learner=learner)
    return Experiment.Params(
        task=task, train_input=(train or Tokens.Params()).set(batch_size=4, shuffle=False),
        eval_inputs={
            'test': (test or Tokens.Params()).set(batch_size=4, shuffle=False, num_epochs=1)},
        pipeline=PipelineParams(**pipeline),
        train=TrainParams(num_steps=num_steps, checkpoint_every_steps=1,
                          checkpoint_in_background=False, summary_every_steps=1000))


def loop_of(params: Any, logdir: Any, **options: Any) -> TrainLoop:
    return TrainLoop(params.instantiate(), str(logdir), LoopOptions(out=io.StringIO(), **options))


class Weighted(Tokens):
    """Gives the weights of examples by the name that they have in Keras."""

    def load(self) -> Any:
        loaded = super().load()
        return {**loaded, 'sample_weight': loaded['weight']}


def test_an_evaluation_does_not_overlook_weights_of_examples(tmp_path: Any) -> None:
    """Only train_input was looked at: an evaluation counted all examples alike, without a word."""
    with pytest.raises(ValueError, match="^eval_inputs.test: Weighted gives 'sample_weight', which "
                                         "nothing reads: Keras' sample_weight is weight, which"):
        loop_of(make_params(test=Weighted.Params()), tmp_path).run()


def failing(params: Any, logdir: Any, sentence: str, error: type[Exception] = ValueError,
            **kwargs: Any) -> list[int]:
    """Runs a training that must fail, and returns the steps that it had saved before."""
    with pytest.raises(error, match=sentence) as raised:
        loop_of(params, logdir, **kwargs).run()
    assert '\n' not in str(raised.value)
    return Checkpointer(str(logdir / 'checkpoints'), is_writer=False).steps()


# Labels and ids.

@pytest.mark.parametrize(('dtype', 'label', 'shown'),
                         [('int32', 5, '5'), ('int8', -1, '-1'), ('uint8', 200, '200'),
                          ('float64', 1.5, '1.5'), ('int64', 2 ** 32, '4294967296')])
def test_label_out_of_range_is_found_before_the_first_step(
        tmp_path: Any, dtype: str, label: float, shown: str) -> None:
    train = Tokens.Params(label_at=2, label=label, dtype=dtype)
    assert failing(
        make_params(train), tmp_path,
        rf'^train_input: example 2 of Tokens has label {shown} but model/loss takes whole numbers '
        r'from 0 to 4; correct the data, or make the layer larger\.$') == []


def test_a_negative_weight_is_found_before_the_first_step(tmp_path: Any) -> None:
    """The loss was divided by a sum of weights that the negative ones had made too small."""
    assert failing(make_params(Tokens.Params(label_at=2, weight=-0.5)), tmp_path / 'arrays',
                   r"^'weight' of load of Tokens has -0\.5 in example 2, but what an example "
                   'counts is 0 or more') == []
    source = DatasetInput.of(lambda: tf.data.Dataset.from_tensor_slices({
        'ids': np.zeros(8, np.int32), 'label': np.zeros(8, np.int32),
        'weight': np.float32([1, -2, 1, 1, 1, 1, 1, 1])}), batch_size=4)
    assert failing(make_params(source), tmp_path / 'dataset',
                   "^train_input: 'weight' has -2 in example 1, but what an example counts") == []


def test_label_out_of_range_in_an_eval_input_is_found_before_the_first_step(tmp_path: Any) -> None:
    test = Tokens.Params(label_at=3, label=7)
    assert (failing(make_params(test=test), tmp_path,
                    r'^eval_inputs\.test: example 3 of Tokens has label 7 but model/loss takes')
            == [])
    # The network of this run does not read it.
    loop = loop_of(make_params(test=test, num_steps=1), tmp_path / 'other', has_evaluation=False)
    assert loop.run().step == 1


def test_id_that_is_in_no_table_is_found_before_the_first_step(tmp_path: Any) -> None:
    assert failing(make_params(Tokens.Params(id_at=1)), tmp_path,
                   r'^train_input: example 1 of Tokens has ids 99 but model/embedding takes whole '
                   r'numbers from 0 to 6') == []


@pytest.mark.parametrize(('num_cells', 'accumulate'), [(2, 1), (1, 2)])
def test_label_of_a_later_step_is_named_by_its_example_and_nothing_is_learned_of_it(
        tmp_path: Any, num_cells: int, accumulate: int) -> None:
    train = Tokens.Params(label_at=10, label=9)
    params = make_params(train, num_cells=num_cells, accumulate=accumulate)
    step = 10 // (4 * accumulate) + 1
    assert failing(
        params, tmp_path,
        rf'^train_input, in step {step}: example 10 of Tokens has label 9 but model/loss'
    ) == list(range(1, step))


def test_id_of_a_later_step_is_named_by_its_example(tmp_path: Any) -> None:
    """On a CPU the look-up of a bad id fails, whereas a bad label makes the loss NaN."""
    assert failing(make_params(Tokens.Params(id_at=7)), tmp_path,
                   '^train_input, in step 2: example 7 of Tokens has ids 99 but model/embedding '
                   'takes whole numbers') == [1]


def test_label_of_a_later_mini_batch_of_an_evaluation_is_named_by_its_example(
        tmp_path: Any) -> None:
    test = Tokens.Params(label_at=13, label=-2)
    failing(make_params(test=test, num_steps=1), tmp_path,
            r'^eval_inputs\.test: example 13 of Tokens has label -2 but model/loss takes')


def test_label_of_an_example_without_weight_may_be_anything(tmp_path: Any) -> None:
    train = Tokens.Params(label_at=2, label=77, weight=0)
    assert loop_of(make_params(train, test=train.copy(), num_steps=1), tmp_path).run().step == 1


def test_label_is_found_behind_a_layer_that_makes_it(tmp_path: Any) -> None:
    params = make_params(Tokens.Params(label_at=2, label=6, dtype='float32'))
    *network, loss = params.task.model.layers
    cast = layers.Cast.Params(name='cast', dtype='int32', reads={'x': 'label'}, writes='label')
    params.task.model.layers = (cast, *network, loss)
    assert failing(params, tmp_path,
                   r'^train_input: example 2 of Tokens has label 6 but model/loss takes') == []


def test_labels_of_any_type_of_number_are_trained_and_evaluated_on(tmp_path: Any) -> None:
    def metrics(train: str, test: str) -> dict[str, float]:
        params = make_params(Tokens.Params(dtype=train), Tokens.Params(dtype=test), num_steps=1)
        return loop_of(params, tmp_path / train).run().metrics['test']

    assert metrics('uint8', 'float64') == metrics('int32', 'int32')


# Inputs that cannot be read.

class Other(Tokens):
    """Tokens whose `load` returns something else."""

    class Params(Tokens.Params):
        kind: str = field('', 'What it gives.')

    params: Params

    def load(self) -> Any:
        good = super().load()
        match self.params.kind:
            case 'list':
                return list(good.values())
            case 'raises':
                return good['labels']
            case 'strings':
                return {**good, 'label': np.array(['cat', 'dog'] * 10)}
            case 'objects':
                return {**good, 'label': np.array([None] * 20)}
            case 'ragged':
                return {**good, 'label': [[1]] * 19 + [[1, 2]]}
            case 'masked':
                return {**good, 'label': np.ma.masked_less(np.arange(20.), 3.)}
            case 'scalar':
                return {**good, 'label': 3}
            case _:
                return good


@pytest.mark.parametrize(('kind', 'sentence'), [
    ('list', r'load of Other gives list, but must give a dict of name -> array'),
    ('raises', r"load of Other cannot be read: its code raises KeyError: 'labels'"),
    ('strings', r'model/loss reads \'label\' .*, which is of strings, but computes with numbers; '
                r'make numbers of them in the input'),
    ('objects', r"'label' of load of Other is an array of Python objects \(NoneType\), but must be "
                r"of numbers"),
    ('ragged', r"'label' of load of Other is no array: .*; give every example the same shape"),
    ('masked', r"'label' of load of Other is an array with masked values, .*; fill them"),
    ('scalar',
     r"'label' of load of Other is one value, .*, but must have a row for every example")])
def test_arrays_that_are_none_are_one_sentence(tmp_path: Any, kind: str, sentence: str) -> None:
    assert failing(make_params(Other.Params(kind=kind)), tmp_path / 'train', sentence) == []
    assert failing(make_params(test=Other.Params(kind=kind)), tmp_path / 'test',
                   rf'^eval_inputs\.test: .*{sentence}') == []


class Broken(Tokens):
    """Tokens whose `preprocess` raises an error, either when it is traced or for one example."""

    class Params(Tokens.Params):
        is_late: bool = field(False, 'Whether it is one example.')

    params: Params

    def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
        def look(number: np.ndarray) -> np.ndarray:
            return {i: i for i in range(9)}[int(number)]

        if not self.params.is_late:
            return {**example, 'label': example['labels']}
        return {**example,
                'label': tf.ensure_shape(tf.numpy_function(look, [example['label']], tf.int64), [])}


def test_code_of_an_input_that_raises_is_one_sentence(tmp_path: Any) -> None:
    assert failing(
        make_params(test=Broken.Params()), tmp_path / 'traced',
        r"^eval_inputs\.test: Broken cannot be read: its code raises KeyError: 'labels'$") == []
    assert failing(make_params(test=Broken.Params(is_late=True, label_at=1, label=20)),
                   tmp_path / 'run',
                   r'^eval_inputs\.test: Broken cannot make a mini-batch: KeyError: 20') == []


def test_empty_eval_input_is_found_before_the_first_step(tmp_path: Any) -> None:
    assert failing(make_params(test=Tokens.Params(size=0)), tmp_path,
                   r'^eval_inputs\.test: Tokens has no examples; name data that is not empty') == []


class Unlabelled(Tokens):
    """Tokens without labels."""

    def load(self) -> Any:
        return {name: array for name, array in super().load().items() if name != 'label'}


def test_eval_input_that_lacks_a_value_is_found_before_the_first_step(tmp_path: Any) -> None:
    assert failing(
        make_params(test=Unlabelled.Params()), tmp_path,
        r"^eval_inputs\.test: model/loss reads 'label' .*, which no layer before it writes") == []


# The rest.

def test_disk_without_room_for_a_checkpoint_is_found_before_the_first_step(
        tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: types.SimpleNamespace(free=50))
    assert failing(
        make_params(), tmp_path,
        r'checkpoints has 0\.0 MB free, but a checkpoint takes .* MB; make room or choose another',
        OSError) == []


def test_checked_mini_batch_is_the_first_that_is_trained_on(tmp_path: Any) -> None:
    seen = []
    for num_steps in (3, 5):
        loop = loop_of(make_params(num_steps=num_steps), tmp_path, has_evaluation=False)

        def remembered(batch: Any, *others: Any,
                       train_step: Any = loop.program.train_step) -> Any:
            seen.append(batch['ids'].numpy().tolist())
            return train_step(batch, *others)

        loop.program.train_step = remembered
        loop.run()
    assert seen == (np.arange(20) % 7).reshape(5, 4).tolist()
