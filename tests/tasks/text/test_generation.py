"""Generation: what follows a prompt, on any number of cells, and what prompts are refused."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lingpipe.hyperparams import ParamsError
from lingpipe.layers.context import Context
from lingpipe.pipeline.decoding.decoder import Decoder
from lingpipe.pipeline.execution.program import Program
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.text.generation import (
    STEP,
    Continuation,
    GenerationParams,
    Generator,
    as_line,
    from_line,
)
from lingpipe.tasks.text.language_model import LanguageModel
from lingpipe.tasks.text.task import language_learner, language_problem
from lingpipe.tasks.text.vocabulary import END, START, Pieces, train_vocabulary
from lingpipe.tasks.translation.corpus.vocabulary import train as vocabulary_with_prefix
from lingpipe.training.problem import joined

V = 30
PROMPTS = ('abc', 'z', '', 'hello', 'ab', 'abc')
LONGEST = 12   # Start, prompt and continuation.


class Letters:
    """A vocabulary whose ids from 4 on are the letters, a to z."""
    before, ends = (START,), (END,)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[ord(letter) - 97 + 4 for letter in text] for text in texts]

    def decode(self, ids: Any) -> list[str]:
        rows = [list(map(int, row)) for row in ids]
        rows = [row[:row.index(END)] if END in row else row for row in rows]
        return [''.join(chr(i - 4 + 97) for i in row if i >= 4) for row in rows]


@functools.cache
def program(num_cells: int, **fields: Any) -> Program:
    experts = fields or {'num_experts': 2, 'num_chosen': 1, 'capacity_factor': 2.}
    model = LanguageModel.Params(vocab_size=V, num_layers=1, model_dim=8, hidden_dim=12,
                                 num_heads=4, num_groups=2, has_bytes=False, **experts)
    problem = language_problem(model, language_learner(0.01, 10, 1)).instantiate()
    spec = {'target': tf.TensorSpec([2, 4], tf.int32), 'label': tf.TensorSpec([2, 4], tf.int32),
            'weight': tf.TensorSpec([2, 4])}
    return Program(problem.network, spec, PipelineParams(num_cells=num_cells),
                   problem.learner, devices=[f'/device:CPU:{k}' for k in range(num_cells)], seed=3)


@functools.cache
def texts(num_cells: int, prompts: tuple[str, ...] = PROMPTS, **fields: Any) -> list[str]:
    params = GenerationParams(**{'max_length': 20, 'max_new': 6, 'group_size': 2} | fields)
    generator = first_generator(num_cells).with_params(params)   # with its graphs, if they fit
    return joined(generator.pieces(prompts, STEP), len(prompts))


@functools.cache
def first_generator(num_cells: int) -> Generator:
    params = GenerationParams(max_length=20, max_new=6, group_size=2)
    return Generator(program(num_cells), Letters(), params)   # type: ignore[arg-type]


def logits_after(row: list[int]) -> np.ndarray:
    """The logits of the id that follows each of a row, by running the whole network."""
    padded = np.pad(row, [0, LONGEST - len(row)])   # No position reads a later one.
    return np.array(all_logits()(tf.constant([padded], tf.int32))[0, :len(row)])


@functools.cache
def all_logits() -> Callable[[tf.Tensor], tf.Tensor]:
    """The network as a function of ids, [1, LONGEST] to [1, LONGEST, V]."""
    network, weights = program(1).network, program(1).weights

    @tf.function(autograph=False)
    def logits(target: tf.Tensor) -> tf.Tensor:
        theta = network.theta({w.path: tf.convert_to_tensor(weights[w.path])
                               for w in network.weights()})
        return network.fprop(theta, Context(), target=target, label=target,
                             weight=tf.ones([1, LONGEST]))['logits']

    return logits


@functools.cache
def greedy(prompt: str) -> str:
    """The best id after each prefix."""
    row = [START, *Letters().encode([prompt])[0]]
    for _ in range(6):
        row.append(int(np.argmax(logits_after(row)[-1])))
    return Letters().decode([row[1 + len(prompt):]])[0]


def log_probability(prompt: str, text: str) -> float:
    ids = Letters().encode([prompt + text])[0]
    logits = logits_after([START, *ids])[len(prompt):-1]
    of_ids = logits[np.arange(len(text)), ids[len(prompt):]]
    return float(np.sum(of_ids - np.log(np.sum(np.exp(logits), -1))))


def test_the_best_id_follows_each_prefix_on_any_number_of_cells() -> None:
    expected = [greedy(prompt) for prompt in PROMPTS]
    assert texts(1) == texts(2) == expected
    assert len(set(expected)) > 2


def test_what_is_drawn_depends_on_the_place_of_a_prompt_alone() -> None:
    drawn = texts(1, temperature=1.5)
    assert texts(2, temperature=1.5, group_size=1) == drawn
    assert drawn[0] != drawn[5]   # The prompts are alike.


def test_a_beam_finds_a_continuation_that_is_as_likely_and_it_ends_before_a_stop_text() -> None:
    best = texts(1, beam_size=3)[PROMPTS.index('abc')]
    assert log_probability('abc', best) >= log_probability('abc', greedy('abc'))
    whole = greedy('abc')
    assert texts(1, ('abc',), stop=('never', whole[2:])) == [whole[:whole.index(whole[2:])]]


def test_text_comes_in_pieces_without_what_may_become_a_stop_text() -> None:
    whole = greedy('abc')
    params = GenerationParams(max_length=20, max_new=6, stop=(whole[2:5],))
    generator = Generator(program(2), Letters(), params)   # type: ignore[arg-type]
    pieces = list(generator.pieces(['abc', 'z'], 1))
    assert [text for number, text, _ in pieces if number == 0 and text] == [whole[0], whole[1]]
    assert [number for number, _, is_last in pieces if is_last] == [0, 1]
    assert len([text for number, text, _ in pieces if number == 1 and text]) > 3
    assert list(generator.pieces([], 1)) == []


def test_a_penalty_on_repetition_lowers_the_ids_of_the_text() -> None:
    """A greedy text never ended, and a beam ended with the first end, however unlikely."""
    row = [START, *Letters().encode(['abc'])[0]]
    for _ in range(6):
        logits = logits_after(row)[-1]
        logits[row] = np.where(logits[row] > 0, logits[row] / 1.5, logits[row] * 1.5)
        row.append(int(np.argmax(logits)))
    assert texts(1, ('abc',), repetition_penalty=1.5) == Letters().decode([row[4:]])
    assert texts(1, beam_size=3, repetition_penalty=1 + 1e-9) == texts(1, beam_size=3)


def test_graphs_are_built_anew_only_for_params_that_they_depend_on(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Each seed, stop text and length built them again, which took seconds."""
    made = []

    def make_and_count(*args: Any) -> Decoder:
        made.append(args)
        return Decoder(*args)

    def written(generator: Generator) -> list[str]:
        pieces = list(generator.pieces(['abc', 'z'], 9))
        return [''.join(piece.text for piece in pieces if piece.number == i) for i in range(2)]

    monkeypatch.setattr('lingpipe.tasks.text.generation.Decoder', make_and_count)
    params = GenerationParams(max_length=20, max_new=6, temperature=1.5)
    first = Generator(program(1), Letters(), params)   # type: ignore[arg-type]
    whole = written(first)
    others = params.copy().set(max_new=4, seed=1, group_size=1)
    other = written(first.with_params(others))
    stopped = written(first.with_params(params.copy().set(stop=(whole[0][2:4],))))
    short = written(first.with_params(params.copy().set(max_length=5)))
    assert len(made) == 1
    assert short == written(Generator(program(1), Letters(),   # type: ignore[arg-type]
                                      params.copy().set(max_length=5))) != whole
    made.pop()
    assert other != [text[:4] for text in whole] and max(map(len, other)) <= 4
    assert stopped[0] == whole[0][:2]
    assert written(first.with_params(params.copy().set(temperature=0.))) != whole
    assert len(made) == 2
    first.with_params(params.copy().set(max_length=21))
    assert len(made) == 3
    with pytest.raises(ParamsError, match='stop has an empty text'):
        first.with_params(params.copy().set(stop=('',)))


