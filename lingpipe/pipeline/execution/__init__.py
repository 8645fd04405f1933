"""Execution: cells traced and cut into tasks, the graph of a step, and the update."""
