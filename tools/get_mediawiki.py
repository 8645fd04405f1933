"""Fetches MediaWiki's messages in 500 languages, for lingpipe.tools.build_corpus.

    python -m lingpipe.tools.get_mediawiki --output=/tmp/mediawiki
    python -m lingpipe.tools.get_mediawiki --output=/tmp/mediawiki --package=FILE.deb

The messages are in Debian's package, which is not installed. On Debian and Ubuntu, the first
command gets it by `apt-get download mediawiki`. Elsewhere, download FILE.deb from
packages.debian.org/mediawiki.

The messages are under GPL-2+. They are for training on your machine: do not put them into a
repository with another licence.
"""
from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import tempfile

from lingpipe.tasks.translation.corpus.mediawiki import unpack
from lingpipe.tools import parser
from lingpipe.tools.command_line import command
from lingpipe.wording.counts import counted

PAGE = 'https://packages.debian.org/mediawiki'


def download(folder: str) -> str:
    """Fetches the package into the folder, and returns its path.

    Raises:
      ValueError: there is no apt-get, or it failed.
    """
    if not shutil.which('apt-get'):
        raise ValueError(f'there is no apt-get here; download the package from {PAGE} and name it '
                         'by --package.')
    done = subprocess.run(['apt-get', 'download', 'mediawiki'], cwd=folder, capture_output=True,
                          text=True, check=False)
    packages = glob.glob(os.path.join(folder, 'mediawiki_*.deb'))
    if done.returncode or not packages:
        why = (done.stderr.strip().splitlines() or ['no package came'])[-1]
        raise ValueError(f'apt-get download mediawiki failed ({why}); run apt-get update first, or '
                         f'download it from {PAGE} and name it by --package.')
    return packages[0]


@command
def main(argv: list[str] | None = None) -> None:
    """Fetches and unpacks the package, and prints the number of files."""
    p = parser('get_mediawiki', __doc__)
    p.add_output_folder('--output', 'folder that gets the i18n folders')
    p.add_argument('--package', default='', help='a .deb that is there already')
    p.add_argument('--json', action='store_true', help='print one JSON object')
    args = p.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)   # apt's own user writes there
        count = unpack(args.package or download(folder), args.output)
    if args.json:
        print(json.dumps({'output': args.output, 'files': count}))
    else:
        print(f'{counted(count, "file")} in {args.output} (GPL-2+); next: '
              f'python -m lingpipe.tools.build_corpus --mediawiki={args.output} --output=CORPUS')


if __name__ == '__main__':
    main()
