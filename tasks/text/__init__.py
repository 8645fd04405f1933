"""Text: language models, and what they read."""
