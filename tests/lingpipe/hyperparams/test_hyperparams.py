"""Params: what they accept, what they refuse and how they say so, and their text."""
from __future__ import annotations

import copy
import importlib
import math
import pickle
import re
import subprocess
import sys
from typing import ClassVar, Literal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lingpipe.learning
from lingpipe.hyperparams import (
    ABSENT,
    REQUIRED,
    Configurable,
    Params,
    ParamsError,
    UnknownParamError,
    diff,
    field,
    fields_of,
    path_of,
)

HERE = __name__

# The end of errors about a text that is not a value.
FORMS = 'write one like [1, 2], {"a": 1} or "text", with \\\\ for a backslash'


class Dense(Configurable):
    """A layer with one REQUIRED field."""

    class Params(Configurable.Params):
        units: int = field(REQUIRED, 'Number of output channels.')
        activation: Literal['relu', 'gelu'] | None = field(None, 'What follows the product.')

        def check(self) -> None:
            if self.units < 1:
                raise ValueError(f'units={self.units} makes no output; use 1 or more')


class Wide(Dense):
    """Defines no Params, so it gets its own."""


class Narrow(Dense):
    """Gives an inherited field a default."""

    class Params(Dense.Params):
        units = field(4)


class Task(Configurable):
    """A task with all kinds of fields."""

    class Inner(Configurable):
        """Visible by its bare name in the Params below."""

    class Params(Configurable.Params):
        kinds: ClassVar[int] = 3
        layers: tuple[Dense.Params, ...] = field((), 'Layers.')
        lr: float = field(0.5, 'Learning rate.', is_finite=False)
        steps: int = field(10, 'Steps.')
        is_fast: bool = field(False, 'Whether to hurry.')
        name: str = field('task', 'Name.')
        shape: tuple[int, float] | None = field(None, 'A pair.', is_finite=False)
        reads: dict[str, float] = field({}, 'Inputs by name.', is_finite=False)
        mode: int | str | tuple[int, ...] = field('auto', 'A union.')
        inner: Inner.Params | None = field(  # type: ignore[name-defined]  # noqa: F821
            None, 'Local to the class around.')
        head: Dense.Params = field(Dense.Params(units=2), 'Last layer.')
        towers: dict[str, Dense.Params] = field({}, 'Params by name.')


class Experiment(Configurable):
    """The root in these tests."""

    class Params(Configurable.Params):
        task: Task.Params = field(Task.Params(), 'Task.')
        extra: Params | None = field(None, 'Anything.')


class Broken(Configurable):
    """Has an annotation that names nothing."""

    class Params(Configurable.Params):
        x: Nowhere = field(None, 'x')  # type: ignore[name-defined]  # noqa: F821


def experiment() -> Experiment.Params:
    p = Experiment.Params()
    p.task.layers = (Dense.Params(units=8), Wide.Params(units=16, activation='gelu'))
    p.task.reads = {'x': 1, 'a.b "c"\n': 2}
    return p


def refuses(message: str, error: type[Exception] = ParamsError):
    """Expects an error with exactly this sentence."""
    return pytest.raises(error, match='^' + re.escape(message) + '$')



# Types.

@pytest.mark.parametrize('path, given_value, stored', [
    ('lr', 3, 3.0), ('lr', np.float32(0.5), 0.5), ('steps', np.int64(7), 7),
    ('is_fast', np.True_, True), ('name', np.str_('n'), 'n'), ('shape', [1, 2], (1, 2.0)),
    ('shape', None, None), ('reads', {'z': 1, 'a': 2}, {'a': 2.0, 'z': 1.0}), ('mode', 3, 3),
    ('mode', '3', '3'), ('mode', [3], (3,)), ('lr', math.inf, math.inf),
    ('head.activation', 'relu', 'relu'), ('head', Wide.Params(units=1), Wide.Params(units=1)),
    ('layers', [Narrow.Params()], (Narrow.Params(),)),
])
def test_values_of_the_right_kind_are_stored_as_the_field_s_type(path, given_value, stored):
    p = Task.Params()
    p[path] = given_value
    assert p[path] == stored and type(p[path]) in (type(stored), type(p.reads))
    assert repr(p[path]) == repr(stored)


@pytest.mark.parametrize('path, value, message', [
    ('task.steps', True, 'task.steps=True is of type bool, not int; give a value of type int'),
    ('task.steps', 3.0, 'task.steps=3.0 is of type float, not int; give a value of type int'),
    ('task.is_fast', 1, 'task.is_fast=1 is of type int, not bool; give a value of type bool'),
    ('task.lr', 'fast', "task.lr='fast' is of type str, not float; give a value of type float"),
    ('task.name', None, 'task.name=None is of type None, not str; give a value of type str'),
    ('task.shape', (1, 'b'),
     "task.shape[1]='b' is of type str, not float; give a value of type float"),
    ('task.shape', (1, 2, 3), 'task.shape=(1, 2, 3) is of type tuple, not tuple[int, float]; give '
                              'a value of type tuple[int, float]'),
    ('task.reads', {'x': 'y'},
     "task.reads.x='y' is of type str, not float; give a value of type float"),
    ('task.reads', {1: 2.0}, 'task.reads={1: 2.0} is of type dict, not dict[str, float]; give a '
                             'value of type dict[str, float]'),
    ('task.mode', 0.5, 'task.mode=0.5 is of type float, not int | str | tuple[int, ...]; give a '
                       'value of type int | str | tuple[int, ...]'),
    ('task.layers[1].activation', 'rulu',
     'task.layers[1].activation=\'rulu\' is not one of "relu", "gelu"; did you mean \'relu\'?'),
    ('task.head', Task.Inner.Params(),
     'task.head=Task.Inner.Params() is of type Task.Inner.Params, not Dense.Params; give a value '
     'of type Dense.Params'),
    ('task.head', Dense, 'task.head=Dense is a class, not a value of type Dense.Params; make an '
                         'object of its Params with ()'),
])
def test_a_wrong_type_is_an_error_that_names_the_whole_path(path, value, message):
    p = experiment()
    before = p.copy()
    with refuses(message):
        p[path] = value
    assert p == before


