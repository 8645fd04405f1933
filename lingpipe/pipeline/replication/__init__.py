"""Replication: several pipelines side by side, whose weights stay equal."""
