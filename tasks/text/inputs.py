"""TextInput: text of any length as examples of a fixed length.

    B batch, T tokens of an example

The documents of a corpus stand one after the other (tokens.py), and example i is the T tokens from
i T on. So a document may begin in one example and go on in the next, an example may hold several
documents, and nothing is padded but the end of the last example.
"""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from lingpipe.hyperparams import field
from lingpipe.input import Input
from lingpipe.tasks.text.documents import Format
from lingpipe.tasks.text.tokens import Recipe, Split, Tokens, tokens_of
from lingpipe.tasks.text.vocabulary import PAD, Vocabulary
from lingpipe.wording.counts import counted


class TextInput(Input):
    """Examples of T tokens with the tokens that follow them.

        target      int32 [B, T]     what the network reads
        label       int32 [B, T]     the next token of each
        weight      float32 [B, T]   0 where the label is padding or begins another document, and
                                     for examples that fill up the last batch; otherwise 1
        positions   int32 [B, T]     counted from the beginning of the document in the example
        documents   int32 [B, T]     which document of the example a token belongs to
        bytes       float32 [B, T]   the bytes of text that the label stands for

    The first run tokenises the sources into `directory`, with a vocabulary that it trains unless
    one is given; later ones map the tokens into memory. An evaluation uses split='test',
    shuffle=False and num_epochs=1.
    """

    class Params(Input.Params):
        """The sources, how they become tokens, and the length of examples."""
        files: tuple[str, ...] = field(
            (), 'Patterns of the sources: plain text, *.jsonl, *.tfrecord; ** stands for any '
                'folders. Empty: `directory` has the tokens already.')
        directory: str = field('data/text', 'Where the tokens are, or are made.')
        format: Format = field(
            'auto', "'auto' goes by the names of the files (documents.py); 'lines': each line is a "
                    'document.')
        key: str = field('text', 'The key of JSON, or the feature of a record, with the text.')
        vocabulary: str = field(
            '', 'The file of a model of sentencepiece, or the tokenizer.json of a folder of '
                'Hugging Face; empty: a model is trained.')
        vocab_size: int = field(8000, 'V, the number of ids.', least=300)
        test_share: float = field(0.05, 'The part of all documents that is not trained on.',
                                  least=0, below=1)
        split: Split = field('train', 'The part that is read.')
        length: int = field(1024, 'T, the tokens of an example.', least=1)

    params: Params

    def spec(self) -> dict[str, Any]:
        """The specs of a batch; no file is read."""
        p = self.params
        types = {'target': tf.int32, 'label': tf.int32, 'weight': tf.float32,
                 'positions': tf.int32, 'documents': tf.int32, 'bytes': tf.float32}
        return {name: tf.TensorSpec([p.batch_size, p.length], dtype)
                for name, dtype in types.items()}

    @functools.cached_property
    def tokens(self) -> Tokens:
        """The tokens of all parts, which are made when they are first asked for."""
        p = self.params
        return tokens_of(p.directory, Recipe(p.files, p.format, p.key, p.vocabulary, p.vocab_size,
                                             p.test_share))

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the tokens."""
        return self.tokens.vocabulary

    def num_examples(self) -> int:
        """The number of examples, of which the last may end in padding."""
        return -(-(len(self._ids) - 1) // self.params.length)

    def read(self, index: tf.Tensor) -> dict[str, Any]:
        """Returns the examples at index, int64 [n]."""
        specs = self.spec()
        values = tf.numpy_function(self._rows, [index], [spec.dtype for spec in specs.values()],
                                   stateful=False)
        return {name: tf.ensure_shape(value, [index.shape[0], self.params.length])
                for name, value in zip(specs, values, strict=True)}

    def statistics_text(self) -> str:
        """How many documents, tokens and bytes there are."""
        facts = self.tokens.facts[self.params.split]
        return (f'{counted(facts["documents"], "document")}, {counted(facts["tokens"], "token")}, '
                f'{facts["bytes"]:,} bytes of text ({self.params.split})')

    @functools.cached_property
    def _ids(self) -> np.ndarray:
        return self.tokens.ids(self.params.split)

    @functools.cached_property
    def _bytes_of_ids(self) -> np.ndarray:
        return self.tokens.bytes_of_ids(self.params.split)

    def _rows(self, index: np.ndarray) -> list[np.ndarray]:
        """The values of `spec` for the examples at index [n]."""
        length, end = self.params.length, self.vocabulary.ends[0]
        # Each row has the id before the example, too, and the one behind it.
        ids = np.full([len(index), length + 2], PAD, np.int32)
        is_there = np.zeros([len(index), length + 1], bool)   # of the ids but the first
        for row, row_is_there, i in zip(ids, is_there, index, strict=True):
            some = self._ids[i * length:(i + 1) * length + 1]
            row[0] = self._ids[i * length - 1] if i else end
            row[1:1 + len(some)] = some
            row_is_there[:len(some)] = True

        target, label = ids[:, 1:-1], ids[:, 2:]
        begins = (ids[:, :-1] == end) & is_there   # a document
        is_start = begins[:, :-1]
        places = np.arange(length, dtype=np.int32)
        beginnings = np.maximum.accumulate(np.where(is_start, places, 0), 1)
        weight = (is_there & ~begins)[:, 1:].astype(np.float32)
        return [target, label, weight, (places - beginnings).astype(np.int32),
                np.cumsum(is_start, 1, dtype=np.int32), self._bytes_of_ids[label]]
