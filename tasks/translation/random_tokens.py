"""RandomTokens: sequences of random ids, for measuring memory and time."""
from __future__ import annotations

from typing import Any

import tensorflow as tf

from lingpipe.hyperparams import REQUIRED, field
from lingpipe.input import Input


class RandomTokens(Input):
    """Draws ids from 1 to vocab_size - 1, without padding.

    The example of an index in an epoch is always the same. A batch has source int32 [B, S], unless
    S is 0; target and label int32 [B, T], with label[t] = target[t + 1]; and weight [B].
    """

    class Params(Input.Params):
        """The sizes of examples and epochs."""
        vocab_size: int = field(REQUIRED, 'V; id 0 is padding and does not occur.', least=2)
        source_length: int = field(0, 'S; 0: there is no source.', least=0)
        target_length: int = field(REQUIRED, 'T.', least=1)
        size: int = field(1 << 20, 'Examples of an epoch.', least=1)

    params: Params

    def num_examples(self) -> int:
        """Returns `size`."""
        return self.params.size

    def read(self, index: tf.Tensor) -> dict[str, Any]:
        """Returns nothing but the index."""
        return {'index': index}

    def preprocess(self, example: dict[str, Any], seed: tf.Tensor) -> dict[str, Any]:
        """Returns the ids, which depend on the seed alone."""
        p = self.params
        ids = tf.random.stateless_uniform([p.source_length + p.target_length + 1], seed, 1,
                                          p.vocab_size, tf.int32)
        source, target = ids[:p.source_length], ids[p.source_length:]
        return {**({'source': source} if p.source_length else {}), 'target': target[:-1],
                'label': target[1:]}
