"""Tokenizers of Hugging Face: ids, bytes and ends, and a model that trains and writes with them."""
from __future__ import annotations

import contextlib
import functools
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as AnyTokenizer
from tokenizers.models import BPE, WordLevel

from lingpipe.api.run import Run
from lingpipe.api.start import start
from lingpipe.pipeline.planning.pipeline_params import PipelineParams
from lingpipe.tasks.text.generation import Continuation, as_line
from lingpipe.tasks.text.hugging_face import language_model
from lingpipe.tasks.text.inputs import TextInput
from lingpipe.tasks.text.task import language_learner, language_problem
from lingpipe.tasks.text.tokenizer import Tokenizer
from lingpipe.tasks.text.vocabulary import open_vocabulary
from lingpipe.training.experiment import Experiment
from lingpipe.training.site import Site
from lingpipe.training.train_params import TrainParams
from tests.support import tiny_llama, tiny_tokenizers

V, T = 320, 16
CHAT_TEMPLATE = ('{{ bos_token }}{% for message in messages %}{{ message.content + eos_token }}'
                 '{% endfor %}{{ "cat" if add_generation_prompt else "" }}')
DOCUMENTS = [f'{line} {i}\n😀' for i in range(9) for line in tiny_tokenizers.LINES]


@pytest.mark.parametrize('kind', tiny_tokenizers.KINDS)
def test_ids_are_those_of_tokenizers_and_spell_the_text(kind: str, tmp_path: Path) -> None:
    vocabulary = open_vocabulary(tiny_tokenizers.write(tmp_path, kind), {})
    own = tiny_tokenizers.KINDS[kind]()
    texts = tiny_tokenizers.TEXTS
    rows = vocabulary.encode(texts)
    assert [[*vocabulary.before, *row] for row in rows] == [own.encode(text).ids for text in texts]
    assert vocabulary.decode(rows) == texts
    num_put_before = {'qwen2': 0, 'llama2': 1}[kind]   # the space before a text
    assert [vocabulary.bytes_of_ids()[row].sum() for row in rows] == [
        len(text.encode()) + (num_put_before if text else 0) for text in texts]


def test_start_and_end_spell_nothing_and_other_tokens_what_they_are(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizers.qwen2()
    tokenizer.add_tokens([AddedToken('<tool>', special=False)])
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=9)
    tiny_tokenizers.write(tmp_path, 'qwen2')
    tokenizer.save(str(tmp_path / 'tokenizer.json'))
    vocabulary = Tokenizer(str(tmp_path / 'tokenizer.json'))
    row, = vocabulary.encode(['a<tool>the<|im_end|>z<|endoftext|>'])   # neither cut nor padded
    assert [vocabulary.bytes_of_ids()[i] for i in row] == [1, 6, 3, 10, 1, 0]
    assert vocabulary.decode([row]) == ['a<tool>thez']
    assert (vocabulary.size, vocabulary.fits(291), vocabulary.fits(290)) == (291, True, False)


@pytest.mark.parametrize('kind, files, expected', [
    ('llama2', {'tokenizer_config': {'eos_token': '</s>'}}, (2,)),
    ('llama2', {'config': {'eos_token_id': 2}}, (2,)),
    ('llama2', {'config': {'eos_token_id': 0}, 'generation_config': {'eos_token_id': [2]}}, (2,)),
    ('llama2', {'config': {'eos_token_id': 2}, 'generation_config': {}}, (2,)),
    ('qwen2', {'tokenizer_config': {'eos_token': {'content': '<|im_end|>'}},
               'generation_config': {'eos_token_id': [1, 0]}}, (1, 0))])
def test_the_files_beside_it_say_what_ends_a_text(
        kind: str, files: dict[str, Any], expected: tuple[int, ...], tmp_path: Path) -> None:
    path = tiny_tokenizers.write(tmp_path, kind)
    (tmp_path / 'tokenizer_config.json').unlink()
    for name, entries in files.items():
        (tmp_path / f'{name}.json').write_text(json.dumps(entries))
    assert Tokenizer(path).ends == expected
    assert Tokenizer(path, [0]).ends == (0,)


