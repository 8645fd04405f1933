"""Translation: the problem that a Transformer learns, with its vocabulary. It translates lines."""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lingpipe.hyperparams import field
from lingpipe.input import Input
from lingpipe.pipeline.execution.program import Program
from lingpipe.tasks.translation import vocabulary_facts
from lingpipe.tasks.translation.decode_params import DecodeParams
from lingpipe.tasks.translation.hugging_face import check_config
from lingpipe.tasks.translation.line_translator import LineTranslator
from lingpipe.tasks.translation.line_vocabulary import LineVocabulary, TaggedVocabulary
from lingpipe.tasks.translation.tokenizer import open_tokenizer
from lingpipe.training.problem import Problem


class Translation(Problem):
    """Translates lines of many languages, to English or, with a tokenizer.json, to any of them."""

    class Params(Problem.Params):
        """Network, learner, and how lines are translated."""
        vocabulary: str = field(
            '', 'The file of the vocabulary that lines are translated with, perhaps the '
                'tokenizer.json of a folder of Hugging Face; empty: that of the run.')
        decode: DecodeParams = field(DecodeParams(), 'How lines are translated.')

    params: Params

    def __init__(self, params: Params):
        super().__init__(params)
        self._last_translator: LineTranslator | None = None

    def facts(self, source: Input) -> dict[str, Any]:
        """Returns the vocabulary of the input, and whether it has tags; see vocabulary_facts."""
        return vocabulary_facts.facts_of(source)

    def check_facts(self, facts: Mapping[str, Any], source: Input) -> None:
        """Checks that the input's vocabulary fits the weights and the network.

        Raises:
          ValueError: the vocabulary is not that of the weights, or its number of ids is not that of
            the network.
        """
        vocabulary_facts.check_facts(facts, source, self.params.model)

    def check_taken(self, facts: Mapping[str, Any], keys: Iterable[str], source: Input) -> None:
        """Checks that weights do not come from another network or another vocabulary.

        Raises:
          ValueError: config.json of Hugging Face is that of another network, or a weight with a
            part for each id is from a run with another vocabulary.
        """
        check_config(self.params.model, facts)
        vocabulary_facts.check_taken(facts, keys, source, self.network)

    def decode(self, program: Program, lines: Sequence[str], facts: Mapping[str, Any]) -> list[str]:
        """Returns the translations of lines, in their order; an empty line stays empty.

        Args:
          program: the program with the weights.
          lines: one sentence each. If the vocabulary has tags, a line may begin with its language's
            tag: '<de> Guten Tag'. If it has none, such a tag is text.
          facts: the facts of the run that the weights come from, as `facts` returned them.

        Raises:
          ValueError: the vocabulary is missing or is not that of the run, or it does not have the
            tag of a line, or no target language is named to a model of many.
        """
        return self.translate(program, lines, facts)

    def translate(self, program: Program, lines: Sequence[str], facts: Mapping[str, Any],
                  **fields: Any) -> list[str]:
        """Returns what `decode` does, with some settings of `task.decode` that differ.

        Args:
          program, lines, facts: those of `decode`.
          **fields: of `task.decode`, as beam_size=1.

        Raises:
          ValueError: as `decode`, or there is no such field.
        """
        params = self._decode_params(fields)
        self._vocabulary_path(facts)   # The file may have changed.
        last = self._last_translator   # Its graphs take long to build, and its vocabulary to read.
        if last is None or last.program is not program:
            last = self._last_translator = LineTranslator(program, self.vocabulary(facts), params)
        elif last.params != params:
            last = self._last_translator = last.with_params(params)
        return last.translate(lines, facts.get('language_tags'))

    def _decode_params(self, fields: Mapping[str, Any]) -> DecodeParams:
        """Those of `task.decode` but for some fields; no source is longer than its positions."""
        params, model = self.params.decode.copy().set(**fields), self.params.model
        if getattr(model, 'positions', '') == 'learned':
            most = getattr(model, 'max_length', params.max_source_length)
            params.set(max_source_length=min(params.max_source_length, most))
        return params

    def vocabulary(self, facts: Mapping[str, Any]) -> LineVocabulary:
        """Returns the vocabulary of the run with these facts, or Params.vocabulary, a copy of it.

        Raises:
          ValueError: no file of it is known, or the file has other ids than the network.
        """
        path = self._vocabulary_path(facts)
        if path.endswith('.json'):
            tokenizer = open_tokenizer(path)
            tokenizer.check_fits(self.params.model)
            return tokenizer
        return TaggedVocabulary(vocabulary_facts.vocabulary_of(path, facts, self.params.model))

    def _vocabulary_path(self, facts: Mapping[str, Any]) -> str:
        """The file of the vocabulary. Raises ValueError if none is known, or if it is another."""
        path = vocabulary_facts.path_of_run(self.params.vocabulary, facts)
        if os.path.exists(path):
            vocabulary_facts.check_is_of_run(path, facts)
        return path
