"""Names of tensors and paths of weights lead to each other."""
from __future__ import annotations

from lingpipe.checkpoint import hugging_face_names
from lingpipe.tasks.text.hugging_face_config import fields_of
from lingpipe.tasks.text.language_model import LanguageModel
from tests.support import tiny_gpt2, tiny_llama, tiny_m2m_100


def test_every_tensor_has_a_path_and_every_path_its_tensor() -> None:
    for kind in tiny_llama.KINDS:
        config = tiny_llama.config(kind)
        pieces = [(name, piece) for name in tiny_llama.tensors(config)
                  for piece in hugging_face_names.pieces_of(name, config['model_type'])]
        for name, piece in pieces:
            assert hugging_face_names.whole_of(piece) == name
            place = hugging_face_names.weight_of(piece, config['model_type'])
            assert place is not None
            found = hugging_face_names.tensor_of(place.name, config['model_type'])
            assert found is not None
            assert found.is_transposed == place.is_transposed
            expert = hugging_face_names.expert_of(piece)
            assert piece == (found.name if expert is None else
                             hugging_face_names.of_expert(found.name, expert))
    assert hugging_face_names.shares_of('model.layers.0.self_attn.qkv_proj.weight', {
        'model_type': 'phi3', 'num_attention_heads': 40, 'num_key_value_heads': 10}) == [40, 10, 10]
    assert hugging_face_names.expert_of('model.layers.3.mlp.experts.12.up_proj.weight') == 12
    assert hugging_face_names.weight_of('model.layers.11.self_attn.q_proj.weight') == (
        'attention_11/body/wq', True)
    after = 'model.layers.1.post_attention_layernorm.weight'   # what another layer begins with
    paths = [hugging_face_names.weight_of(after, kind) for kind in ('llama', 'olmo2')]
    assert paths == [('ffn_1/norm/scale', False), ('attention_1/norm_after/scale', False)]
    assert hugging_face_names.weight_of('model.layers.x.self_attn.q_proj.weight') is None
    assert hugging_face_names.weight_of('model.norm.weight.scale') is None
    assert hugging_face_names.weight_of('model.layers.01.self_attn.q_proj.weight') is None


def test_every_weight_of_gpt2_has_a_piece_of_a_tensor() -> None:
    network = language_model_of_gpt2().instantiate('model')
    names = []
    for weight in network.weights():
        if weight.shared_with is None:
            path = weight.path.removeprefix('model/')
            place = hugging_face_names.tensor_of(path, 'gpt2')
            assert place is not None
            assert hugging_face_names.weight_of(place.name) == (path, place.is_transposed)
            names.append(place.name)
    wholes = {hugging_face_names.whole_of(name) for name in names}
    assert wholes == set(tiny_gpt2.tensors(tiny_gpt2.config(tie_word_embeddings=False)))
    assert sorted(names) == sorted(
        piece for whole in wholes for piece in hugging_face_names.pieces_of(whole, 'gpt2'))
    assert hugging_face_names.pieces_of('h.0.attn.c_attn.bias', 'gpt2') == [
        f'transformer.h.0.attn.c_attn.{c}.bias' for c in 'qkv']
    assert hugging_face_names.pieces_of('h.0.attn.c_attn.bias', 'llama') == ['h.0.attn.c_attn.bias']


def language_model_of_gpt2() -> LanguageModel.Params:
    return LanguageModel.Params(**fields_of(tiny_gpt2.config(tie_word_embeddings=False)))


def test_every_tensor_of_m2m_100_is_one_weight() -> None:
    paths = set()
    for name in tiny_m2m_100.tensors(tiny_m2m_100.config()):
        place = hugging_face_names.weight_of(name)
        assert place is not None
        assert hugging_face_names.tensor_of(place.name, 'm2m_100') == (name, place.is_transposed)
        paths.add(place.name)
    network = tiny_m2m_100.network().instantiate('model')
    assert paths == {weight.path.removeprefix('model/') for weight in network.weights()
                     if weight.shared_with is None}
    assert hugging_face_names.weight_of('model.decoder.layers.11.encoder_attn.out_proj.weight') == (
        'decoder_11/cross/wo', True)
    assert hugging_face_names.is_constant('model.encoder.embed_positions.weights')