def test_what_is_no_tokenizer_of_a_language_model_is_refused(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny_tokenizers.write(tmp_path, 'llama2', eos_token='<end>')
    with pytest.raises(ValueError, match="say that '<end>' or .None. ends a text, of which None is"
                                         ' no id of the tokenizer; correct eos_token or eos_token'):
        Tokenizer(path)
    (tmp_path / 'tokenizer_config.json').unlink()
    with pytest.raises(ValueError, match=re.escape(
            f'nothing beside {path} says what ends a text; put its tokenizer_config.json with')):
        Tokenizer(path)

    tokenizer = tiny_tokenizers.llama2()
    tokenizer.post_processor = processors.TemplateProcessing(
        single='<s> <s> $A <unk>', special_tokens=[('<s>', 1), ('<unk>', 0)])
    tokenizer.save(path)
    with pytest.raises(ValueError, match=r'puts the ids \[1, 1\] before each text and \[0\] behin'):
        Tokenizer(path, [2])
    Path(path).write_text('{"model": 1}')
    with pytest.raises(ValueError, match=r'is no tokenizer that tokenizers [\d.]+ reads: .*; fetc'):
        Tokenizer(path, [2])
    with pytest.raises(ValueError, match=r'gone\.json is no file; name the tokenizer\.json of'):
        Tokenizer('gone.json')
    monkeypatch.setitem(sys.modules, 'tokenizers', None)
    with pytest.raises(ValueError, match='tokenizers is needed for .*; run pip install tokenizers'):
        Tokenizer(path, [2])


def test_an_unknown_token_that_is_no_id_matters_only_where_it_is_needed(tmp_path: Path) -> None:
    """It failed with a TypeError, although bytes spell every text."""
    path = Path(tiny_tokenizers.write(tmp_path, 'qwen2'))
    described = json.loads(path.read_text())
    described['model']['unk_token'] = '<unk>'
    path.write_text(json.dumps(described))
    tokenizer = Tokenizer(str(path))
    assert tokenizer.unknown == -1
    assert tokenizer.decode(tokenizer.encode(['a \U0001f600'])) == ['a \U0001f600']

    AnyTokenizer(WordLevel({'a': 0, '<|endoftext|>': 1}, unk_token='<unk>')).save(str(path))
    tokenizer = Tokenizer(str(path), [1])
    assert tokenizer.encode(['a']) == [[0]]
    for encode in (tokenizer.encode, tokenizer.encode_with_offsets):
        with pytest.raises(ValueError, match='makes no ids of a text: .*; put its unknown token'):
            encode(['b'])


def test_a_tokenizer_that_leaves_out_characters_is_said(tmp_path: Path, caplog: Any) -> None:
    """They vanished without a word, since there is no unknown id to count."""
    for kind in tiny_tokenizers.KINDS:
        Tokenizer(tiny_tokenizers.write(tmp_path, kind))
    assert not caplog.messages
    path = tmp_path / 'bare.json'
    AnyTokenizer(BPE({'a': 0, '</s>': 1}, [])).save(str(path))
    assert Tokenizer(str(path), [1]).encode(['za']) == [[0]]
    assert caplog.messages == [
        f'{path} leaves out characters that it has no piece for, without a trace in the ids; give '
        'its model an unknown token, or take one that spells them in bytes']


@pytest.mark.parametrize('kind', tiny_tokenizers.KINDS)
@pytest.mark.parametrize('prompt', ['', 'the', ' 猫', 'a '])
def test_a_character_comes_when_all_its_bytes_are_there(
        kind: str, prompt: str, tmp_path: Path) -> None:
    vocabulary = Tokenizer(tiny_tokenizers.write(tmp_path, kind))
    given = [*vocabulary.before, *vocabulary.encode([prompt])[0]]
    written, = vocabulary.encode([' 😀x 世猫'])
    text = Continuation(vocabulary, (), len(given), 99)
    all_ids = np.array([*given, *written, vocabulary.ends[0], 5, 5], np.int32)
    pieces = [text.next_piece(all_ids[:end]) for end in range(len(given) + 1, len(all_ids) - 1)]
    assert [piece for piece in pieces if piece][-4:] == ['x', ' ', '世', '猫']
    assert ''.join(pieces).lstrip() == '😀x 世猫'
    assert text.is_over and not text.is_cut


def test_a_complete_character_stays_if_the_bytes_behind_it_are_none(tmp_path: Path) -> None:
    vocabulary = Tokenizer(tiny_tokenizers.write(tmp_path, 'llama2'))
    row, = vocabulary.encode(['你\n😀a'])
    assert vocabulary.decode([row[:-2], [*row[:-2], row[-1]], row]) == [
        '你\n\ufffd', '你\n\ufffda', '你\n😀a']


def folder_of(tmp_path: Path, kind: str) -> Path:
    """A folder without weights: those of the networks here are random."""
    folder = tmp_path / 'folder'
    tiny_tokenizers.write(folder, kind, chat_template=CHAT_TEMPLATE,
                          bos_token={'llama2': '<s>'}.get(kind))
    (folder / 'config.json').write_text(json.dumps(tiny_llama.config(
        {'llama2': 'llama'}.get(kind, kind), vocab_size=V, eos_token_id=2,
        num_hidden_layers=1)))
    return folder


def experiment(tmp_path: Path, folder: Path, num_cells: int = 2, **fields: Any
               ) -> Experiment.Params:
    (tmp_path / 'corpus.jsonl').write_text(
        ''.join(json.dumps({'text': text}) + '\n' for text in DOCUMENTS))
    source = TextInput.Params(
        files=(str(tmp_path / 'corpus.jsonl'),), directory=str(tmp_path / 'tokens'),
        vocabulary=str(folder / 'tokenizer.json'), vocab_size=V, test_share=0.3, length=T,
        batch_size=4)
    model = language_model(folder, block_size=8, has_bytes=True)
    return Experiment.Params(
        task=language_problem(model, language_learner(0.05, 10, warmup_steps=1)).set(**fields),
        train_input=source,
        eval_inputs={'test': source.copy().set(split='test', shuffle=False, num_epochs=1)},
        pipeline=PipelineParams(num_cells=num_cells, num_micro_batches=2),
        train=TrainParams(num_steps=4))


@pytest.fixture(scope='module')
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Run]]:
    """Returns the run of a kind of tokenizer, trained for 4 steps. No test may change its files."""
    with contextlib.ExitStack() as runs:
        @functools.cache
        def run_of(kind: str) -> Run:
            place = tmp_path_factory.mktemp(kind)
            run = runs.enter_context(
                start(experiment(place, folder_of(place, kind)), logdir=place / 'logs'))
            run.train()
            return run

        yield run_of


