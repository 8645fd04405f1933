"""Tiny tokenizers: folders with a tokenizer.json such as Qwen2's, Llama 2's and NLLB-200's.

The first is a byte-level BPE that adds nothing to a text. The second has U+2581 for spaces, puts
one and <s> before a text, and spells characters without a piece in bytes. The third has languages.
"""
from __future__ import annotations

import json
import pathlib
from typing import Any

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

LINES = ['the cat sat on the mat', 'a cat and a hat', "that's the mat\tof the cat", '你好，世界']
TEXTS = ['the cat', 'The\tcat\n\nsat  on \r\n it', ' 😀🏽 and 你好，世界! 猫', 'ünï é\u0301', '',
         '\n']


def qwen2() -> Tokenizer:
    """Byte-level BPE, whose ids 0 and 1 are special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(
        vocab_size=290, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=['<|endoftext|>', '<|im_end|>']))
    return tokenizer


def llama2() -> Tokenizer:
    """BPE with 256 bytes, whose ids 0 to 2 are <unk>, <s> and </s>."""
    special = ['<unk>', '<s>', '</s>']
    pieces = Tokenizer(models.BPE())
    pieces.normalizer = normalizers.Replace(' ', '▁')
    pieces.train_from_iterator([f'▁{line}' for line in LINES[:3]], trainers.BpeTrainer(
        vocab_size=60, show_progress=False))
    trained = json.loads(pieces.to_str())['model']
    tokens = [*special, *(f'<0x{byte:02X}>' for byte in range(256)), *trained['vocab']]
    tokenizer = Tokenizer(models.BPE(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=[tuple(merge) for merge in trained['merges']], unk_token='<unk>', fuse_unk=True,
        byte_fallback=True))
    tokenizer.add_special_tokens(special)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend('▁'), normalizers.Replace(' ', '▁')])
    tokenizer.post_processor = processors.TemplateProcessing(
        single='<s> $A', pair='<s> $A <s> $B', special_tokens=[('<s>', 1)])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(' ', 1, 0)])
    return tokenizer


def nllb() -> Tokenizer:
    """BPE such as NLLB-200's, whose ids 0 to 3 are control ids, and 17 to 19 languages."""
    tokens = ['<s>', '<pad>', '</s>', '<unk>', '▁', *'abcdefgh', 'ab', '▁ab', '▁c', '▁d']
    tokenizer = Tokenizer(models.BPE(
        vocab={token: i for i, token in enumerate(tokens)}, unk_token='<unk>', fuse_unk=True,
        merges=[('a', 'b'), ('▁', 'ab'), ('▁', 'c'), ('▁', 'd')]))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([*tokens[:4], 'deu_Latn', 'eng_Latn', 'fra_Latn'])
    tokenizer.post_processor = processors.TemplateProcessing(   # as of NLLB's first tokenizer
        single='$A </s> eng_Latn', special_tokens=[('</s>', 2), ('eng_Latn', 18)])
    return tokenizer


KINDS = {'qwen2': qwen2, 'llama2': llama2}   # of language models
END = {'qwen2': '<|endoftext|>', 'llama2': '</s>', 'nllb': '</s>'}


def write(folder: pathlib.Path, kind: str, **entries: Any) -> str:
    """Writes tokenizer.json and tokenizer_config.json; returns the path of the first."""
    folder.mkdir(exist_ok=True)
    {**KINDS, 'nllb': nllb}[kind]().save(str(folder / 'tokenizer.json'))
    (folder / 'tokenizer_config.json').write_text(json.dumps({'eos_token': END[kind], **entries}))
    return str(folder / 'tokenizer.json')
