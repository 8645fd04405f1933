"""Fixtures of the tests of execution."""
from __future__ import annotations

import pytest

from lingpipe.pipeline.execution.compiled_pipeline import CompiledPipeline
from tests.support import two_cells


@pytest.fixture(scope='session')
def pipeline() -> CompiledPipeline:
    """Two cells, compiled once; a test that adds to its accumulators resets them."""
    return two_cells.make_pipeline()