def best_continuation(run: Run, vocabulary: Tokenizer, prompt: str, num_new: int) -> str:
    """The best id after each prefix, by the whole network."""
    ids = given = [*vocabulary.before, *vocabulary.encode([prompt])[0]]
    while len(ids) < len(given) + num_new and ids[-1] not in vocabulary.ends:
        row = np.zeros([1, T], np.int32)
        row[0, :len(ids)] = ids
        logits = run.predict({'target': row, 'documents': np.zeros_like(row),
                              'positions': np.arange(T, dtype=np.int32)[np.newaxis]})['logits']
        ids = [*ids, int(logits[0, len(ids) - 1].argmax())]
    before, both = vocabulary.decode([given, ids])
    return both[len(before):]


@pytest.mark.parametrize('kind', tiny_tokenizers.KINDS)
def test_documents_are_learned_and_the_best_id_follows_each_prompt(
        kind: str, trained: Callable[[str], Run]) -> None:
    run = trained(kind)
    source = run.params.eval_inputs['test'].copy().instantiate()
    assert isinstance(source, TextInput)
    vocabulary = Tokenizer(source.params.vocabulary)
    sum_of_bytes = 0.
    for batch in source.dataset():
        target, label, weight, documents, num_bytes = (
            batch[name].numpy() for name in ('target', 'label', 'weight', 'documents', 'bytes'))
        sum_of_bytes += num_bytes[weight > 0].sum()
        follows_end = target[:, :-1] == vocabulary.ends[0]
        np.testing.assert_array_equal(np.diff(documents) > 0, follows_end & (weight[:, 1:] > 0))
        assert not weight[target == vocabulary.ends[0]].any()
        if vocabulary.before:
            assert not weight[label == vocabulary.before[0]].any()
    spelt, ids = vocabulary.bytes_of_ids(), source.tokens.ids('test')
    assert source.vocabulary.ends == vocabulary.ends
    # Without a start, the first id of a document follows nothing, and is not learned.
    is_first = np.append(vocabulary.ends[0], ids[:-1]) == vocabulary.ends[0]
    num_bytes = source.tokens.facts['test']['bytes']
    num_spelt = spelt[ids].sum()
    assert num_spelt == num_bytes if kind == 'qwen2' else num_spelt > num_bytes
    expected_bytes = num_bytes * (1 - spelt[ids[is_first]].sum() / num_spelt)
    assert sum_of_bytes == pytest.approx(expected_bytes, rel=1e-6)

    prompts = ['the', 'a cat', '世']
    assert {'perplexity', 'bits_per_byte'} <= run.evaluate()['test'].keys()
    expected = [best_continuation(run, vocabulary, prompt, 5) for prompt in prompts]
    assert run.generate(prompts, max_new=5, max_length=T) == expected
    assert ''.join(run.stream('a cat', max_new=5, max_length=T)) == expected[1]
    if not vocabulary.before:
        with pytest.raises(ValueError, match='prompt 1 is empty, and the tokenizer of thi'):
            run.generate([''], max_new=5, max_length=T)
    assert len(set(expected)) > 1


