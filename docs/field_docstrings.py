"""Gives fields of Params their description as a docstring, for the reference.

griffe, which reads the code for the reference, knows docstrings only, and a field says what it is
in its declaration:

    units: int = field(REQUIRED, 'Number of output channels.', least=1)
"""
from __future__ import annotations

import ast
from typing import Any

import griffe


class FieldDocstrings(griffe.Extension):
    """Gives field(default, 'description', bounds) a docstring, with its default and bounds."""

    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Called for every assignment of a module or class."""
        call = getattr(node, 'value', None)
        is_field = (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
                    and call.func.id == 'field' and call.args)
        if not is_field:   # also the field of a dataclass, which takes keywords only
            return

        default = ast.unparse(call.args[0])
        words = ast.literal_eval(call.args[1]) if len(call.args) > 1 else 'As in the class above.'
        facts = ['Required' if default == 'REQUIRED' else f'Default `{default}`']
        for bound in call.keywords:
            name = f'at {bound.arg}' if bound.arg in ('least', 'most') else bound.arg
            facts.append(f'{name} {ast.unparse(bound.value)}')
        attr.docstring = griffe.Docstring(f'{words} *{"; ".join(facts)}.*', parent=attr)
        attr.value = None
