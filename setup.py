"""Installs lingpipe, with the folders params, tasks and tools as lingpipe.params, lingpipe.tasks and lingpipe.tools.

Names below lingpipe cannot collide with a user's own folders.

TensorFlow's builds exclude each other, so an extra chooses one: pip install -e '.[cpu]' or '.[gpu]'.
"""
import setuptools

TRANSLATION = [
    'sacrebleu>=2.4',        # BLEU and chrF; 2.4 is the oldest that was tried
    'sentencepiece>=0.2.0',  # vocabularies; 0.2.0 is the oldest that was tried
]

FOLDERS = ['params', 'tasks', 'tools']   # beside lingpipe/, installed below it: lingpipe.params and so on

setuptools.setup(
    name='lingpipe',
    version='0.1.0',
    description='Trains giant neural networks by pipeline parallelism, on TensorFlow.',
    license='Apache-2.0',
    python_requires='>=3.11',
    package_dir={'lingpipe': 'lingpipe', **{f'lingpipe.{folder}': folder for folder in FOLDERS}},
    packages=[
        *setuptools.find_packages(include=['lingpipe', 'lingpipe.*']),
        *(f'lingpipe.{name}' for folder in FOLDERS for name in setuptools.find_packages(include=[folder, f'{folder}.*'])),
    ],
    package_data={'lingpipe.tasks.image': ['data/*']},
    install_requires=[
        'absl-py>=2.0',                  # flags and logging
        'google-crc32c>=1.5',            # checksums of TFRecord files; 1.5 is the first with wheels for Python 3.11
        'grpcio>=1.60',                  # asks workers whether they are there; TensorFlow needs it anyway
        'importlib_resources>=6.0',      # tensorflow-datasets imports it without requiring it
        'matplotlib>=3.8',               # pictures of timelines and partitions
        'numpy>=1.26',                   # data in memory
        'protobuf>=4.22',                # messages to workers; 4.22 has GetMessageClass; TensorFlow needs it anyway
        'rich>=13.0',                    # tables and progress
        'tensorboard>=2.18',             # reads the summaries
        'tensorflow-datasets>=4.9.7',    # data; imported only when an input asks for it
    ],
    extras_require={
        'cpu': ['tensorflow-cpu>=2.18'],             # 2.18 is the first that runs with NumPy 2
        'docs': [
            'mkdocs>=1.6',                # pages of Markdown; 1.6 is the first that checks anchors
            'mkdocstrings[python]>=1.0',  # the reference, from docstrings; 1.0 is the oldest that was tried
        ],
        'gpu': ['tensorflow[and-cuda]>=2.18'],
        'test': ['hypothesis>=6.100', 'kubernetes-validate>=1.31', 'mypy>=1.10', 'pytest>=8.0', 'pytest-xdist>=3.5', 'pyyaml>=6.0',
                 'ruff>=0.5', *TRANSLATION],
        'translation': TRANSLATION,
    },
)