def test_a_resumed_run_goes_on_and_no_other_tokenizer_takes_its_place(
        tmp_path: Path, trained: Callable[[str], Run]) -> None:
    folder = folder_of(tmp_path, 'qwen2')
    target = np.arange(T, dtype=np.int32)[np.newaxis]
    example = {'target': target, 'documents': np.zeros_like(target), 'positions': target}
    logits = [trained('qwen2').predict(example)['logits']]
    written = {}
    for steps in (2, None):
        with start(experiment(tmp_path, folder, num_cells=1), logdir=tmp_path / 'in parts') as run:
            run.train(steps=steps, evaluate=False)
            logits.append(run.predict(example)['logits'])
            if steps is None:
                written['before'] = run.generate(tiny_tokenizers.LINES, max_new=3)
                pieces = run.stream('a cat', max_new=9)
                next(pieces)
                run.predict(example, checkpoint=2)
                with pytest.raises(ValueError, match='other weights than those that began this te'):
                    list(pieces)
    np.testing.assert_array_equal(logits[0], logits[2])
    assert not np.array_equal(logits[0], logits[1])

    # The tokens keep a copy, and the run its ends, so that it writes without the folder.
    facts = json.loads((tmp_path / 'tokens/facts.json').read_text())
    assert facts['ends'] == [0, 2]   # of tokenizer_config.json, and of config.json
    (folder / 'tokenizer.json').unlink()
    (folder / 'tokenizer_config.json').unlink()
    with start(experiment(tmp_path, folder, num_cells=1), logdir=tmp_path / 'in parts') as run:
        written['without tokenizer.json'] = run.generate(tiny_tokenizers.LINES, max_new=3)
    assert written['before'] == written['without tokenizer.json']
    assert any(written['before'])

    tiny_tokenizers.write(folder, 'llama2')
    with pytest.raises(ValueError, match='made of something else: given_vocabulary changed'), \
            start(experiment(tmp_path, folder, num_cells=1), logdir=tmp_path / 'in parts') as run:
        run.evaluate()
    of_run = {'vocabulary': 'tokenizer.json', 'sha256': facts['vocabulary_sha256'], 'ends': [0, 2]}
    other = experiment(tmp_path, folder, vocabulary=str(folder / 'tokenizer.json'))
    with pytest.raises(ValueError, match='is not the vocabulary that the run used'):
        other.task.instantiate().vocabulary(of_run)
    other.train_input.set(files=())
    with pytest.raises(ValueError, match=r'end with the ids \[0, 2\], and .*, with \[0\]; make t'):
        other.task.instantiate().check_facts({**of_run, 'ends': [0]},
                                             other.train_input.instantiate())


