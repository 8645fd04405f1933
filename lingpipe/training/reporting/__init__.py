"""Reporting: what a person sees of a run: progress, summaries, the table of the plan and the timeline of a step."""
