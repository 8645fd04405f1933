"""Reporting: what a person sees of a run: progress, summaries, the plan, a step's timeline."""