def test_a_text_that_nobody_watches_is_looked_at_now_and_then(
        trained: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look decodes all that is written; run.generate looked behind every id."""
    run, looks = trained('qwen2'), []
    decode = Tokenizer.decode

    def counted(self: Tokenizer, ids: Any) -> list[str]:
        looks.append(len(ids))
        return decode(self, ids)

    monkeypatch.setattr(Tokenizer, 'decode', counted)
    pieces = list(run.stream('a', max_new=9))
    num_watched = len(looks)
    assert run.generate(['a'], max_new=9) == [''.join(pieces)]
    assert num_watched == 9 and len(looks) == num_watched + 1

    # Behind a stop text nothing more is written.
    stop = next(piece for piece in pieces if piece)
    assert run.generate(['a'], max_new=9, stop=(stop,)) == [''.join(pieces).split(stop)[0]]
    assert len(looks) < num_watched + 9


def test_the_end_in_a_prompt_ends_nothing(trained: Callable[[str], Run]) -> None:
    """Prompts of chat models have it behind what each of the speakers says."""
    run, prompt = trained('qwen2'), 'the<|endoftext|>a'
    vocabulary = Tokenizer(run.params.train_input.vocabulary)
    written = run.generate([prompt, 'a'], max_new=4)
    assert written == [best_continuation(run, vocabulary, one, 4) for one in (prompt, 'a')]
    assert written[0]
    assert run.generate(['a', prompt], max_new=1, beam_size=2) == [
        best_continuation(run, vocabulary, one, 1) for one in ('a', prompt)]


@pytest.mark.parametrize('kind', tiny_tokenizers.KINDS)
def test_a_conversation_is_answered_behind_the_text_of_the_template(
        kind: str, trained: Callable[[str], Run]) -> None:
    """Its start is not doubled, and the run knows the template without the folder."""
    run, end = trained(kind), tiny_tokenizers.END[kind]
    conversations = [[{'role': 'user', 'content': 'the'}],
                     [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'the'},
                      {'role': 'user', 'content': 'mat'}]]
    texts = [f'the{end}cat', f'a{end}the{end}mat{end}cat']   # without the start
    vocabulary = Tokenizer(run.params.train_input.vocabulary)
    expected = [best_continuation(run, vocabulary, text, 4) for text in texts]
    assert run.generate(conversations, max_new=4) == expected
    assert run.generate(iter([texts[0], conversations[1]]), max_new=4) == expected
    assert ''.join(run.stream(conversations[1], max_new=4)) == expected[1]
    with pytest.raises(ValueError, match=r'prompts is one conversation; give a list of them, or use'
                                         r' run\.stream\(conversation\)'):
        run.generate(conversations[0])   # type: ignore[arg-type]
    with pytest.raises(ValueError, match="{'role': 'user'} is no message of a conversation"):
        run.generate([[{'role': 'user'}]])
    with pytest.raises(ValueError, match='prompts has 3, but must be a list of texts'):
        run.generate([conversations[0], 3])   # type: ignore[list-item]


def test_lines_of_json_are_conversations_if_the_params_say_so(
        tmp_path: Path, trained: Callable[[str], Run]) -> None:
    conversation = [{'role': 'user', 'content': 'the'}]
    params = experiment(tmp_path, folder_of(tmp_path, 'qwen2'), num_cells=1)
    params.task.set(**{'decode.lines': 'chats', 'decode.max_new': 4})
    with start(params, logdir=tmp_path / 'log') as run:
        run.train(steps=0, evaluate=False)
        expected = run.generate([conversation])

        def decoded(site: Site) -> list[str]:
            network, metadata = run.restored(site)
            return list(run.experiment.task.decode(
                network.program, [json.dumps(conversation)], metadata['task']))

        assert run.at_site(decoded) == [as_line(text) for text in expected]


def test_a_conversation_needs_a_template(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 'qwen2')
    tiny_tokenizers.write(folder, 'qwen2')
    conversation = [{'role': 'user', 'content': 'the'}]
    with start(experiment(tmp_path, folder, num_cells=1), logdir=tmp_path / 'log') as run:
        run.train(steps=0, evaluate=False)
        with pytest.raises(ValueError, match='the vocabulary of this model has no chat template; c'
                                             'opy tokenizer_config.json and, .* beside the tokeni'):
            run.generate([conversation], max_new=2)
    # The remedy, as for a run whose tokens were made by a version without templates.
    (tmp_path / 'tokens/chat_template.jinja').write_text(CHAT_TEMPLATE)
    shutil.copy(folder / 'tokenizer_config.json', tmp_path / 'tokens')
    with start(experiment(tmp_path, folder, num_cells=1), logdir=tmp_path / 'log') as run:
        answers = run.generate([conversation], max_new=2)
        assert answers == run.generate(['the<|endoftext|>cat'], max_new=2)


def test_it_is_read_once_for_all_prompts(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of run.generate and run.stream read it again; a large one takes 0.8 s."""
    opened = []

    def open_and_count(path: str, facts: dict[str, Any]) -> Any:
        opened.append(path)
        return open_vocabulary(path, facts)

    monkeypatch.setattr('lingpipe.tasks.text.task.open_vocabulary', open_and_count)
    params = experiment(tmp_path, folder_of(tmp_path, 'qwen2'), num_cells=1)
    with start(params, logdir=tmp_path / 'log') as run:
        run.train(steps=0, evaluate=False)
        for prompt, beam_size in (('the', 1), ('a', 1), ('the', 2)):
            run.generate([prompt], max_new=2, beam_size=beam_size)
        copy = tmp_path / 'tokens/tokenizer.json'
        assert opened == [str(copy)]
        copy.write_text(copy.read_text() + ' ')
        with pytest.raises(ValueError, match='is not the vocabulary that the run used'):
            run.generate(['the'], max_new=2)


def test_any_of_its_ends_ends_a_text(tmp_path: Path) -> None:
    vocabulary = Tokenizer(tiny_tokenizers.write(tmp_path, 'qwen2'), [0, 1])
    ids = np.array(vocabulary.encode(['the cat<|im_end|>sat'])[0])
    text = Continuation(vocabulary, (), 1, 99)
    assert (text.next_piece(ids), text.is_over, text.is_cut) == (' cat', True, False)


def test_a_vocabulary_of_more_ids_than_the_network_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 'qwen2')
    path = str(folder / 'tokenizer.json')
    params = experiment(tmp_path, folder, vocabulary=path)
    own = tiny_tokenizers.qwen2()
    own.add_tokens([f'<{i}>' for i in range(20)])
    own.save(path)
    with pytest.raises(ValueError, match='has 310 ids, but vocab_size=300; set vocab_size=310'):
        params.train_input.copy().set(vocab_size=300).instantiate().num_examples()
    params.task.model.set(vocab_size=280)
    with pytest.raises(ValueError, match=r'has 310 ids, but task\.model\.vocab_size=280; set task'):
        params.task.instantiate().vocabulary({})