def test_an_annotation_that_names_nothing_is_an_error_that_says_where_to_define_it():
    with refuses("the types of Broken.Params cannot be resolved: name 'Nowhere' is not defined; "
                 'use names of its module or of the classes around it'):
        Broken.Params()


@pytest.mark.parametrize('annotation', [list, dict, object, dict[int, str], bytes, Dense])
def test_a_type_that_params_cannot_hold_is_refused_at_first_use(annotation):
    made = type('Made', (Params,),
                {'__annotations__': {'x': annotation}, 'x': field(None, 'x'),
                 '__module__': __name__})
    with pytest.raises(
            ParamsError,
            match=r'^Made.x has the type .*, which Params cannot hold; use bool, int, float, str'):
        made()


def test_a_default_of_the_wrong_type_is_refused_at_first_use():
    made = type('Made', (Params,),
                {'__annotations__': {'x': int}, 'x': field('a', 'x'), '__module__': __name__})
    with refuses("Made.x='a' is of type str, not int; give a value of type int"):
        made()


# Bounds.

class Limits(Params):
    """Fields with every kind of bound."""
    count: int = field(1, 'A count.', least=1)
    rate: float = field(0., 'A probability below 1.', least=0, below=1)
    share: float | None = field(None, 'A part of the whole.', above=0, most=1)
    size: int | tuple[int, int] = field(1, 'One size, or two.', least=1, most=9)
    weights: dict[str, float] = field({}, 'Weights by name.', above=0)
    shift: float = field(0., 'Any finite number.')
    seed: int = field(0, 'Any number of 64 bits.')
    limit: float = field(math.inf, 'No limit is infinity.', least=0, is_finite=False)


class Inherited(Limits):
    """One field keeps its bounds, and one has others."""
    count = field(5)
    rate = field(2., least=2)


class Bounded(Params):
    """Holds Limits, so that errors have a path."""
    layers: tuple[Limits, ...] = field((Limits(), Limits()), 'Two.')


@pytest.mark.parametrize('path, value, message', [
    ('count', 0, 'layers[1].count=0 is below 1; use 1 or more'),
    ('rate', 1, 'layers[1].rate=1.0 is not below 1; use 0 or more and less than 1'),
    ('rate', -0.1, 'layers[1].rate=-0.1 is below 0; use 0 or more and less than 1'),
    ('rate', math.nan, 'layers[1].rate=nan is not a number; use 0 or more and less than 1'),
    ('share', 0, 'layers[1].share=0.0 is not above 0; use more than 0 and 1 or less, or none'),
    ('share', 1.5, 'layers[1].share=1.5 is above 1; use more than 0 and 1 or less, or none'),
    ('size', 10, 'layers[1].size=10 is above 9; use 1 to 9'),
    ('size', (3, 0), 'layers[1].size[1]=0 is below 1; use 1 to 9'),
    ('weights', {'x': 1, 'y': -2}, 'layers[1].weights.y=-2.0 is not above 0; use more than 0'),
    ('weights', {'x': math.inf}, 'layers[1].weights.x=inf is not finite; use more than 0'),
    ('shift', -math.inf, 'layers[1].shift=-inf is not finite; use a finite number'),
    ('shift', math.nan, 'layers[1].shift=nan is not a number; use a finite number'),
    ('seed', 2 ** 63, 'layers[1].seed=9223372036854775808 is too large for 64 bits; use a number '
                      'from -2^63 to 2^63 - 1'),
    ('limit', math.nan, 'layers[1].limit=nan is not a number; use 0 or more'),
])
def test_a_number_out_of_its_field_s_bounds_is_refused_with_its_path(path, value, message):
    with refuses(message):
        Bounded()[f'layers[1].{path}'] = value


def test_numbers_at_closed_bounds_none_and_allowed_infinities_are_accepted():
    p = Limits(count=1, rate=0, share=1, size=(1, 9), weights={'x': 1e-300}, seed=-2 ** 63,
               limit=math.inf)
    assert (p.count, p.rate, p.share, p.size, p.seed, p.limit) == (
        1, 0., 1., (1, 9), -2 ** 63, math.inf)
    assert Limits(share=1).set(share=None).share is None


def test_bounds_hold_for_overrides_and_texts_as_well():
    with refuses('layers[0].size[0]=0 is below 1; use 1 to 9'):
        Bounded().override('layers[0].size', '0,2')
    with refuses('line 3: rate=inf is not below 1; use 0 or more and less than 1'):
        Params.from_text(f'{HERE}:Limits\n\nrate : 1e999')


