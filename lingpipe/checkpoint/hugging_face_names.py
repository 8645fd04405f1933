"""Hugging Face names: tensors of its models, by the paths of weights in a network of lingpipe.

    model_type           tensor                                              path
    llama and its kin    model.layers.0.self_attn.q_proj.weight              attention_0/body/wq
    gemma3_text, olmo2   model.layers.0.post_feedforward_layernorm.weight    ffn_0/norm_after/scale
    qwen3_moe, olmoe     model.layers.0.mlp.experts.3.up_proj.weight         ffn_0/body/w_up
    mixtral              model.layers.0.block_sparse_moe.experts.3.w3.weight ffn_0/body/w_up
    phi3                 model.layers.0.self_attn.qkv_proj.q.weight          attention_0/body/wq
    gpt2                 transformer.h.0.attn.c_attn.q.weight                attention_0/body/wq
    m2m_100              model.encoder.layers.0.self_attn.q_proj.weight      encoder_0/attention/wq

The paths are those below a LanguageModel (tasks/text) or, of m2m_100, a Transformer
(tasks/translation). Hugging Face keeps the kernels of projections transposed. Channels of heads
need no other order, since both rotate halves (layers/rotary.py).

GPT-2 has them as they are here, but q, k and v side by side in one tensor, c_attn. Its pieces have
names of their own here, as h.0.attn.c_attn.q.weight. So it is with qkv_proj and gate_up_proj of
Phi-3, where q is as wide as its heads, and k and v as theirs. In a folder that GPT2Model wrote, and
not GPT2LMHeadModel, the names lack their first word, `transformer`.

Of a mixture, each expert has tensors of its own, and all experts one weight [E, ...], whose name
there has a * in place of the number: model.layers.0.mlp.experts.*.up_proj.weight. transformers 5
also writes one tensor of all experts, with w_gate and w_up side by side (save_pretrained with
save_original_format=False), whose pieces have names of their own here, too.
"""
from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Place(NamedTuple):
    """Where a weight is in the other program.

    Attributes:
      name: there.
      is_transposed: whether its two axes are in the other order there.
    """
    name: str
    is_transposed: bool


# The models whose tables are tied unless config.json says something else.
TIED = ('gpt2', 'm2m_100', 'gemma', 'gemma3_text', 'smollm3')

# The tensor -> the path of the weight; {i} is the number of the layer. Those of _KERNELS are
# transposed.
_NORMS = {
    'model.layers.{i}.input_layernorm.weight': 'attention_{i}/norm/scale',
    'model.layers.{i}.post_attention_layernorm.weight': 'ffn_{i}/norm/scale',
}
_NORMS_AFTER = {
    'model.layers.{i}.post_attention_layernorm.weight': 'attention_{i}/norm_after/scale',
    'model.layers.{i}.post_feedforward_layernorm.weight': 'ffn_{i}/norm_after/scale',
}
_NORMS_BY_TYPE = {   # model_type -> those of a layer, if they are others than those of llama
    'olmo2': _NORMS_AFTER,
    'gemma3_text': {
        'model.layers.{i}.input_layernorm.weight': 'attention_{i}/norm/scale',
        'model.layers.{i}.pre_feedforward_layernorm.weight': 'ffn_{i}/norm/scale',
        **_NORMS_AFTER},
}
_PATHS = {
    'model.embed_tokens.weight': 'embedding/w',
    **{f'model.layers.{{i}}.self_attn.{c}_proj.bias': f'attention_{{i}}/body/b{c}' for c in 'qkvo'},
    **{f'model.layers.{{i}}.self_attn.{c}_norm.weight': f'attention_{{i}}/body/{c}_scale'
       for c in 'qk'},
    'model.norm.weight': 'norm/scale',
}
_KERNELS = {
    **{f'model.layers.{{i}}.self_attn.{c}_proj.weight': f'attention_{{i}}/body/w{c}'
       for c in 'qkvo'},
    'lm_head.weight': 'softmax/w',
}
_FUSED = {   # of phi3
    **{f'model.layers.{{i}}.self_attn.qkv_proj.{c}.weight': f'attention_{{i}}/body/w{c}'
       for c in 'qkv'},
    **{f'model.layers.{{i}}.mlp.gate_up_proj.{c}.weight': f'ffn_{{i}}/body/w_{c}'
       for c in ('gate', 'up')},
}
_FEED_FORWARD = {f'model.layers.{{i}}.mlp.{c}_proj.weight': f'ffn_{{i}}/body/w_{c}'
                 for c in ('gate', 'up', 'down')}
