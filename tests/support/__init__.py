"""Helpers that tests share: processes, experiments, networks and comparisons, but no tests."""