def test_a_subclass_keeps_inherited_bounds_unless_it_names_others():
    assert Inherited().count == 5 and Inherited().rate == 2.
    with refuses('count=0 is below 1; use 1 or more'):
        Inherited(count=0)
    with refuses('rate=1.0 is below 2; use 2 or more'):
        Inherited(rate=1)


@pytest.mark.parametrize('annotation, declared, message', [
    (int, field(0, 'x', least=1), 'Made.x=0 is below 1; use 1 or more'),
    (tuple[float, ...], field((1., math.nan), 'x'),
     'Made.x[1]=nan is not a number; use a finite number'),
    (str, field('', 'x', least=1),
     'Made.x has bounds, but no number in its type str; leave the bounds out'),
])
def test_a_default_out_of_bounds_and_bounds_of_no_number_are_refused_at_first_use(
        annotation, declared, message):
    made = type('Made', (Params,),
                {'__annotations__': {'x': annotation}, 'x': declared, '__module__': __name__})
    with refuses(message):
        made()


# Declaring.

def test_a_configurable_without_params_gets_its_own_class():
    assert Wide.Params is not Dense.Params and issubclass(Wide.Params, Dense.Params)
    assert Wide.Params.owner is Wide and Dense.Params.owner is Dense
    assert isinstance(Wide.Params(units=1).instantiate(), Wide)


def test_a_subclass_can_change_a_default_alone():
    assert Narrow.Params().units == 4
    assert fields_of(Narrow.Params)['units'].doc == 'Number of output channels.'


@pytest.mark.parametrize('body, message', [
    ({'__annotations__': {'x': 'int'}, 'x': 3},
     "Made.x is no field; write x: int = field(default, 'description')"),
    ({'units': 3},
     'Made.units would hide an inherited field; write units = field(...) or rename it'),
    ({'__annotations__': {'copy': 'int'}, 'copy': field(3, 'x')},
     'Made.copy cannot be a field: the name is taken or private; rename it'),
    ({'x': field(3, 'x')},
     "Made.x lacks a type or a description; write x: type = field(default, 'description')"),
    ({'__annotations__': {'x': 'int'}, 'x': field(3)},
     "Made.x lacks a type or a description; write x: type = field(default, 'description')"),
])
def test_a_field_that_could_not_work_is_refused_when_its_class_is_defined(body, message):
    with refuses(message):
        type('Made', (Dense.Params,), body)


@pytest.mark.parametrize('bases', ['Plain Wide', 'Wide Plain'])
def test_of_two_bases_the_wider_params_are_extended_in_either_order(bases):
    """Python cannot order bases of which an earlier one is a base of a later one."""
    class Plain(Configurable):
        class Params(Configurable.Params):
            size: int = field(1, 'The size that both share.')

    class Wide(Configurable):
        class Params(Plain.Params):
            rate: float = field(0.5, 'The rate of this one.')

    named = {'Plain': Plain, 'Wide': Wide}
    both = type('Both', tuple(named[name] for name in bases.split()), {})
    params = both.Params(size=2, rate=0.1)
    assert isinstance(params, Wide.Params)
    assert type(params.instantiate()) is both


def test_params_that_do_not_extend_the_base_s_are_refused():
    with refuses('Task.Params does not extend Dense.Params; write class Params(Dense.Params)'):
        type('Bad', (Dense,),
             {'Params': type('Params', (Configurable.Params,), {'__qualname__': 'Task.Params'})})


def test_defaults_are_not_shared():
    a, b = Task.Params(), Task.Params()
    a.head.units = 99
    a['reads.x'] = 1.0
    assert b.head.units == 2 and b.reads == {} and Task.Params().head.units == 2


# Names.

@pytest.mark.parametrize('use', [
    lambda p: p.task.layers[1].unit,
    lambda p: p['task.layers[1].unit'],
    lambda p: setattr(p.task.layers[1], 'unit', 3),
    lambda p: p.set(**{'task.layers[1].unit': 3}),
    lambda p: p.override('task.layers[1].unit', '3'),
])
def test_a_wrong_name_suggests_the_right_one(use):
    with refuses("task.layers[1].unit does not exist: Wide.Params has no field 'unit'; did you "
                 "mean 'units'?",
                 UnknownParamError):
        use(experiment())


def test_a_wrong_keyword_suggests_the_right_one():
    with refuses("actvation does not exist: Dense.Params has no field 'actvation'; did you mean "
                 "'activation'?",
                 UnknownParamError):
        Dense.Params(actvation='relu')  # type: ignore[call-arg]


def test_a_name_like_no_other_gets_the_whole_list():
    with refuses("qqq does not exist: Dense.Params has no field 'qqq'; it has units, activation",
                 UnknownParamError):
        Dense.Params()['qqq']


@pytest.mark.parametrize('path, message', [
    ('task.layers[2].units',
     'task.layers[2] does not exist: task.layers is a tuple of 2 items; use [0] to [1]'),
    ('task.layers.x',
     'task.layers.x does not exist: task.layers is a tuple of 2 items; use [0] to [1]'),
    ('task.reads.y', 'task.reads.y does not exist: task.reads is a dict; it has a.b "c"\n, x'),
    ('task.lr.x',
     'task.lr.x does not exist: task.lr is 0.5, which has no parts; set task.lr itself'),
    ('task.inner.x', 'task.inner.x does not exist: task.inner is None, which has no parts; set '
                     f'task.inner itself first, as task.inner={HERE}:Task.Inner'),
    ('extra.x',
     'extra.x does not exist: extra is None, which has no parts; set extra itself'),
    ('task[0]', "task[0] does not exist: Task.Params has no field 0; it has layers, lr, steps, "
                "is_fast, name, shape, reads, mode, "
                'inner, head, towers'),
    ('task..lr', "'task..lr' is not a path of Params; write one like task.layers[0].units"),
    ('task.layers[-1]',
     "'task.layers[-1]' is not a path of Params; write one like task.layers[0].units"),
])
def test_a_wrong_path_says_where_it_stops(path, message):
    with refuses(message):
        experiment()[path]


