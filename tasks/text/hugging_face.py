"""Hugging Face: the Params of a network for the weights of a folder."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lingpipe.checkpoint import hugging_face
from lingpipe.checkpoint.peft_adapters import PeftAdapters
from lingpipe.hyperparams import Params
from lingpipe.layers.low_rank import Adapters
from lingpipe.tasks.text.hugging_face_config import dropout_of, fields_of
from lingpipe.tasks.text.hugging_face_experts import balance_of
from lingpipe.tasks.text.hugging_face_values import check_described, read_fields, warn_of_rates
from lingpipe.tasks.text.language_model import LanguageModel


def language_model(folder: str | os.PathLike[str], **fields: Any) -> LanguageModel.Params:
    """Returns the Params of the network that a folder of Hugging Face describes.

    The weights come from there with `InitializeFrom(directory=folder)` of the experiment. The
    network reads `target`, `label` and `weight`, and no `bytes`.

    Args:
      folder: has config.json; see docs/hugging-face.md.
      **fields: further ones of LanguageModel.Params, as dtype='bfloat16'.

    Raises:
      ValueError: config.json is missing or damaged, or says what is not supported; or the folder
        has adapters of peft.
    """
    path = os.fspath(folder)
    config, known = read_fields(path, lambda config: fields_of(config) | balance_of(config))
    warn_of_rates(path, 'dropout', dropout_of(config))
    params: dict[str, Any] = {'name': 'model', 'has_bytes': False, **known, **fields}
    return LanguageModel.Params(**params)


def peft_adapters(folder: str | os.PathLike[str]) -> Adapters:
    """Returns adapters for `language_model` or `translation_model`, as a folder of peft has them.

    Their matrices come from there with `InitializeFrom(adapters=folder)` of the experiment.

    Args:
      folder: has adapter_config.json and adapter_model.safetensors; see docs/hugging-face.md.

    Raises:
      ValueError: a file is missing or damaged, or says what is not supported.
      OSError: a file cannot be read.
    """
    adapters = PeftAdapters(os.fspath(folder))
    return Adapters(rank=adapters.rank, alpha=adapters.alpha, dropout_rate=adapters.dropout_rate,
                    targets=adapters.targets)


def check_config(model: Params, facts: Mapping[str, Any]) -> None:
    """Raises ValueError if weights come with a config.json of another network.

    Args:
      model: the Params of the network.
      facts: those of the weights; without a config, nothing is checked.
    """
    if hugging_face.FACT not in facts or not isinstance(model, LanguageModel.Params):
        return
    check_described(model.copy().instantiate().fields_of_hugging_face(),
                    fields_of(facts[hugging_face.FACT]), 'language_model')
