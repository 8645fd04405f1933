"""Helpers that tests share: processes, experiments, networks and comparisons. No test is here."""
