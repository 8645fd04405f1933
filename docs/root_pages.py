"""Makes pages of the documents that stand at the root of the project, where readers look for them.

mkdocs builds what is in one folder. pymdownx.snippets was tried: it includes files, but leaves
their links as they are.
"""
from __future__ import annotations

import pathlib

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {'README.md': 'index.md', 'CHANGELOG.md': 'changelog.md',
         'CONTRIBUTING.md': 'contributing.md', 'WORKSPACE.md': 'workspace.md'}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the pages; mkdocs calls this when it has listed the files of docs/."""
    root = pathlib.Path(config.config_file_path).parent
    for source, page in PAGES.items():
        text = (root / source).read_text(encoding='utf-8').replace('](docs/', '](')
        for other_source, other_page in PAGES.items():
            text = text.replace(f']({other_source})', f']({other_page})')
        files.append(File.generated(config, page, content=text))
    return files
