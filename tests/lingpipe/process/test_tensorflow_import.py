"""TensorFlow's import is quiet unless it fails or somebody asks, and its absence has a remedy.

Each test runs a small package of its own in place of TensorFlow, whose import takes seconds.
"""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHATTER = "import os; os.write(2, b'a notice of a library\\n')\n"


def run(tmp_path, tensorflow: str | None, code: str, **environment: str) -> tuple[int, str]:
    """Returns the exit code and stderr of `code`.

    It runs in a process where TensorFlow has the given source, or is missing.
    """
    if tensorflow is not None:
        (tmp_path / 'tensorflow').mkdir()
        (tmp_path / 'tensorflow' / '__init__.py').write_text(tensorflow)
    # -S leaves out site-packages. lingpipe is there as it is installed, and absl is what the
    # trainer itself needs.
    (tmp_path / 'lingpipe').mkdir()
    for path in [*(ROOT / 'lingpipe').iterdir(),
                 *(ROOT / folder for folder in ('params', 'tasks', 'tools'))]:
        (tmp_path / 'lingpipe' / path.name).symlink_to(path)
    (tmp_path / 'absl').symlink_to(pathlib.Path(sys.modules['absl'].__path__[0]))
    variables = {name: value
                 for name, value in os.environ.items() if name != 'TF_CPP_MIN_LOG_LEVEL'}
    done = subprocess.run(
        [sys.executable, '-S', '-c', code], capture_output=True, text=True, timeout=60,
        env={**variables, 'PYTHONPATH': str(tmp_path), **environment}, cwd=tmp_path)
    return done.returncode, done.stderr


def test_a_successful_import_writes_nothing(tmp_path):
    code = ('from lingpipe.process import tensorflow_import as t; t.quiet(); t.check_installed(); '
            'import tensorflow, os\n')
    assert run(tmp_path, CHATTER, code + "os.write(2, b'after\\n')") == (0, 'after\n')


def test_a_failed_import_shows_what_was_held_back(tmp_path):
    code = ('from lingpipe.process import tensorflow_import\ntensorflow_import.quiet()\n'
            'import tensorflow\n')
    returncode, err = run(tmp_path, CHATTER + "raise ImportError('libcudart is missing')", code)
    assert returncode == 1
    assert err.startswith('a notice of a library\n')
    assert err.endswith('ImportError: libcudart is missing\n')


def test_a_crash_during_the_import_shows_where(tmp_path):
    code = ('from lingpipe.process import tensorflow_import\ntensorflow_import.quiet()\n'
            'import tensorflow\n')
    returncode, err = run(tmp_path, 'import os; os.abort()', code)
    assert returncode == -6
    assert 'Fatal Python error: Aborted' in err and 'tensorflow/__init__.py' in err


@pytest.mark.parametrize('is_own_process, err', [(True, 'no pictures\n'), (False, '')])
def test_only_a_notebook_lets_keras_import_matplotlib(tmp_path, is_own_process, err):
    (tmp_path / 'matplotlib.py').touch()
    keras = ('try:\n    import matplotlib\nexcept ImportError:\n    has_pictures = False\n'
             'else:\n    has_pictures = True\n')
    code = ('from lingpipe.process import tensorflow_import\n'
            f'tensorflow_import.quiet({is_own_process})\n'
            'import os, tensorflow, matplotlib\n'
            "os.write(2, b'' if tensorflow.has_pictures else b'no pictures\\n')\n")
    assert run(tmp_path, keras, code) == (0, err)


@pytest.mark.parametrize('ending', ['', 'raise ImportError'])
def test_garbage_is_not_collected_during_the_import_and_is_afterwards(tmp_path, ending):
    code = ('from lingpipe.process import tensorflow_import\ntensorflow_import.quiet()\n'
            'import contextlib, gc\n'
            'with contextlib.suppress(ImportError):\n    import tensorflow\n'
            'assert gc.isenabled()\n')
    assert run(tmp_path, f'import gc\nassert not gc.isenabled()\n{ending}', code) == (0, '')


@pytest.mark.parametrize('level, err',
                         [('0', 'a notice of a library\n'), ('1', 'a notice of a library\n'),
                          ('2', ''), ('3', '')])
def test_the_environment_may_ask_for_the_messages(tmp_path, level, err):
    code = ('from lingpipe.process import tensorflow_import\ntensorflow_import.quiet()\n'
            'import tensorflow\n')
    assert run(tmp_path, CHATTER, code, TF_CPP_MIN_LOG_LEVEL=level) == (0, err)


@pytest.mark.parametrize('module', ['lingpipe.trainer', 'lingpipe.tools.show_schedule'])
def test_a_missing_tensorflow_is_one_sentence_with_the_remedy(tmp_path, module):
    code = (f"import runpy, sys\nsys.argv = ['x', '--model=image.digits.Dense']\n"
            f"runpy.run_module('{module}', run_name='__main__')")
    returncode, err = run(tmp_path, None, code)
    assert returncode == 1
    assert err == (f"{'trainer' if 'trainer' in module else 'tools'}: TensorFlow is not installed, "
                   "and lingpipe does not choose one of its builds; run pip install "
                   "tensorflow-cpu, or pip install 'tensorflow[and-cuda]' for NVIDIA GPUs.\n")
