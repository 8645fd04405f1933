"""Errors name the nearest name, and of many names only the first."""
from __future__ import annotations

from lingpipe.wording.values import nearest


def test_the_nearest_name_is_asked_for() -> None:
    assert nearest('dens', ['dense', 'flatten']) == "did you mean 'dense'?"


def test_of_many_names_the_first_are_shown() -> None:
    """A network of Keras has hundreds of values, and an error listed them all."""
    assert nearest('x', ['kernel', 'bias'], 'there are') == 'there are kernel, bias'
    text = nearest('x', [f'layer_{number:03}' for number in range(240)])
    assert text.startswith('it has layer_000, layer_001, ')
    assert text.endswith('layer_039 and 200 more')
