"""The house: imports go down the floors of WORKSPACE.md, and pure files stay free of TensorFlow."""
from __future__ import annotations

import ast
import functools
import graphlib
import pathlib
from collections.abc import Mapping, Sequence, Set

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The floors of lingpipe/, the lowest first. They list folders, and files if a folder has rooms on
# several floors. A file imports only from floors below its own, or from its own room. The longest
# name that fits a file says where it is.
FLOORS = [
    ['wording'],
    ['process', 'hyperparams', 'layers/nested', 'layers/cost', 'layers/context',
     'layers/static_shapes', 'layers/weight', 'layers/layer_traits'],
    ['layers/wired_function'],
    ['layers/decoded_function'],
    ['cluster', 'layers/base', 'learning'],
    ['pricing', 'checkpoint', 'input'],
    ['layers'],
    ['keras_models'],
    ['pipeline', 'pipeline/planning'],
    ['pipeline/execution'],
    ['pipeline/replication'],
    ['pipeline/execution/compiled_shape', 'pipeline/execution/trained_replicas'],
    ['pipeline/execution/training_graph'],
    ['pipeline/execution/built_steps', 'pipeline/execution/readiness'],
    ['pipeline/execution/program_steps'],
    ['pipeline/execution/program'],
    ['pipeline/decoding', 'export'],
    ['training/site', 'training/train_params', 'training/initialize_from', 'training/problem',
     'training/reporting', 'training/step_counts', 'training/timed_steps',
     'training/evaluation_log', 'training/experiment_class', 'training/loop_options'],
    ['training/hooks'],
    ['training/experiment', 'training/evaluation', 'training/best_checkpoint',
     'training/skipped_steps', 'training/experiment_modules'],
    ['training/outcome', 'training/remedy', 'training/resumption', 'training/training_batches'],
    ['training/saved_state', 'training/run', 'training/newest_checkpoint'],
    ['training/given_examples', 'training/slow_steps'],
    ['training/predictions'],
    ['training/run_evaluations', 'training/steps', 'training/recorded_params',
     'training/traced_network', 'training/announced_checkpoints'],
    ['training/loop'],
    ['training', 'training/registry', 'training/logdir', 'training/logdir_lock'],
    ['commands/run_options', 'commands/elastic'],
    ['commands/plan_freedom', 'commands/device_setup'],
    ['commands/chosen_plan', 'commands/recovery'],
    ['commands/experiment_params'],
    ['api'],
    ['commands'],
    ['trainer'],
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

TOP = {'lingpipe': {'lingpipe'}, 'tasks': {'tasks', 'lingpipe'},
       'params': {'params', 'tasks', 'lingpipe'}, 'tools': {'tools', 'params', 'tasks', 'lingpipe'}}


@functools.cache
def nodes_of(path: pathlib.Path) -> tuple[ast.AST, ...]:
    """Returns all nodes of a file's syntax tree, the module first."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding='utf-8'))))


def imported(path: pathlib.Path) -> set[str]:
    """Returns the dotted names of all modules that a file imports at run time."""
    for_types = {id(child)
                 for node in nodes_of(path)
                 if isinstance(node, ast.If) and 'TYPE_CHECKING' in ast.unparse(node.test)
                 for child in ast.walk(node)}
    names = set()
    for node in nodes_of(path):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f'{node.module}.{alias.name}' for alias in node.names}
    return names


FILES = sorted(p for top in TOP for p in (ROOT / top).rglob('*.py'))


def room_of(parts: Sequence[str]) -> str:
    """Returns the room of a module of lingpipe; '' is the front door.

    The module is given by the parts of its name or path below lingpipe/.
    """
    names = ['/'.join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((name for name in names if name in FLOOR_OF), '')


# There is a test for each folder: one for each of 500 files would take seconds more.
FOLDERS = sorted({path.parent for path in FILES})


def check_that_imports_go_down(path: pathlib.Path) -> None:
    folder, *parts = path.relative_to(ROOT).with_suffix('').parts
    mine = room_of(parts)
    for name in imported(path):
        top, *rest = name.split('.')
        if top != 'lingpipe':
            assert top not in TOP, f'{path} imports {name}; write lingpipe.{name}'
            continue
        if rest and rest[0] in TOP:   # A top-level folder, installed below lingpipe.
            top, *rest = rest
        assert top in TOP[folder], (f'{path} imports {name}: {folder}/ may import only '
                                    f'{sorted(TOP[folder])}')
        other = room_of(rest)
        if folder == 'lingpipe' and mine and other and other != mine:
            is_down = FLOOR_OF[other] < FLOOR_OF[mine]
            assert is_down, (f'{path} on floor {FLOOR_OF[mine]} imports {name} on floor '
                             f'{FLOOR_OF[other]}')


@pytest.mark.parametrize('folder', FOLDERS, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(folder):
    for path in sorted(folder.glob('*.py')):
        check_that_imports_go_down(path)


def test_every_file_has_a_floor():
    for path in (ROOT / 'lingpipe').rglob('*.py'):
        parts = path.relative_to(ROOT / 'lingpipe').with_suffix('').parts
        assert parts == ('__init__',) or room_of(parts), f'{path} is on no floor'


def test_nothing_is_loose_in_the_root():
    assert {path.name for path in (ROOT / 'lingpipe').glob('*.py')} == {'__init__.py', 'trainer.py'}


@pytest.mark.parametrize(
    'name',
    ['layers/nested', 'layers/cost', 'process/error_text', 'wording/values', 'wording/keras_words',
     *sorted(f'hyperparams/{p.stem}' for p in (ROOT / 'lingpipe/hyperparams').glob('*.py')),
     *sorted(f'pipeline/planning/{name}' for name in (
         'allowed_cells', 'dependencies', 'drawing', 'fitting_partition', 'forecast', 'layer_times',
         'memory_limit', 'hardware', 'partition', 'partitioner', 'pipeline_params', 'placement',
         'schedules', 'search_space', 'shared_devices', 'shared_threads', 'simulator', 'units',
         'validation'))])
def test_pure_files_import_no_tensorflow(name):
    assert not any(i.split('.')[0] in ('tensorflow', 'keras')
                   for i in imported(ROOT / 'lingpipe' / f'{name}.py'))


def test_the_project_names_no_path_outside_it():
    for path in FILES:
        assert '/work/' not in path.read_text(encoding='utf-8'), path


# Circles. Imports for the type checker and those inside functions count: who reads one module of a
# circle has to read all of them.


def module_of(path: pathlib.Path) -> str:
    """Returns the dotted name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix('').parts
    below = parts if parts[0] == 'lingpipe' else ('lingpipe', *parts)
    return '.'.join(below).removesuffix('.__init__')


def import_graph() -> dict[str, set[str]]:
    """Maps each module to the modules that it imports anywhere in its file."""
    modules = {module_of(path): path for path in FILES}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        graph[name] = set()
        for node in nodes_of(path):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names} & modules.keys()
            elif isinstance(node, ast.ImportFrom):
                assert node.module and not node.level, f'{path}: write the whole name of a module'
                inner = {f'{node.module}.{alias.name}' for alias in node.names}
                graph[name] |= inner & modules.keys()
                if not inner <= modules.keys():
                    graph[name] |= {node.module} & modules.keys()
    return graph