def test_paths_read_and_write_through_tuples_and_dicts():
    p = experiment()
    kept = p.task.layers[0]
    p['task.layers[1].units'] = 32
    p['task.layers[1]'] = Narrow.Params()
    p['task.reads.y'] = 3
    p['task.towers.left'] = Dense.Params(units=1)
    p['task.towers.left.units'] = 5
    assert p['task.layers[1].units'] == 4 and p.task.layers[0] is kept and p[''] is p
    assert (p.task.reads == {'a.b "c"\n': 2.0, 'x': 1.0, 'y': 3.0}
            and p['task.reads["a.b \\"c\\"\\n"]'] == 2.0)
    assert p.task.towers['left'].units == 5 and path_of(p.task.towers['left']) == 'task.towers.left'
    assert 'task.lr' in p and 'task.rl' not in p


# Overrides.

@pytest.mark.parametrize('path, text, value', [
    ('lr', '0.1', 0.1), ('lr', '1', 1.0), ('lr', '-inf', -math.inf), ('steps', ' 12 ', 12),
    ('is_fast', 'true', True), ('is_fast', 'False', False), ('shape', 'none', None),
    ('shape', '1,2', (1, 2.0)), ('shape', '(1, 2)', (1, 2.0)), ('shape', '[1, 2,]', (1, 2.0)),
    ('name', 'a, b: [c', 'a, b: [c'), ('name', '"a \\"b\\""', 'a "b"'),
    ('name', "'it\\'s \"so\"'", 'it\'s "so"'), ('name', "it's", "it's"), ('name', '', ''),
    ('name', 'none', 'none'), ('mode', '3', 3), ('mode', '"3"', '3'), ('mode', '1,2', (1, 2)),
    ('mode', 'max', 'max'),
    ('reads', '{"x": 1, \'y\': 2, z: nan}', {'x': 1.0, 'y': 2.0, 'z': math.nan}),
    ('reads', '{}', {}), ('reads.x', '4', 4.0), ('head.activation', 'gelu', 'gelu'),
    ('head.activation', 'None', None), ('head.units', 'REQUIRED', REQUIRED),
    ('head', f'{HERE}:Narrow', Narrow.Params()),
    ('inner', f'{HERE}:Task.Inner', Task.Inner.Params()),
    ('layers', f'[{HERE}:Narrow, {HERE}:Wide]', (Narrow.Params(), Wide.Params())),
])
def test_overrides_are_read_by_the_field_s_type(path, text, value):
    assert repr(Task.Params().override(path, text)[path]) == repr(value)


@pytest.mark.parametrize('path, text, message', [
    ('task.steps', 'ten', 'task.steps=ten is not of type int; give a value of type int'),
    ('task.steps', '1,2', 'task.steps=1,2 is not of type int; give a value of type int'),
    ('task.steps', '"3"', "task.steps='3' is of type str, not int; give a value of type int"),
    ('task.is_fast', '1', 'task.is_fast=1 is not of type bool; give a value of type bool'),
    ('task.shape', '1,x', 'task.shape[1]=x is not of type float; give a value of type float'),
    ('task.shape', '[1, 2',
     f"task.shape: '[1, 2' is not a value: Expecting ',' delimiter; {FORMS}"),
    ('task.reads', '{"a": 1, "a": 2}',
     f'task.reads: \'{{"a": 1, "a": 2}}\' is not a value: it has the key \'a\' twice; {FORMS}'),
    ('task.name', '"a', 'task.name="a is not of type str; give a value of type str'),
    ('task.head', 'Narow',
     "task.head: 'Narow' is not the name of a class; write package.module:Class"),
    ('task.head', 'Narrow',
     f"task.head: 'Narrow' is not the name of a class; write {HERE}:Narrow"),
    ('task.inner', 'true',   # It can be of one class only.
     f"task.inner: 'true' is not the name of a class; write {HERE}:Task.Inner"),
    ('task.head', 'no_such_module:A',
     "task.head: the module of no_such_module:A cannot be imported: ModuleNotFoundError: No module "
     "named 'no_such_module'; correct its name, or put it on the path"),
    ('task.head', f'{HERE}:Narow',
     f"task.head: {HERE}:Narow is no Configurable and no Params; did you mean 'Narrow'?"),
    ('task.head', 'os:system',
     'task.head: os:system is no Configurable and no Params; its module has none'),
    ('task.head', f'{HERE}:Task.Inner',
     'task.head=Task.Inner.Params() is of type Task.Inner.Params, not Dense.Params; give a value '
     'of type Dense.Params'),
])
def test_a_wrong_override_names_the_whole_path(path, text, message):
    with refuses(message):
        experiment().override(path, text)


