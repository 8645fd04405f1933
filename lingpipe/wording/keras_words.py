"""Keras words: where arguments, methods and objects of Keras are here; errors say so."""
from __future__ import annotations

import numbers

_PLACES = {
    'batch_size': 'train_input.batch_size, and that of every eval input',
    'callbacks': 'hooks of the experiment, as hooks.EarlyStopping.Params()',
    'class_weight': 'weight, which the input gives beside labels, as np.array([1., 5.])[labels]',
    'clipnorm': 'task.learner.clip_norm',
    'epochs': 'train.num_steps, which counts updates: epochs * examples / batch_size',
    'global_clipnorm': 'task.learner.clip_norm',
    'gradient_accumulation_steps': 'task.learner.accumulate',
    'initial_epoch': 'not needed: a run goes on from the newest checkpoint of its logdir',
    'input_shape': 'input_dim, or found out',
    'learning_rate': 'task.learner.learning_rate, as learning_rates.Constant.Params(rate=0.1)',
    'loss': 'the last layer of the network, as layers.CrossEntropyLoss.Params()',
    'metrics': 'what layers report by ctx.emit_metric; losses of classes report the accuracy',
    'min_delta': 'min_change of hooks.EarlyStopping.Params()',
    'monitor': 'metric of hooks.EarlyStopping.Params(), as accuracy, with is_largest_best=True',
    'optimizer': 'task.learner.optimizer, as optimizers.Adam.Params()',
    'restore_best_weights': "not needed: evaluate('best') and checkpoint='best' take the best",
    'return_dict': 'not needed: the metrics are a dict',
    'sample_weight': 'weight, which the input gives beside labels',
    'shuffle': 'train_input.shuffle',
    'steps_per_epoch': 'train.num_steps, which counts all updates',
    'validation_data': 'eval_inputs of the experiment',
    'validation_freq': 'train.eval_every_steps',
    'validation_split': 'eval_inputs of the experiment, with the examples that are kept apart',
    'verbose': 'train.log_every_s',
    'weight_decay': 'task.learner.weight_decay',
}
_METHODS = {
    'compile': 'not needed: lp.from_keras takes the loss and metrics of a compiled model',
    'count_params': 'what run.weights shows below its table',
    'fit': 'train(steps=...)',
    'get_layer': 'run.params.task.model, which has the Params of all layers',
    'get_weights': 'weights',
    'history': 'the result of evaluate(), and evaluations.jsonl in the logdir',
    'layers': 'run.params.task.model, which has the Params of all layers',
    'load_weights': 'initialize_from of the experiment',
    'optimizer': 'run.params.task.learner',
    'predict_on_batch': 'predict',
    'save': "export(path, format='keras'), which ends in .keras",
    'save_weights': "export(path, format='npz')",
    'set_weights': 'initialize_from of the experiment',
    'summary': 'plan',
    'test_on_batch': 'evaluate',
    'to_json': 'run.params.to_text()',
    'train_on_batch': 'train(steps=1)',
    'trainable_variables': 'weights',
    'trainable_weights': 'weights',
}
_OBJECTS = {   # Class of Keras or TensorFlow, among the bases of an object -> what to write.
    'Model': 'write lp.from_keras(model), the model of a task: Problem.Params(model=..., '
             'learner=lp.learner_from_keras(model))',
    'Layer': 'write lp.layers.KerasLayer.Params(layer=...)',
    'LearningRateSchedule': 'write one of lp.learning_rates, or lp.learner_from_keras(model)',
    'Optimizer': 'write lp.learner_from_keras(model), or one of lp.optimizers',
    'Callback': 'write one of lp.hooks, as lp.hooks.EarlyStopping.Params(), or a lp.hooks.Hook',
    'DatasetV2': 'write lp.DatasetInput.of(lambda: dataset, batch_size=32)',
    'ndarray': "write lp.ArrayInput.of({'x': x, 'labels': labels}, batch_size=32)",
    'DataFrame': 'write lp.ArrayInput.of(frame, batch_size=32)',
    'Series': "write lp.ArrayInput.of({'x': x, 'labels': series}, batch_size=32)",
}


def place_of(name: object) -> str:
    """A sentence on where Keras' argument of this name is here; '' if it is none of its names."""
    place = _PLACES.get(str(name))
    return f"Keras' {name} is {place}." if place else ''


def method_of(name: str) -> str:
    """What a run has in place of a method of a Keras model; '' if it is none of its methods."""
    return _METHODS.get(name, '')


def are_examples(*values: object) -> bool:
    """Whether one of the values can only be examples, as Keras' fit and evaluate take them."""
    return not all(value is None or isinstance(value, (str, numbers.Number)) for value in values)


def gives_batches(value: object) -> bool:
    """Whether a value is a PyDataset of Keras, each item of which is a batch."""
    return any(base.__name__ == 'PyDataset' and base.__module__.startswith('keras.')
               for base in type(value).__mro__)


def remedy_for(value: object) -> str:
    """What to write in place of an object of Keras, a data set or an array; '' for others."""
    if isinstance(value, (tuple, list)) and value:
        value = value[0]
    for base in type(value).__mro__:
        if base.__module__.split('.')[0] in ('keras', 'tensorflow', 'numpy', 'pandas'):
            if remedy := _OBJECTS.get(base.__name__):
                return remedy
    return ''
