"""Grids of schedules, as tests draw them."""


def draw(text):
    return '\n'.join(line.strip() for line in text.strip().splitlines())