@pytest.mark.parametrize('text, reason', [
    ('[1, 2] 3', 'Extra data'),
    ('[1,, 2]', 'Expecting value'),
    ('[[1], [2', "Expecting ',' delimiter"),
    ('{"a" 1}', "Expecting ':' delimiter"),
    ('{a 1}', 'Expecting property name enclosed in double quotes'),
    ('{[1]: 2}', 'Expecting property name enclosed in double quotes'),
])
def test_brackets_that_hold_no_value_are_refused_with_the_reason(text, reason):
    task = type('Made', (Params,),
                {'__annotations__': {'mode': tuple[int, ...]}, 'mode': field((), 'x'),
                 '__module__': __name__})
    with refuses(f'mode: {text!r} is not a value: {reason}; {FORMS}'):
        task().override('mode', text)


def test_an_apostrophe_in_a_word_opens_no_string():
    made = type('Made', (Params,),
                {'__annotations__': {'x': tuple[str, ...]}, 'x': field((), 'x'),
                 '__module__': __name__})
    assert made().override('x', "it's, that's, 'a, b'").x == ("it's", "that's", 'a, b')


def test_a_text_names_no_class_below_params():
    name = 'lingpipe.hyperparams.class_names:Owned'
    with refuses(f'line 1: the root: {name} is no Configurable and no Params; its module has none'):
        Params.from_text(name)


def test_a_string_that_no_file_can_hold_is_refused():
    with refuses("name='\\ud800' holds a lone surrogate, which no text file can; remove it"):
        Task.Params(name='\ud800')


def test_a_text_of_many_brackets_is_an_error_and_not_a_crash():
    with pytest.raises(ParamsError, match='is not a value: maximum recursion depth exceeded'):
        Task.Params().override('shape', '[' * 100_000)


def test_nothing_is_evaluated():
    with refuses("steps=__import__('os').getpid() is not of type int; give a value of type int"):
        Task.Params().override('steps', "__import__('os').getpid()")


# Frozen.

def test_an_object_has_checked_frozen_params_of_its_own():
    p = Task.Params(steps=3)
    task = p.instantiate()
    p.steps = 4
    assert (task.params.steps == 3
            and task.params.is_frozen
            and task.params.head.is_frozen
            and not p.is_frozen)


@pytest.mark.parametrize('write, path', [
    (lambda p: setattr(p.task.layers[1], 'units', 3), 'task.layers[1].units'),
    (lambda p: p.set(**{'task.reads.x': 3}), 'task.reads'),
    (lambda p: p.override('task.lr', '3'), 'task.lr'),
])
def test_a_write_after_freeze_is_refused(write, path):
    p = experiment().freeze()
    with refuses(f'{path} cannot be set: these Params are frozen, as they belong to an object made '
                 f'from them; '
                 'change a .copy() and make another'):
        write(p)


def test_a_dict_is_changed_by_path_only():
    with refuses("a dict in Params is read-only; set an entry by its path, p['field.key'] = value, "
                 "or assign a new dict to the field"):
        Task.Params(reads={'x': 1.0}).reads['x'] = 'y'  # type: ignore[assignment]


def test_a_copy_of_frozen_params_can_be_written():
    p = experiment().freeze().copy()
    p.task.layers[0].units = 1
    assert not p.is_frozen and p.task.layers[0].units == 1


def test_frozen_params_are_copied_when_they_are_assigned():
    layer = Dense.Params(units=3).instantiate()
    p = Task.Params(head=layer.params)
    p.head.units = 4
    assert layer.params.units == 3


# One place each.

def test_params_with_a_place_are_copied_when_assigned_elsewhere():
    p = experiment()
    p.task.head = p.task.layers[0]
    p.task.head.units = 77
    assert (p.task.layers[0].units == 8
            and path_of(p.task.head) == 'task.head'
            and path_of(p.task.layers[0]) == 'task.layers[0]')


def test_one_object_twice_in_a_tuple_becomes_two():
    p = Task.Params(layers=(Dense.Params(units=1),) * 2)
    p.layers[0].units = 5
    assert p.layers[1].units == 1


def test_reordered_items_stay_the_same_objects_with_new_names():
    p = experiment().task
    first, second = p.layers
    p.layers = (second, first)
    assert p.layers[0] is second and path_of(first) == 'task.layers[1]'


def test_replaced_params_are_a_root_again():
    p = experiment()
    old = p.task
    p.task = Task.Params()
    assert path_of(old) == '' and path_of(old.layers[0]) == 'layers[0]'
    layer, old.layers = old.layers[0], ()
    assert path_of(layer) == ''


def test_params_inside_themselves_are_a_copy():
    p = experiment()
    p.extra = p
    assert isinstance(p.extra, Experiment.Params) and p.extra is not p and p.extra.extra is None


def test_a_copy_takes_nothing_from_the_original():
    """When Params were put into themselves, their copy got the very object that was replaced."""
    p = Nest.Params(inner=Nest.Params())
    before = p.inner
    p.inner = p
    assert p.inner.inner is not None and p.inner.inner is not before and path_of(before) == ''


def test_an_error_in_a_child_object_names_the_path_from_the_root():
    task = experiment().task.instantiate()
    layer = task.params.layers[1].instantiate()
    with pytest.raises(UnknownParamError, match=r'^task\.layers\[1\]\.unit does not exist'):
        _ = layer.params.unit


# Making objects.

