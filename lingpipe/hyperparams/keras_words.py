"""Keras words: where an argument that users of Keras know is here; errors say so."""
from __future__ import annotations

_PLACES = {
    'batch_size': 'train_input.batch_size, and that of every eval input',
    'callbacks': 'hooks of the experiment, as hooks.EarlyStopping.Params()',
    'clipnorm': 'task.learner.clip_norm',
    'epochs': 'train.num_steps, which counts updates: epochs * examples / batch_size',
    'global_clipnorm': 'task.learner.clip_norm',
    'gradient_accumulation_steps': 'task.learner.accumulate',
    'initial_epoch': 'not needed: a run goes on from the newest checkpoint of its logdir',
    'input_shape': 'input_dim, or found out',
    'loss': 'the last layer of the network, as layers.CrossEntropyLoss.Params()',
    'metrics': 'what layers report by ctx.emit_metric; losses of classes report the accuracy',
    'min_delta': 'min_change of hooks.EarlyStopping.Params()',
    'monitor': 'metric of hooks.EarlyStopping.Params(), as accuracy, with is_largest_best=True',
    'optimizer': 'task.learner.optimizer, as optimizers.Adam.Params()',
    'restore_best_weights': "not needed: evaluate('best') and checkpoint='best' take the best",
    'shuffle': 'train_input.shuffle',
    'steps_per_epoch': 'train.num_steps, which counts all updates',
    'validation_data': 'eval_inputs of the experiment',
    'validation_freq': 'train.eval_every_steps',
    'validation_split': 'eval_inputs of the experiment, with the examples that are kept apart',
    'verbose': 'train.log_every_s',
}


def place_of(name: object) -> str:
    """A sentence on where Keras' argument of this name is here; '' if it is none of its names."""
    place = _PLACES.get(str(name))
    return f"Keras' {name} is {place}." if place else ''
