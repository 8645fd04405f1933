"""Translation: the Transformer and what it reads."""