def test_a_shorter_length_is_tried_anew_where_a_longer_one_was_refused() -> None:
    params = GenerationParams(max_length=20, max_new=6)
    short = program(1, family='gpt2', num_positions=8)
    generator = Generator(short, Letters(), params)   # type: ignore[arg-type]
    with pytest.raises(ValueError, match='up to 20 positions are decoded, but num_positions=8 were '
                                         'learned; lower max_length, as task.decode.max_length'):
        list(generator.pieces(['abc'], 9))
    shorter = generator.with_params(params.copy().set(max_length=8))
    assert ''.join(piece.text for piece in shorter.pieces(['abc'], 9))


@pytest.mark.parametrize('step', [1, 3, 9])
def test_the_stop_text_that_ends_first_counts_however_often_one_looks(step: int) -> None:
    """The one that counted depended on how many ids were written between two looks."""
    vocabulary, ids = Letters(), np.array(Letters().encode(['xabcdefgh'])[0])
    text = Continuation(vocabulary, ('bcde', 'd'), 1, 99)   # type: ignore[arg-type]
    pieces = [text.next_piece(ids[:end]) for end in range(1 + step, 9 + step, step)
              if not text.is_over]
    assert ''.join(pieces) == 'abc'
    with pytest.raises(ParamsError, match='stop has an empty text, before which every text ends'):
        GenerationParams(stop=('',)).validate()


