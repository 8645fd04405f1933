"""The registry: names come from places, and errors name the nearest name or the broken module."""
import sys
import textwrap

import pytest

from lingpipe.training import experiment_class, experiment_modules, registry

GOOD = '''
from lingpipe.training.experiment import Experiment
from lingpipe.training.registry import register

@register
class {name}:
    """Trains {name}.

    More.
    """
    @classmethod
    def params(cls):
        return Experiment.Params(seed=7)
'''


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Puts an empty package `params` first on the path."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(experiment_modules, 'ROOT', 'params')
    for name in list(sys.modules):
        if name == 'params' or name.startswith(('params.', 'mypkg')):
            monkeypatch.delitem(sys.modules, name)
    write(tmp_path, 'params/__init__.py', '')
    yield tmp_path
    for name in list(sys.modules):
        if name == 'params' or name.startswith(('params.', 'mypkg')):
            del sys.modules[name]


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_class_in_params_is_named_by_its_place_below_params(root):
    write(root, 'params/image/__init__.py', '')
    write(root, 'params/image/digits.py', GOOD.format(name='AmoebaNet'))
    assert experiment_modules.all_names() == ['image.digits.AmoebaNet']
    assert registry.get('image.digits.AmoebaNet').seed == 7


def test_class_elsewhere_is_named_by_its_whole_name_and_not_listed(root):
    write(root, 'mypkg/exps.py', GOOD.format(name='Foo'))
    assert registry.get('mypkg.exps.Foo').seed == 7
    assert experiment_modules.all_names() == []


def test_imported_class_and_unregistered_subclass_are_not_listed(root):
    write(root, 'params/a.py', GOOD.format(name='Foo'))
    write(root, 'params/b.py', 'from params.a import Foo\nclass Bar(Foo):\n    """Bar."""\n')
    assert experiment_modules.all_names() == ['a.Foo']
    with pytest.raises(ValueError, match=r'params\.b\.Bar is a class but not a registered '
                                         r'experiment; put @register above it\.'):
        registry.get('b.Bar')


def test_params_may_be_a_plain_method(root):
    write(root, 'params/a.py', GOOD.format(name='Foo').replace('    @classmethod\n', ''))
    assert registry.get('a.Foo').seed == 7


def test_summary_is_the_first_line_of_the_docstring(root):
    write(root, 'params/a.py', GOOD.format(name='Foo'))
    assert experiment_class.summary(registry.find('a.Foo')) == 'Trains Foo.'


def test_unknown_name_says_the_nearest(root):
    write(root, 'params/a.py', GOOD.format(name='AmoebaNet'))
    with pytest.raises(ValueError,
                       match=r"there is no experiment 'a\.AmobaNet'; did you mean a\.AmoebaNet\?"):
        registry.get('a.AmobaNet')
    with pytest.raises(ValueError,
                       match=r"there is no experiment 'AmoebaNet'; did you mean a\.AmoebaNet\?"):
        registry.get('AmoebaNet')


def test_unknown_name_in_a_module_of_ones_own_says_the_nearest_there(root):
    write(root, 'mine.py', GOOD.format(name='Own'))
    with pytest.raises(ValueError,
                       match=r"there is no experiment 'mine\.Onw'; did you mean mine\.Own\?$"):
        registry.get('mine.Onw')


def test_name_used_twice_is_refused(root):
    write(root, 'params/a.py', GOOD.format(name='Foo') * 2)
    with pytest.raises(ValueError,
                       match=r'two experiments are named params\.a\.Foo; rename one of them\.'):
        registry.get('a.Foo')


def test_broken_module_is_reported_with_its_name_and_the_others_are_found(root):
    write(root, 'params/a.py', GOOD.format(name='Foo'))
    write(root, 'params/bad.py', 'import no_such_module')
    found, broken = experiment_modules.find_all()
    assert list(found) == ['a.Foo']
    assert broken == {'params.bad': "No module named 'no_such_module'"}
    with pytest.raises(ValueError,
                       match=r"params\.bad cannot be imported: No module named 'no_such_module'"):
        experiment_modules.all_names()


@pytest.mark.parametrize('change, error', [
    (('"""Trains Foo.\n\n    More.\n    """', ''), r'Foo has no docstring; say what it trains'),
    (('def params', 'def parms'),
     r'Foo has no method params; write @classmethod def params\(cls\)'),
    (('(cls)', '(cls, size)'), r'params needs the arguments size; it is called without any'),
    (('return Experiment.Params(seed=7)', 'return 7'),
     r'a\.Foo\.params\(\) returns int, not Experiment\.Params'),
    (('return Experiment.Params(seed=7)', "return {}['x']"),
     r"^a\.Foo\.params\(\) fails: KeyError: 'x'; correct that method\.$"),
    (('return Experiment.Params(seed=7)', "raise ValueError('a name is wrong.')"),
     r'^a\.Foo\.params\(\) fails: a name is wrong; correct that method\.$'),
    (('seed=7', 'sed=7'),
     r"^a\.Foo\.params\(\) fails: sed does not exist: .*; correct that method\.$"),
])
def test_class_that_is_no_experiment_is_refused(root, change, error):
    write(root, 'params/a.py', GOOD.format(name='Foo').replace(*change))
    with pytest.raises(ValueError, match=error):
        registry.get('a.Foo')


# Other packages, installed as pip installs them.

def install(root, name, entry_points, modules):
    """Writes a package with its modules, and metadata with its entry points."""
    for path, text in modules.items():
        write(root, path, text)
    folder = f'{name}-1.0.dist-info'
    write(root, f'{folder}/METADATA', f'Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n')
    write(root, f'{folder}/entry_points.txt',
          f'[lingpipe.experiments]\n{textwrap.dedent(entry_points)}\n')


def test_experiments_of_an_installed_package_are_listed_and_found(root):
    write(root, 'params/a.py', GOOD.format(name='Foo'))
    install(root, 'robots', 'robots = mypkg_robots.experiments', {
        'mypkg_robots/__init__.py': '',
        'mypkg_robots/experiments/__init__.py': GOOD.format(name='Walk'),
        'mypkg_robots/experiments/arms.py': GOOD.format(name='Reach')})
    found, broken = experiment_modules.find_all()
    assert list(found) == ['a.Foo', 'mypkg_robots.experiments.Walk',
                           'mypkg_robots.experiments.arms.Reach']
    assert broken == {}
    assert experiment_modules.all_names() == ['a.Foo']
    assert registry.get('mypkg_robots.experiments.arms.Reach').seed == 7
    with pytest.raises(ValueError, match=r'did you mean mypkg_robots\.experiments\.arms\.Reach\?'):
        registry.get('Reach')


def test_a_broken_entry_point_says_whose_it_is_and_hides_no_other(root):
    install(root, 'robots', """\
        fails = mypkg_fails
        is_not_there = mypkg_gone.experiments
        is_a_class = mypkg_good:Reach
        good = mypkg_good""", {
        'mypkg_good.py': GOOD.format(name='Reach'), 'mypkg_fails.py': '1 / 0'})
    found, broken = experiment_modules.find_all()
    assert list(found) == ['mypkg_good.Reach']
    whose = 'of the package robots)'
    assert broken == {
        f"'mypkg_fails' (entry point fails {whose}": 'division by zero',
        f"'mypkg_gone.experiments' (entry point is_not_there {whose}":
            "there is no module 'mypkg_gone.experiments'",
        f"'mypkg_good:Reach' (entry point is_a_class {whose}":
            "it must be a module; write 'mypkg_good'"}
