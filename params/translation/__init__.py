"""Experiments on translation."""