def test_all_missing_required_fields_are_listed():
    p = experiment()
    p.task.head = Dense.Params()
    p.task.layers = (Dense.Params(), Narrow.Params(), Wide.Params())
    with refuses(f'task.layers[0].units, task.layers[2].units, task.head.units: REQUIRED and not '
                 f'set, so {HERE}:Experiment cannot be made; set them first'):
        p.instantiate()


def test_a_failed_check_is_named_by_its_path():
    p = experiment()
    p.task.layers[1].units = 0
    with refuses('task.layers[1]: units=0 makes no output; use 1 or more'):
        p.instantiate()
    with refuses('Dense.Params: units=0 makes no output; use 1 or more'):
        Dense(Dense.Params(units=0))


@pytest.mark.parametrize('write', [
    lambda p: p.task.layers[1].set(units=0),
    lambda p: p.set(**{'task.layers[1].units': 0}),
    lambda p: p.task.set(layers=(Dense.Params(units=1), Dense.Params(units=0))),
    lambda p: p.override('task.layers[1].units', '0'),
])
def test_what_was_checked_is_checked_again_after_a_write(write):
    p = experiment().validate()
    for one in (p.copy(), p, pickle.loads(pickle.dumps(p))):
        write(one)
        with refuses('task.layers[1]: units=0 makes no output; use 1 or more'):
            one.validate()
        one.task.layers[1].units = 1
        one.instantiate()


def test_params_that_do_not_change_are_checked_once():
    """Every object once checked all of its Params, and those of all objects below it, twice."""
    checked = []

    class Counted(Configurable):
        class Params(Configurable.Params):
            inner: Configurable.Params | None = field(None, 'The layer below.')

            def check(self):
                checked.append(path_of(self))

        def __init__(self, params):
            super().__init__(params)
            if self.params.inner:
                self.params.inner.instantiate()

    Counted.Params(inner=Counted.Params(inner=Counted.Params())).instantiate()
    assert checked == ['', 'inner', 'inner.inner']


def test_arguments_reach_the_object():
    class Loud(Configurable):
        def __init__(self, params, *args, **kwargs):
            super().__init__(params)
            self.given = args, kwargs
    assert Loud.Params().instantiate(1, a=2).given == ((1,), {'a': 2})


def test_an_object_refuses_the_params_of_another():
    with refuses('Wide was given Dense.Params(units=1); give it Wide.Params(...)'):
        Wide(Dense.Params(units=1))


def test_params_without_a_configurable_make_nothing():
    made = type('Made', (Params,), {})
    with refuses('Made makes no object: Made belongs to no Configurable; define it as the class '
                 'Params inside one'):
        made().instantiate()


# Text.

TEXT = f'''{HERE}:Experiment
task : {HERE}:Task
task.layers[0] : {HERE}:Dense
task.layers[0].units : 8
task.layers[0].activation : none
task.layers[1] : {HERE}:Wide
task.layers[1].units : 16
task.layers[1].activation : "gelu"
task.lr : 0.5
task.steps : 10
task.is_fast : false
task.name : "task"
task.shape : none
task.reads["a.b \\"c\\"\\n"] : 2.0
task.reads.x : 1.0
task.mode : "auto"
task.inner : none
task.head : {HERE}:Dense
task.head.units : 2
task.head.activation : none
task.towers : {{}}
extra : none
'''


def test_the_text_is_one_line_a_value():
    assert experiment().to_text() == TEXT


def test_text_gives_equal_params_back():
    assert Params.from_text(TEXT) == experiment()
    assert Experiment.Params.from_text(TEXT).to_text() == TEXT


def test_comments_empty_lines_and_absent_fields_are_allowed_in_text():
    assert Params.from_text(f'\n# a comment\n{HERE}:Narrow\n\n') == Narrow.Params()


int64s = st.integers(-2 ** 63, 2 ** 63 - 1)
# st.text() computes for seconds which signs UTF-8 has: all but surrogates.
texts = st.text(st.characters(exclude_categories=['Cs']))
scalars = st.one_of(int64s, texts)
tasks = st.builds(
    Task.Params, lr=st.floats(), steps=int64s, is_fast=st.booleans(), name=texts,
    shape=st.none() | st.tuples(int64s, st.floats()),
    reads=st.dictionaries(texts, st.floats(), max_size=3),
    mode=scalars | st.lists(int64s, max_size=3),
    head=st.builds(Dense.Params, units=int64s | st.just(REQUIRED)) | st.just(Narrow.Params()),
    layers=st.lists(st.just(Wide.Params()), max_size=2),
    towers=st.dictionaries(texts, st.builds(Narrow.Params), max_size=2))


@settings(max_examples=200, derandomize=True, deadline=None)
@given(tasks)
@example(Task.Params(name='a\nb\r\u2028"\'#: \\ \x00', lr=math.nan,
                     reads={'': -math.inf, 'a]b': -0.0}))
def test_every_value_survives_its_text(p):
    again = Params.from_text(p.to_text())
    assert again == p and again.to_text() == p.to_text()


