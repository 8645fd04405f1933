"""Experts: what config.json says of mixtures of experts, as fields of a LanguageModel, and back.

All feed-forward parts of these models are mixtures, and each token is given to its experts whatever
others choose: no expert has a capacity.

    mixtral       num_local_experts; the gates of a token are divided by their sum
    qwen3_moe     num_experts or num_local_experts; norm_topk_prob says whether they are
    olmoe         num_experts, norm_topk_prob
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lingpipe.tasks.text.hugging_face_values import Config, flag, number, real, refuse

MODELS = {'mixtral': 'Mixtral', 'qwen3_moe': 'Qwen3-MoE', 'olmoe': 'OLMoE'}   # by model_type

# The fields of a network without experts, which have no meaning there, and one spelling.
NO_EXPERTS = {'num_experts': 0, 'num_chosen': 2, 'normalises_gates': True, 'capacity_factor': 1.25}

# Field -> the values with which it is as if it were not there.
SUPPORTED: dict[str, tuple[Any, ...]] = {
    'router_jitter_noise': (0, None),
    'decoder_sparse_step': (1, None),   # Others, and these layers, mean feed-forward parts that are
    'mlp_only_layers': ([], None),      # no mixtures.
    'clip_qkv': (None,),
}


def experts_of(config: Config, kind: str) -> dict[str, Any]:
    """The fields of the experts.

    Raises:
      ValueError: a field is missing, a token has more experts than there are, or it has one with a
        gate of always 1, which no network here has.
    """
    if kind not in MODELS:
        return NO_EXPERTS
    num_chosen = number(config, 'num_experts_per_tok')
    normalises = kind == 'mixtral' or flag(config, 'norm_topk_prob')
    if num_chosen == 1 and normalises:
        refuse('num_experts_per_tok', 1, '2 or more are, where the gates of a token are divided by '
                                         'their sum')
    name = 'num_local_experts' if 'num_local_experts' in config else 'num_experts'
    num_experts = number(config, name)
    if num_chosen > num_experts:
        raise ValueError(f'config.json has num_experts_per_tok={num_chosen} and '
                         f'{name}={num_experts}, but a token cannot have more experts than there '
                         'are; correct the one that is wrong.')
    return {'num_experts': num_experts, 'num_chosen': num_chosen,
            'normalises_gates': normalises, 'capacity_factor': 0.}


def balance_of(config: Config) -> dict[str, Any]:
    """The field balance of a network with experts, for training; {} without experts.

    transformers has one auxiliary loss, of the shares and the probabilities over all layers and all
    sequences, in which the shares of a layer add up to k. Here, each layer has one of each sequence
    with shares that add up to 1. With even loads, both are as large.
    """
    if config.get('model_type') not in MODELS:
        return {}
    if not flag(config, 'output_router_logits'):   # Then transformers trains without that loss.
        return {'balance': 0.}
    default = 0.01 if config['model_type'] == 'olmoe' else 0.001
    return {'balance': real(config, 'router_aux_loss_coef', default)
            * number(config, 'num_experts_per_tok') / number(config, 'num_hidden_layers')}


def config_of_experts(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """What a config.json of this model_type says of the experts, if there are any."""
    if kind not in MODELS:
        return {}
    config: dict[str, Any] = {'num_experts_per_tok': fields['num_chosen']}
    if kind == 'mixtral':
        return {**config, 'num_local_experts': fields['num_experts']}
    config |= {'num_experts': fields['num_experts'], 'norm_topk_prob': fields['normalises_gates']}
    if kind == 'qwen3_moe':
        config |= {'moe_intermediate_size': fields['hidden_dim'], 'decoder_sparse_step': 1,
                   'mlp_only_layers': []}
    return config
