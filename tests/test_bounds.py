"""Every number in Params has bounds, so that no typing error reaches TensorFlow."""
import importlib
import pkgutil

import lingpipe
import lingpipe.tasks
from lingpipe.hyperparams import Params, fields_of
from lingpipe.hyperparams.fields import holds_numbers
from lingpipe.wording.bounds import Bounds

# Any finite number means something in these.
UNBOUNDED = {'Experiment.seed', 'ExampleSource.seed', 'SamplingParams.seed', 'Subset.seed',
             'Loss.scale', 'Normalize.mean', 'Muon.muon_a', 'Muon.muon_b', 'Muon.muon_c'}


def params_classes() -> list[type[Params]]:
    """Returns all Params classes of lingpipe and of tasks."""
    for package in (lingpipe, lingpipe.tasks):
        for module in pkgutil.walk_packages(package.__path__, f'{package.__name__}.'):
            importlib.import_module(module.name)

    found, todo = [], [Params]
    while todo:
        subclasses = todo.pop().__subclasses__()
        todo += subclasses
        found += [cls for cls in subclasses if cls.__module__.split('.')[0] == 'lingpipe']
    return list(dict.fromkeys(found))


def numbers() -> list[tuple[str, Bounds]]:
    """Yields the name, as Class.field, and the bounds of each field that holds numbers."""
    fields = [(f'{cls.__qualname__.removesuffix(".Params")}.{name}', declared)
              for cls in params_classes() for name, declared in fields_of(cls).items()
              if not is_inherited(cls, name)]
    return [(name, declared.bounds) for name, declared in fields if holds_numbers(declared.type)]


def is_inherited(cls: type[Params], name: str) -> bool:
    """Whether a class has a field as one above it has it, with the same bounds."""
    above = [fields_of(base) for base in cls.__mro__[1:] if issubclass(base, Params)]
    return any(name in fields and fields[name].bounds == fields_of(cls)[name].bounds
               for fields in above)


def test_every_number_has_bounds_unless_any_number_means_something() -> None:
    found = numbers()
    assert len(found) > 150
    assert {name for name, bounds in found if bounds == Bounds()} == UNBOUNDED