@pytest.mark.parametrize('old, new, message', [
    ('task.steps', 'task.stps',
     "line 10: task.stps does not exist: Task.Params has no field 'stps'; did you mean 'steps'?"),
    ('task.lr : 0.5', 'task.lr : fast',
     'line 9: task.lr=fast is not of type float; give a value of type float'),
    ('task.lr : 0.5', 'task.lr 0.5',
     "line 9: 'task.lr 0.5' is not a line of Params; write path : value"),
    ('task.lr : 0.5', 'extra : none',
     'line 22: extra is here a second time, after line 9; keep one of them'),
    ('task.name : "task"', 'task.name : task',
     'line 12: task.name=task is not of type str; give a value of type str'),
    ('task.name : "task"', 'task.name : "\\q"',
     f'line 12: task.name: \'"\\\\q"\' is not a value: Invalid \\escape; {FORMS}'),
    ('task.layers[1]', 'task.layers[2]',
     'line 3: task.layers lists the items 0, 2; number them from 0, in order'),
    ('units : 16', 'units : x',
     'line 7: task.layers[1].units=x is not of type int; give a value of type int'),
    (f'task.head : {HERE}:Dense', 'task.head : os:path',
     'line 18: task.head: os:path is no Configurable and no Params; its module has none'),
    (f'{HERE}:Experiment', 'no_such_module:A',
     'line 1: the root: no_such_module:A is in a module that nothing here has imported, and '
     'reading a text imports only modules of lingpipe; if you trust that module, let the '
     'experiment import it, or name it in a flag'),
])
def test_a_wrong_line_is_named_by_its_number(old, new, message):
    with refuses(message):
        Params.from_text(TEXT.replace(old, new))


def test_text_of_another_class_is_refused():
    with refuses(f'line 1: found Params of {HERE}:Narrow, not of {HERE}:Task; '
                 'read the text with the class that wrote it, or with Params.from_text'):
        Task.Params.from_text(f'{HERE}:Narrow\n')