def circle_of(graph: Mapping[str, Set[str]]) -> list[str]:
    """Returns the modules of one circle, or [] if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1][::-1]   # Each imports the next.
    return []


def test_no_imports_form_a_circle() -> None:
    circle = circle_of(import_graph())
    assert circle == [], f'these import each other: {" -> ".join(circle)}'


def test_a_circle_would_be_found() -> None:
    assert set(circle_of({'a': {'b'}, 'b': {'c'}, 'c': {'a'}, 'd': {'a'}})) == {'a', 'b', 'c'}


# Names with an underscore belong to their module.

PUBLIC_ALL_THE_SAME = {'_exit', '_replace', '_asdict'}   # Documented, of os and named tuples.

# (module, name): a name of a library that has no public one for it, with what it is needed for.
OF_LIBRARIES = {
    ('lingpipe.input.unseeded', '_inputs'): 'TensorFlow: what a dataset is made of',
    ('lingpipe.input.unseeded', '_seed'): 'TensorFlow: the seed of a shuffle',
    ('lingpipe.input.unseeded', '_seed2'): 'TensorFlow: its other half',
    ('lingpipe.keras_models.conversion', '_keras_history'): 'Keras: what made a symbolic tensor',
    ('lingpipe.keras_models.graph', '_functional'): 'Keras: the graph of a Sequential',
    ('lingpipe.keras_models.graph', '_inbound_nodes'): 'Keras: the calls of a layer',
    ('lingpipe.keras_models.graph', '_keras_history'): 'Keras: what made a symbolic tensor',
    ('lingpipe.keras_models.compiled', '_compile_config'): 'Keras: the losses that compile has',
    ('lingpipe.keras_models.compiled_learner', '_exclude_from_weight_decay'): 'Keras: weights',
    ('lingpipe.keras_models.compiled_learner', '_exclude_from_weight_decay_pattern'):
        'Keras: their names',
    ('lingpipe.keras_models.compiled', '_keras_mask'): 'Keras: whether one has a mask',
    ('lingpipe.keras_models.compiled_learner', '_keras_mask'): 'Keras: whether one has a mask',
    ('lingpipe.keras_models.lost_masks', '_keras_mask'): 'Keras: whether one has a mask',
    ('lingpipe.keras_models.keras_loss', '_keras_mask'): 'Keras: what ignore_class leaves out',
    ('lingpipe.keras_models.keras_loss', '_fn'): 'Keras: the function of a metric that is a mean',
    ('lingpipe.keras_models.keras_loss', '_fn_kwargs'): 'Keras: what that function is given',
    ('lingpipe.keras_models.keras_loss', '_keras_logits'): 'Keras: of what a tensor is a softmax',
    ('lingpipe.layers.keras_call', '_keras_logits'): 'Keras: of what a tensor is a softmax',
    ('lingpipe.layers.keras_building', '_flatten_layers'): 'Keras: all layers in a layer',
    ('lingpipe.layers.keras_initial_values', '_initializer'): "Keras: its initial values",
    ('lingpipe.layers.keras_call', '_keras_mask'): 'Keras: where a tensor has its mask',
    ('lingpipe.layers.keras_state', '_moments'): 'Keras: moments as BatchNormalization has them',
    ('lingpipe.learning.pool_gradients', '_update_input'): 'TensorFlow: the inputs of a made op',
    ('lingpipe.learning.program_order', '_add_control_input'): 'TensorFlow: an order of made ops',
    ('lingpipe.learning.optimizer', '_backend_update_step'): 'Keras: what Nadam keeps of a step',
    ('lingpipe.pipeline.execution.renewal', '_handle'): 'TensorFlow: the handle of a variable',
    ('lingpipe.pipeline.execution.renewal', '_handle_data'): 'TensorFlow: the shape behind it',
    ('lingpipe.pipeline.execution.task_call', '_create_op_internal'):
        'TensorFlow: adds an op to a graph',
    ('lingpipe.pipeline.execution.task_call', '_set_device'): 'TensorFlow: the device of an op',
    ('lingpipe.pricing.ops', '_get_function'): 'TensorFlow: the function that an op calls',
    ('lingpipe.process.graph_lifetime', '_registry'): 'TensorFlow: gradients by name',
    ('lingpipe.training.experiment_class', '_initializing'):
        'Python: whether a module is being imported',
}


def is_private(name: object) -> bool:
    return (isinstance(name, str) and name.startswith('_') and not name.endswith('__')
            and name not in PUBLIC_ALL_THE_SAME)


def is_self(node: ast.expr) -> bool:
    return ast.unparse(node) in ('self', 'cls', 'super()')


def members_of(nodes: Sequence[ast.AST]) -> set[str]:
    """Returns the names that the classes of a file define or give to their objects."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef):
                    names.add(statement.name)
                else:
                    names |= {child.id for child in ast.walk(statement)
                              if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)}
        elif (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                and is_self(node.value)):
            names.add(node.attr)
    return names


