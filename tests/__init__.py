"""Tests of lingpipe; tests/support has what they share."""