def test_a_stored_text_imports_no_module_of_anybody_else(tmp_path, monkeypatch):
    """A params.txt that came with somebody's checkpoints ran code of any module that it named."""
    (tmp_path / 'stranger.py').write_text(
        f'from {HERE} import Dense\nclass Layer(Dense):\n    pass\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, 'stranger', raising=False)

    rule = ('stranger:Layer is in a module that nothing here has imported, and reading a text '
            'imports only modules of lingpipe; if you trust that module, let the experiment import '
            'it, or name it in a flag')

    with refuses(f'line 1: the root: {rule}'):
        Params.from_text('stranger:Layer\n')
    with refuses(f'line 3: task.layers[0]: {rule}'):
        Params.from_text(f'{HERE}:Experiment\ntask : {HERE}:Task\ntask.layers[0] : stranger:Layer\n'
                         f'task.layers[0].units : 1\n')
    with refuses(f'line 3: task.head: {rule}'):
        Params.from_text(f'{HERE}:Experiment\ntask : {HERE}:Task\ntask.head : stranger:Layer\n')
    assert 'stranger' not in sys.modules

    text = experiment().override('task.head', 'stranger:Layer').to_text()   # as --set does
    assert 'task.head : stranger:Layer\n' in text and Params.from_text(text).to_text() == text
    monkeypatch.delitem(sys.modules, 'stranger')


def test_a_stored_text_may_name_modules_of_lingpipe(monkeypatch):
    learning_rates = importlib.import_module('lingpipe.learning.learning_rates')
    monkeypatch.setattr(lingpipe.learning, 'learning_rates', learning_rates, raising=False)
    # Both are put back at the end.
    monkeypatch.delitem(sys.modules, 'lingpipe.learning.learning_rates')
    assert Params.from_text(  # type: ignore[attr-defined]
        'lingpipe.learning.learning_rates:Constant\nrate : 2').rate == 2.


class Nest(Configurable):
    """Holds another Nest."""

    class Params(Configurable.Params):
        inner: Params | None = field(None, 'Another.')
        items: tuple[Params, ...] = field((), 'Others.')


def nest(depth: int, name: str) -> Nest.Params:
    p = Nest.Params()
    for _ in range(depth):
        p = Nest.Params(inner=p) if name == 'inner' else Nest.Params(items=(p,))
    return p


@pytest.mark.parametrize('name, most, steps', [('inner', 50, 51), ('items', 25, 52)])
def test_params_nest_as_deep_as_their_text_can_be_read(name, most, steps):
    """3,000 Params inside each other ended in a RecursionError wherever they were next used."""
    p = nest(most, name)
    assert Params.from_text(p.to_text()) == p == p.copy()
    with refuses(f'{name} holds Params nested so deep that a path has {steps} steps; use at most '
                 f'50: nest them less'):
        nest(3000, name)


def test_what_is_put_deep_down_counts_from_the_root():
    root = nest(2, 'inner')
    root['inner.inner.inner'] = nest(47, 'inner')
    with refuses('inner.inner.inner holds Params nested so deep that a path has 51 steps; use at '
                 'most 50: nest them less'):
        root['inner.inner.inner'] = nest(48, 'inner')
    with refuses('inner holds Params nested so deep that a path has 51 steps; use at most 50: nest '
                 'them less'):
        Nest.Params(inner=root)
    root['inner.inner.inner'] = None
    assert Nest.Params(inner=root)['inner.inner.inner.inner'] is None


def test_a_text_of_a_path_without_end_is_an_error_and_not_a_crash():
    with refuses('line 1: the Params nest too deep; nest them less'):
        Params.from_text(f'{HERE}:Nest\n{"inner." * 5000}items : []\n')


def test_empty_text_is_refused():
    with refuses('line 1: the text is empty; its first line is a class, package.module:Class'):
        Params.from_text('')


def mutated(text: str, draw) -> str:
    """The text with one to four random edits."""
    for kind in draw(st.lists(st.sampled_from('insert delete replace swap duplicate'.split()),
                              min_size=1, max_size=4)):
        if kind in ('swap', 'duplicate'):
            lines = text.split('\n')
            i, j = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
            if kind == 'swap':
                lines[i], lines[j] = lines[j], lines[i]
            else:
                lines.insert(i, lines[j])
            text = '\n'.join(lines)
        else:
            at = draw(st.integers(0, len(text)))
            new = '' if kind == 'delete' else draw(
                st.sampled_from(list('[](){}"\'.,:# \n\\_019-eé\x00') + ['nan', '\u2028', '[0]']))
            text = text[:at] + new + text[at + (kind != 'insert'):]
    return text


@settings(max_examples=1000, derandomize=True, deadline=None)
@given(st.data())
def test_a_damaged_text_gives_valid_params_or_one_error(data):
    modules = set(sys.modules)
    text = mutated(TEXT, data.draw)
    try:
        p = Params.from_text(text)
    except ParamsError as error:
        assert re.match(r'line \d+: ', str(error))
    else:
        assert Params.from_text(p.to_text()) == p
    assert len(set(sys.modules) - modules) < 50


# Differences.

def test_a_difference_is_a_path_and_two_values():
    a, b = experiment(), experiment()
    b.task.lr = 0.25
    b.task.layers[1].units = 17
    b['task.reads.y'] = 3
    b.task.shape = (1, 2)
    assert diff(a, a.copy()) == []
    assert diff(a, b) == [('task.layers[1].units', 16, 17), ('task.lr', 0.5, 0.25),
                          ('task.shape', None, (1, 2.0)), ('task.reads.y', ABSENT, 3.0)]


def test_a_change_of_class_is_reported_once():
    a, b = experiment(), experiment()
    b.task.layers = (Narrow.Params(), b.task.layers[1], Dense.Params())
    assert [path for path, _, _ in diff(a, b)] == ['task.layers[0]', 'task.layers[2]']


# Python's own protocols.

def test_walk_visits_every_params_once():
    assert [path for path, _ in experiment().walk()] == [
        '', 'task', 'task.layers[0]', 'task.layers[1]', 'task.head']
    p = experiment()
    assert all(p[path] is child for path, child in p.walk())


def test_equality_is_of_class_and_values():
    assert Dense.Params(units=1) == Dense.Params(units=1) != Wide.Params(units=1)
    assert Task.Params(mode=1) != Task.Params(mode='1')
    assert Task.Params(lr=math.nan) == Task.Params(lr=math.nan)
    with pytest.raises(TypeError, match='unhashable'):
        hash(Dense.Params())


def test_unknown_attributes_are_absent():
    p = Dense.Params()
    assert hasattr(p, 'units') and not hasattr(p, 'unit')


@pytest.mark.parametrize('again', [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_deepcopy_and_pickle_keep_values_and_frozenness(again):
    p = experiment()
    p.task.head = Dense.Params()
    assert again(p) == p and not again(p).is_frozen
    assert again(p).task.head.units is REQUIRED
    p.task.head.units = 3
    assert again(p.freeze()).is_frozen and again(p) == p
    assert again(p.task) == p.task and path_of(again(p.task)) == ''


def test_what_is_frozen_is_valid():
    p = experiment()
    p.task.head = Dense.Params()
    with pytest.raises(ParamsError, match=r'^task\.head\.units: REQUIRED and not set'):
        p.freeze()
    assert not any(tree.is_frozen for _, tree in p.walk())
    p.task.head.units = 0
    with pytest.raises(ParamsError, match=r'^task\.head: units=0 makes no output'):
        p.freeze()
    p.task.head.units = 3
    assert all(tree.is_frozen for _, tree in p.freeze().walk())


def test_copies_are_independent():
    p = experiment()
    for q in (p.copy(), copy.copy(p), copy.deepcopy(p)):
        q.task.layers[0].units = 1000
        q.task.lr = 0.125
    assert p == experiment()


def test_repr_is_short_and_shows_what_is_not_default():
    assert repr(Dense.Params(units=3)) == 'Dense.Params(units=3)'
    assert len(repr(experiment())) <= 80


def test_importing_params_does_not_import_tensorflow_or_numpy():
    code = ('import sys, lingpipe.hyperparams; assert not {"tensorflow", "numpy"} & '
            'set(sys.modules), "heavy import"')
    subprocess.run([sys.executable, '-c', code], check=True)


def test_an_init_that_does_not_do_its_part_is_told_what_to_write() -> None:
    """A hook without super().__init__ failed later, as an AttributeError of lingpipe itself."""
    class Forgetful(Configurable):
        def __init__(self, params: Configurable.Params) -> None:
            self.count = 0

    class Narrow(Configurable):
        def __init__(self, params: Configurable.Params) -> None:
            super().__init__(params)

    class Failing(Configurable):
        def __init__(self, params: Configurable.Params) -> None:
            raise TypeError('of its own')

    with refuses(f'__init__ of {Forgetful.__qualname__} does not call that of its base class; '
                 'begin it with super().__init__(params)'):
        Forgetful.Params().instantiate()
    with refuses(f'__init__ of {Narrow.__qualname__} does not take what it is given (too many '
                 'positional arguments); write def __init__(self, params, path)'):
        Narrow.Params().instantiate('model/narrow')
    with pytest.raises(TypeError, match='^of its own$'):
        Failing.Params().instantiate()
