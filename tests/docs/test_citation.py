"""CITATION.cff is of this version."""
import yaml

import lingpipe
from tests.docs.pages import ROOT


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text(encoding='utf-8'))
    assert citation['version'] == lingpipe.__version__
