"""Hugging Face: the Params of a translation network for the weights of a folder."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lingpipe.checkpoint import hugging_face
from lingpipe.hyperparams import Params
from lingpipe.tasks.text.hugging_face_values import check_described, read_fields, warn_of_rates
from lingpipe.tasks.translation.hugging_face_config import fields_of, layer_dropout_of, rates_of
from lingpipe.tasks.translation.transformer import Transformer


def translation_model(folder: str | os.PathLike[str], **fields: Any) -> Transformer.Params:
    """Returns the Params of the network that a folder of Hugging Face describes.

    The weights come from there with `InitializeFrom(directory=folder)` of the experiment. The
    network reads `source`, `target`, `label` and `weight`, and trains with the dropout of the
    folder.

    Args:
      folder: has config.json of the model_type m2m_100; see docs/hugging-face.md.
      **fields: further ones of Transformer.Params, as dtype='bfloat16' or dropout_rate=0.3.

    Raises:
      ValueError: config.json is missing or damaged, or says what is not supported.
    """
    path = os.fspath(folder)
    config, known = read_fields(path, lambda config: {**fields_of(config), **rates_of(config)})
    warn_of_rates(path, 'layer dropout', layer_dropout_of(config))
    params: dict[str, Any] = {'name': 'model', **known, **fields}
    return Transformer.Params(**params)


def check_config(model: Params, facts: Mapping[str, Any]) -> None:
    """Raises ValueError if weights come with a config.json of another network.

    Args:
      model: the Params of the network.
      facts: those of the weights; without a config, nothing is checked.
    """
    if hugging_face.FACT in facts and isinstance(model, Transformer.Params):
        check_described(model.copy().instantiate().fields_of_hugging_face(),
                        fields_of(facts[hugging_face.FACT]), 'translation_model')