def private_names_of_others(nodes: Sequence[ast.AST]) -> set[str]:
    """Returns names with an underscore that a file takes from other modules or their objects."""
    taken = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            taken |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            if is_private(node.attr) and not is_self(node.value):
                taken.add(node.attr)
        elif (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                and node.func.id in ('getattr', 'setattr', 'hasattr')):
            taken |= {argument.value for argument in node.args[1:2]
                      if isinstance(argument, ast.Constant)}
    private = {name for name in taken if is_private(name)}
    return private - members_of(nodes) if private else private


def test_private_names_are_found() -> None:
    tree = ast.parse('''
from other import _function, public
import other

class Mine:
    _member = 1

    def __eq__(self, mine):
        return (self._inherited, mine._member, mine._replace(), getattr(mine, '_text')
                , mine.__dict__) == other._thing._member
''')
    assert private_names_of_others(tuple(ast.walk(tree))) == {'_function', '_text', '_thing'}


@pytest.mark.parametrize('folder', FOLDERS, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_reaches_for_a_private_name_of_another(folder: pathlib.Path) -> None:
    for path in sorted(folder.glob('*.py')):
        allowed = {name for module, name in OF_LIBRARIES if module == module_of(path)}
        taken = private_names_of_others(nodes_of(path))
        assert taken - allowed == set(), f'{path} takes these; give them a public name'
        assert allowed - taken == set(), (
            f'{path} no longer takes these; take them from OF_LIBRARIES')


def test_libraries_private_names_are_taken_in_files_that_exist() -> None:
    assert {module for module, _ in OF_LIBRARIES} <= {module_of(path) for path in FILES}
