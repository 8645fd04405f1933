"""Process: runs checks one after the other, and prints their rows as lines of JSON.

    python -m lingpipe.tools.device_checks.process \\
        '{"checks": [["overlap", 20.0]], "is_deterministic": false, "devices": 4, "mb": 4096}'

check_devices starts it, since TensorFlow's devices and op determinism are set once in a process. A
line is an object with 'begins', 'row' or 'ends'.
"""
from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import time
import traceback

from lingpipe.tools.device_checks.rows import Row


def main(text: str) -> None:
    """Runs what the text asks for."""
    from lingpipe.tools.device_checks import machine as machines
    asked = json.loads(text)
    machine = machines.set_up(asked['devices'], asked['mb'], asked['is_deterministic'])
    for name, budget_s in asked['checks']:
        say(begins=name)
        module = name.removesuffix('_deterministic')
        own = dataclasses.replace(machine, check=name, end_s=time.monotonic() + budget_s)
        try:
            for row in importlib.import_module(f'lingpipe.tools.device_checks.{module}').rows(own):
                say(row=row.to_json())
        except Exception as error:   # whatever it is, the other checks go on
            traceback.print_exc()
            reason = (str(error).strip() or 'no reason given').splitlines()[0]
            say(row=Row(name, 'FAILED', f'{type(error).__name__}: {reason[:300]}',
                        {'traceback': traceback.format_exc()}).to_json())
        say(ends=name)


def say(**message: object) -> None:
    """Prints a line."""
    print(json.dumps(message), flush=True)


if __name__ == '__main__':
    main(sys.argv[1])
