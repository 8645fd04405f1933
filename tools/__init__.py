"""Command-line tools: python -m tools.NAME --help."""