_EXPERTS = {
    'model.layers.{i}.mlp.gate.weight': 'ffn_{i}/body/router',
    **{f'model.layers.{{i}}.mlp.experts.*.{c}_proj.weight': f'ffn_{{i}}/body/w_{c}'
       for c in ('gate', 'up', 'down')},
}
_EXPERTS_OF_MIXTRAL = {
    'model.layers.{i}.block_sparse_moe.gate.weight': 'ffn_{i}/body/router',
    **{f'model.layers.{{i}}.block_sparse_moe.experts.*.{name}.weight': f'ffn_{{i}}/body/w_{c}'
       for name, c in {'w1': 'gate', 'w3': 'up', 'w2': 'down'}.items()},
}
_FUSED_EXPERTS = {
    **{f'model.layers.{{i}}.mlp.experts.gate_up_proj.{c}': f'ffn_{{i}}/body/w_{c}'
       for c in ('gate', 'up')},
    'model.layers.{i}.mlp.experts.down_proj': 'ffn_{i}/body/w_down',
}
_PATHS_OF_GPT2 = {
    'transformer.wte.weight': 'embedding/w',
    'transformer.wpe.weight': 'positions/w',
    **{f'transformer.{name}.{theirs}': f'{path}/{ours}'
       for name, path in {'h.{i}.ln_1': 'attention_{i}/norm', 'h.{i}.ln_2': 'ffn_{i}/norm',
                          'ln_f': 'norm'}.items()
       for theirs, ours in {'weight': 'scale', 'bias': 'offset'}.items()},
    **{f'transformer.h.{{i}}.{name}.{kind}': f'{path}/{kind[0]}{suffix}'
       for name, path, suffix in [('attn.c_proj', 'attention_{i}/body', 'o'),
                                  ('mlp.c_fc', 'ffn_{i}/body', '1'),
                                  ('mlp.c_proj', 'ffn_{i}/body', '2'),
                                  *[(f'attn.c_attn.{c}', 'attention_{i}/body', c) for c in 'qkv']]
       for kind in ('weight', 'bias')},
}

# The modules of m2m_100 by the paths of layers. The decoder has one attention more.
_ATTENTIONS = {'self_attn': 'attention', 'encoder_attn': 'cross'}
_NORMS_OF_M2M_100 = {
    **{f'model.{side}.layer_norm': f'{side}_norm' for side in ('encoder', 'decoder')},
    **{f'model.{side}.layers.{{i}}.{name}': f'{side}_{{i}}/{path}_norm'
       for side in ('encoder', 'decoder')
       for name, path in {'final_layer_norm': 'ffn',
                          **{f'{one}_layer_norm': path for one, path in _ATTENTIONS.items()}
                          }.items()},
}
_LINEAR_OF_M2M_100 = {   # with the last letter of the names of kernel and bias
    f'model.{side}.layers.{{i}}.{name}': (f'{side}_{{i}}/{path}', suffix)
    for side in ('encoder', 'decoder')
    for name, path, suffix in [
        ('fc1', 'ffn', '1'), ('fc2', 'ffn', '2'),
        *[(f'{one}.{projection}_proj', path, projection[0])
          for one, path in _ATTENTIONS.items() for projection in ('q', 'k', 'v', 'out')]]
}
_PATHS_OF_M2M_100 = {
    'model.shared.weight': 'source_embedding/w',
    **{f'{name}.{theirs}': f'{path}/{ours}' for name, path in _NORMS_OF_M2M_100.items()
       for theirs, ours in {'weight': 'scale', 'bias': 'offset'}.items()},
    **{f'{name}.bias': f'{path}/b{suffix}' for name, (path, suffix) in _LINEAR_OF_M2M_100.items()},
}
_KERNELS_OF_M2M_100 = {
    f'{name}.weight': f'{path}/w{suffix}' for name, (path, suffix) in _LINEAR_OF_M2M_100.items()}

_TABLES_BY_TYPE = {   # model_type -> those that are not transposed, those that are
    'gpt2': (_PATHS_OF_GPT2, _KERNELS),
    'm2m_100': (_PATHS_OF_M2M_100, _KERNELS_OF_M2M_100),
    'mixtral': (_NORMS | _PATHS, _KERNELS | _EXPERTS_OF_MIXTRAL),
    **dict.fromkeys(['qwen3_moe', 'olmoe'], (_NORMS | _PATHS, _KERNELS | _EXPERTS)),
    **{kind: (norms | _PATHS, _KERNELS | _FEED_FORWARD) for kind, norms in _NORMS_BY_TYPE.items()},
    # Of two names of one weight, the later one is written.
    'phi3': (_NORMS | _PATHS, _KERNELS | _FEED_FORWARD | _FUSED)}
_OF_LLAMA = (_NORMS | _PATHS, _KERNELS | _FEED_FORWARD)

# Old files have these, which config.json says: speeds of rotations, the causal mask, and sinusoids.
_IS_CONSTANT = re.compile(r'.*\.rotary_emb\.inv_freq|(.*\.)?h\.\d+\.attn\.(masked_)?bias'
                          r'|model\.(en|de)coder\.embed_positions\.weights')
