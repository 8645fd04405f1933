"""The front door: every name is there and explained, and TensorFlow waits until it is used."""
from __future__ import annotations

import ast
import inspect
import pathlib
import re
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import lingpipe as lp
from tests.docs.pages import blocks

NAMES = sorted(set(dir(lp)) - {'__version__'})


class Double(lp.Layer):
    """Multiplies by a number."""

    class Params(lp.Layer.Params):
        """The number."""
        factor: float = lp.field(lp.REQUIRED, 'What to multiply with.', least=0)

    def fprop(self, theta: lp.NestedMap, ctx: lp.Context, x: tf.Tensor) -> tf.Tensor:
        return x * self.params.factor

    def cost(self, x: tf.TensorSpec) -> lp.Cost:
        return lp.Cost(flops=x.shape.num_elements(), num_weights=0, outputs=x)


class Parity(lp.ArrayInput):
    """Examples of two random bits, and whether their sum is odd."""

    def load(self) -> dict[str, np.ndarray]:
        bits = np.random.default_rng(0).integers(0, 2, [64, 2])
        return {'x': bits.astype(np.float32), 'labels': (bits.sum(1) % 2).astype(np.int32)}


def test_the_front_door_has_all_that_a_layer_and_a_training_need() -> None:
    network = lp.Sequential.Params(name='model', layers=(
        Double.Params(name='double', factor=2.),
        lp.layers.Dense.Params(name='logits', input_dim=2, units=2),
        lp.layers.CrossEntropyLoss.Params(name='loss'))).instantiate()
    learner = lp.Learner.Params(
        optimizer=lp.optimizers.SGD.Params(),
        learning_rate=lp.learning_rates.Constant.Params(rate=0.1)).instantiate()
    source = Parity.Params(batch_size=16).instantiate()

    program = lp.Program(network, source.spec(),
                         lp.PipelineParams(num_cells=2, num_micro_batches=2), learner)
    losses = [float(program.train_step(batch, step)['loss'])
              for step, batch in zip(range(2), source.dataset(position=0), strict=False)]

    assert len(losses) == 2 and np.isfinite(losses).all()


def test_the_experiment_of_the_readme_imports_lingpipe_and_numpy_alone() -> None:
    """tests/docs/test_pages.py runs the experiment."""
    readme = pathlib.Path(__file__).resolve().parent.parent.parent / 'README.md'
    experiment, = [block.text for block in blocks(readme) if block.name == 'mine.py']
    imported = {ast.unparse(node) for node in ast.walk(ast.parse(experiment))
                if isinstance(node, ast.Import | ast.ImportFrom)}
    assert imported == {'import lingpipe as lp', 'import numpy as np'}

    namespace: dict[str, Any] = {'__name__': 'mine'}
    exec(experiment, namespace)
    plan = namespace['Mine'].params().instantiate().make_plan()
    assert len(plan.cells) == 3


@pytest.mark.parametrize('name', NAMES)
def test_every_name_is_there_and_explained(name: str) -> None:
    value = getattr(lp, name)
    has_text = inspect.isroutine(value) or isinstance(value, type | types.ModuleType)
    assert inspect.cleandoc((value if has_text else type(value)).__doc__ or '')
    assert re.search(rf'\b{name}\b', lp.__doc__ or ''), 'the docstring of lingpipe leaves it out'


def test_type_checkers_are_shown_the_same_names() -> None:
    tree = ast.parse(inspect.getsource(lp))
    block, = [node for node in tree.body if isinstance(node, ast.If)
              and ast.unparse(node.test) == 'TYPE_CHECKING']
    shown = {(node.module, alias.name) for node in block.body if isinstance(node, ast.ImportFrom)
             for alias in node.names if alias.name == alias.asname}

    assert {name for _, name in shown} == set(NAMES)
    for module, name in shown:
        here = getattr(sys.modules[str(module)], name, None)
        assert getattr(lp, name) is here, f'{name} is another one in {module}'


def test_a_name_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module lingpipe has no name 'Expermient'; see dir"):
        lp.Expermient   # type: ignore[attr-defined]  # noqa: B018


def printed_by(source: str, *flags: str) -> str:
    """Runs the source in a new Python process, and returns what it prints."""
    return subprocess.run([sys.executable, *flags, '-c', source], check=True, capture_output=True,
                          text=True).stdout


def test_importing_lingpipe_imports_none_of_its_modules() -> None:
    modules = printed_by("""if True:
        import sys
        before = set(sys.modules)
        import lingpipe
        dir(lingpipe)
        print(*sorted(set(sys.modules) - before))""").split()
    assert {'tensorflow', 'keras', 'numpy'}.isdisjoint(modules)
    assert [name for name in modules if name.startswith('lingpipe.')] == []


def test_params_need_no_tensorflow() -> None:
    assert printed_by("""if True:
        import sys
        import lingpipe as lp
        lp.Params, lp.field, lp.REQUIRED, lp.ParamsError
        print('tensorflow' in sys.modules)""") == 'False\n'


def test_without_tensorflow_the_error_has_the_remedy() -> None:
    folder = str(pathlib.Path(lp.__path__[0]).parent)
    error = printed_by(f"""if True:
        import sys
        sys.path.insert(0, {folder!r})
        import lingpipe as lp
        try:
            lp.Layer
        except ModuleNotFoundError as error:
            print(error)""", '-S')   # without site-packages
    assert error.startswith('TensorFlow is not installed')