@pytest.mark.parametrize('has_prefix', [False, True])
@pytest.mark.parametrize('prompt', ['', 'hello', 'the cat ', 'ü'])
def test_a_continuation_begins_with_its_space(has_prefix: bool, prompt: str,
                                              tmp_path: Path) -> None:
    """Sentencepiece leaves out the first space of ids if its model puts one before a text."""
    lines = ['hello world ab cd ef', 'the cat sat on the mat', 'abcdefghijklmnopqrstuvwxyz'] * 50
    path = str(tmp_path / 'vocabulary.model')
    (vocabulary_with_prefix(iter(lines), 330, kind='bpe') if has_prefix
     else train_vocabulary(iter(lines), 330)).save(path)
    vocabulary = Pieces(path)
    ids = vocabulary.encode([f'{prompt} world ü'])[0]
    whole = vocabulary.decode([ids])[0]
    num_given, given = next((n, text) for n in range(len(ids) + 1)
                            if (text := vocabulary.decode([ids[:n]])[0]).strip() == prompt.strip())
    text = Continuation(vocabulary, (), num_given, len(ids))
    pieces = [text.next_piece(np.array(ids[:end])) for end in range(num_given + 1, len(ids) + 1)]
    assert ''.join(pieces) == whole[len(given):]
    assert not prompt.strip() or pieces[0].startswith(' ') or given.endswith(' ')


def test_a_prompt_longer_than_the_cache_is_refused() -> None:
    with pytest.raises(ValueError, match='prompt 2 has 20 ids, .* room for max_length=20 together'):
        texts(1, ('a', 'b' * 20))
    with pytest.raises(ParamsError, match='set beam_size=1, or temperature=0'):
        GenerationParams(beam_size=2, temperature=1.).validate()


def test_line_breaks_of_prompts_and_continuations_are_written_as_signs() -> None:
    text = 'a\\b\n\tc\r'
    assert as_line(text) == 'a\\\\b\\n\tc\\r'
    assert from_line(as_line(text)) == text


def test_a_vocabulary_is_trained_on_long_lines_too():
    """sentencepiece leaves out lines of more than 4,192 bytes."""
    words = np.random.default_rng(0).choice(['alpha', 'beta', 'gamma', 'delta', 'epsilon'], 3000)
    vocabulary = train_vocabulary(iter([' '.join(words)]), 300)
    assert len(vocabulary.encode(['alpha beta gamma'])[0]) < 12


def test_an_error_of_the_lines_of_a_vocabulary_is_their_own():
    """The advice was to change vocab_size."""
    def lines():
        yield 'one line'
        raise ValueError('text.txt is not UTF-8 after line 1')

    with pytest.raises(ValueError, match='^text.txt is not UTF-8 after line 1$'):
        train_vocabulary(lines(), 300)