_NUMBER = re.compile(r'(?<=\.experts\.)(0|[1-9][0-9]*)(?=\.)')


def weight_of(tensor: str, model_type: str = 'llama') -> Place | None:
    """The path of a weight here, by the name of the tensor; None: there is none."""
    return _weight_of(_NUMBER.sub('*', tensor), model_type)


@functools.cache   # There may be a hundred experts in each layer.
def _weight_of(name: str, model_type: str) -> Place | None:
    norms = _NORMS_BY_TYPE.get(model_type, _NORMS)
    return _place(name, norms | _PATHS | _PATHS_OF_GPT2 | _PATHS_OF_M2M_100,
                  _KERNELS | _FEED_FORWARD | _FUSED | _EXPERTS | _EXPERTS_OF_MIXTRAL
                  | _FUSED_EXPERTS | _KERNELS_OF_M2M_100)


def tensor_of(path: str, model_type: str = 'llama') -> Place | None:
    """The name of a tensor, by the path of the weight here; None: there is none.

    It has a * if each expert has such a tensor (of_expert).
    """
    plain, transposed = _TABLES_BY_TYPE.get(model_type, _OF_LLAMA)
    return _place(path, {ours: theirs for theirs, ours in plain.items()},
                  {ours: theirs for theirs, ours in transposed.items()})


def expert_of(tensor: str) -> int | None:
    """The number of the expert that a tensor belongs to; None: it belongs to none, or to all."""
    match = _NUMBER.search(tensor)
    return int(match[0]) if match else None


def of_expert(name: str, expert: int) -> str:
    """The name of the tensor of one expert, by that which has a * in place of its number."""
    return name.replace('*', str(expert))


def pieces_of(tensor: str, model_type: str) -> list[str]:
    """The names of what stands side by side in a tensor of a file, each of which is one weight."""
    if tensor.endswith('.experts.gate_up_proj'):
        return [f'{tensor}.{c}' for c in ('gate', 'up')]
    if model_type == 'phi3':
        module, kind = tensor.rpartition('.')[::2]
        parts = {'qkv_proj': ('q', 'k', 'v'), 'gate_up_proj': ('gate', 'up')}.get(
            module.rpartition('.')[2], ())
        return [f'{module}.{part}.{kind}' for part in parts] or [tensor]
    if model_type != 'gpt2':
        return [tensor]
    has_root = tensor.startswith(('transformer.', 'lm_head.'))
    root, is_fused, kind = tensor.rpartition('.c_attn.')
    names = [f'{root}.c_attn.{c}.{kind}' for c in 'qkv'] if is_fused else [tensor]
    return names if has_root else [f'transformer.{name}' for name in names]


def shares_of(tensor: str, config: Mapping[str, Any]) -> list[int]:
    """How wide the pieces of a tensor are, one beside the other.

    Args:
      tensor: its name.
      config: what config.json says.
    """
    heads = config.get('num_attention_heads')
    groups = config.get('num_key_value_heads') or heads
    if tensor.endswith('.qkv_proj.weight') and isinstance(heads, int) and isinstance(groups, int):
        return [heads, groups, groups]
    return [1] * len(pieces_of(tensor, str(config.get('model_type'))))


def whole_of(piece: str) -> str:
    """The name of the tensor of which something is a piece."""
    return re.sub(r'\.(c_attn\.|qkv_proj\.|gate_up_proj\.(?=\w+\.weight))(q|k|v|gate|up)\.',
                  r'.\1', piece)


def is_constant(tensor: str) -> bool:
    """Whether a tensor holds what config.json says, and no weight."""
    return _IS_CONSTANT.fullmatch(tensor) is not None


def tied_tables(model_type: str) -> tuple[list[str], list[str]]:
    """The names that the table of a model with tied tables may have, and those of its copies."""
    if model_type == 'm2m_100':
        return ['model.shared.weight'], [
            'model.encoder.embed_tokens.weight', 'model.decoder.embed_tokens.weight',
            'lm_head.weight']
    is_gpt2 = model_type == 'gpt2'
    return (['transformer.wte.weight', 'wte.weight'] if is_gpt2
            else ['model.embed_tokens.weight']), ['lm_head.weight']


def _place(name: str, plain: Mapping[str, str], transposed: Mapping[str, str]) -> Place | None:
    """The other name, by tables of names in which {i} stands for the number of the layer."""
    for table in plain, transposed:
        for pattern, other in table.items():
            expression = re.escape(pattern).replace(re.escape('{i}'), '(0|[1-9][0-9]*)', 1)
            if match := re.fullmatch(expression, name):
                return Place(other.format(i=''.join(match.groups())), table is transposed)
    return None
