"""Experiment modules: those in which experiments are looked for when a name is asked for."""
from __future__ import annotations

import importlib
import pkgutil
from importlib import metadata
from types import ModuleType

from lingpipe.training.experiment_class import is_experiment

ROOT = 'lingpipe.params'   # the package whose name is left out
GROUP = 'lingpipe.experiments'   # of entry points


def find_all() -> tuple[dict[str, type], dict[str, str]]:
    """Imports every module below params/, and those that installed packages name in their metadata.

    Returns:
      name -> class, sorted by name; and module -> error, of the modules that cannot be imported.
    """
    experiments, broken = _experiments_below(ROOT)
    for entry_point in metadata.entry_points(group=GROUP):
        theirs, their_broken = _experiments_of(entry_point)
        experiments |= theirs
        broken |= their_broken
    return dict(sorted(experiments.items())), dict(sorted(broken.items()))


def _experiments_of(entry_point: metadata.EntryPoint) -> tuple[dict[str, type], dict[str, str]]:
    """As `find_all`, of the package or module that an entry point names."""
    package = entry_point.dist.name if entry_point.dist else '?'
    module, _, attribute = entry_point.value.partition(':')
    place = f'{entry_point.value!r} (entry point {entry_point.name} of the package {package})'
    if attribute:
        return {}, {place: f'it must be a module; write {module.strip()!r}'}

    experiments, broken = _experiments_below(module)
    return experiments, {place if name == module else name: error for name, error in broken.items()}


def _experiments_below(package: str) -> tuple[dict[str, type], dict[str, str]]:
    """As `find_all`, of a module or of a package with all that is in it."""
    experiments: dict[str, type] = {}
    broken: dict[str, str] = {}
    queue = [package]
    while queue:
        module_name = queue.pop()
        try:
            module = module_named(module_name)
        except ValueError as error:
            broken[module_name] = str(error.__cause__ or error)
            continue
        if module is None:
            broken[module_name] = f'there is no module {module_name!r}'
            continue

        for value in vars(module).values():
            if is_experiment(value) and value.__module__ == module_name:
                name = f'{module_name}.{value.__name__}'
                experiments[name.removeprefix(f'{ROOT}.')] = value
        if hasattr(module, '__path__'):
            queue += [f'{module_name}.{info.name}' for info in pkgutil.iter_modules(module.__path__)
                      if info.name != '__main__']
    return experiments, broken


def all_names() -> list[str]:
    """The names of all experiments below params/.

    Raises:
      ValueError: modules that cannot be imported, each named with its error. `find_all` gives
        the others, and those of other packages.
    """
    experiments, broken = _experiments_below(ROOT)
    if broken:
        raise ValueError('; '.join(
            f'{module} cannot be imported: {error}' for module, error in broken.items()))
    return sorted(experiments)


def import_module(name: str) -> None:
    """Imports a module that a flag names, so that the text of Params may name its classes.

    Raises:
      ValueError: there is no such module, or it cannot be imported.
    """
    if module_named(name) is None:
        raise ValueError(f'there is no module {name!r}; correct its name, or put it on the path.')


def module_named(name: str) -> ModuleType | None:
    """The module, or None if there is none of that name."""
    if not name or name.startswith('.'):   # relative to a package, and there is none
        return None
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f'{error.name}.')):
            return None
        raise ValueError(f'{name} cannot be imported: {error}') from error
    except (Exception, SystemExit) as error:   # whatever the module's own code raises
        raise ValueError(f'{name} cannot be imported: {type(error).__name__}: {error}') from error
