"""Installs lingpipe, with params, tasks and tools below it, as lingpipe.params and so on.

Names below lingpipe cannot collide with a user's own folders.

TensorFlow's builds exclude each other, so an extra chooses one: '.[cpu]', or '.[gpu]'.
"""
import pathlib
import re

import setuptools

HERE = pathlib.Path(__file__).parent
FRONT_DOOR = (HERE / 'lingpipe/__init__.py').read_text(encoding='utf-8')
VERSION, = re.findall(r"^__version__ = '(.+?)'", FRONT_DOOR, re.MULTILINE)

ONNX = ['tf2onnx>=1.17']              # exports for ONNX runtimes; the oldest that was tried
SAFETENSORS = ['safetensors>=0.8']    # weights for other programs; likewise
HUGGING_FACE = [
    *SAFETENSORS,
    'jinja2>=3.1.6',         # chat templates, which come with models; the sandbox of older ones
                             # can be left
    'tokenizers>=0.20',      # vocabularies of Hugging Face; the first with encode_batch_fast
]
TFDS = [
    'importlib_resources>=6.0',      # tensorflow-datasets imports it without requiring it
    'tensorflow-datasets>=4.9.7',    # its data sets; imported only when an input asks for one
]
TRANSLATION = [
    'sacrebleu>=2.4',        # BLEU and chrF; 2.4 is the oldest that was tried
    'sentencepiece>=0.2.1',  # vocabularies; 0.2.0 crashes in training beside TensorFlow 2.18
]

FOLDERS = ['params', 'tasks', 'tools']   # beside lingpipe/, installed below it

setuptools.setup(
    name='lingpipe',
    version=VERSION,
    description='Trains giant neural networks by pipeline parallelism, on TensorFlow.',
    long_description=(HERE / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    classifiers=[
        'Development Status :: 4 - Beta',
        'Intended Audience :: Science/Research',
        'Operating System :: POSIX :: Linux',
        'Programming Language :: Python :: 3.11',
        'Programming Language :: Python :: 3.12',
        'Programming Language :: Python :: 3.13',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
        'Typing :: Typed',
    ],
    python_requires='>=3.11',
    package_dir={'lingpipe': 'lingpipe', **{f'lingpipe.{folder}': folder for folder in FOLDERS}},
    packages=[
        *setuptools.find_packages(include=['lingpipe', 'lingpipe.*']),
        *(f'lingpipe.{name}' for folder in FOLDERS
          for name in setuptools.find_packages(include=[folder, f'{folder}.*'])),
    ],
    package_data={'lingpipe': ['py.typed'], 'lingpipe.tasks.image': ['data/*']},
    entry_points={
        'console_scripts': [
            'lingpipe-train = lingpipe.trainer:train_script',
            'lingpipe-inspect = lingpipe.trainer:inspect_script',
            'lingpipe-tools = lingpipe.tools.__main__:script',
        ],
    },
    install_requires=[
        'absl-py>=2.0',                  # flags and logging
        'google-crc32c>=1.5',            # checksums of TFRecord files; the first for Python 3.11
        'grpcio>=1.60',                  # asks workers whether they are there; as TensorFlow does
        'matplotlib>=3.8',               # pictures of timelines and partitions
        'numpy>=1.26',                   # data in memory
        'protobuf>=4.22',                # messages to workers; the first with GetMessageClass
        'rich>=13.0',                    # tables and progress
        'tensorboard>=2.20',             # reads the summaries; as TensorFlow
    ],
    extras_require={
        'cpu': ['tensorflow-cpu>=2.20'],             # older ones hold Python's lock while they
                                                     # wait for the device of a value, so that a
                                                     # worker that hangs then is not found
        'docs': [
            'mkdocs>=1.6',                  # pages of Markdown; 1.6 checks anchors
            'mkdocstrings[python]>=1.0.7',  # the reference, from docstrings; 1.0.6 fails with
                                            # today's pymdown-extensions
        ],
        'gpu': ['tensorflow[and-cuda]>=2.20'],       # as above, with NVIDIA's libraries
        'hugging_face': HUGGING_FACE,
        'onnx': ONNX,
        'peft': SAFETENSORS,
        'safetensors': SAFETENSORS,
        'test': [
            'hypothesis>=6.100',          # examples that are found, not chosen
            'kubernetes-validate>=1.31',  # whether the launcher's file is valid
            'mypy>=1.10',                 # types
            'onnxruntime>=1.20',          # runs what was exported
            'pytest>=9.0',                # runs the tests; 9.0 is the first that ends what hangs
            'pytest-xdist>=3.5',          # runs them on several processes
            'pyyaml>=6.0',                # reads the launcher's file
            'ruff>=0.5',                  # style
            'setuptools>=68',             # tests of setup.py; as pyproject.toml has it
            *HUGGING_FACE,
            *ONNX,
            *TFDS,
            *TRANSLATION,
        ],
        'tfds': TFDS,
        'translation': TRANSLATION,
    },
)
