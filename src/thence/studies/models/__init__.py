"""The models: what one run of a study does. One file each, called after the model, with a function ``run``.

Rules:

* ``run(point, seed, sink)`` is pure: same point and seed, same measures, on any machine. Chance comes from the seed alone.
* A file is imported when its model is asked for. Nothing has to be registered: the file is found.
* A name with dots is a module of somebody else's, which the workers must be able to import too.
* A model may return ``events``, the number of simulated events, besides the measures of its studies.

May import ``studies.parts``, ``sim``, ``trace`` and ``core``. Exports nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from difflib import get_close_matches

from thence.errors import ConfigError
from thence.trace.recorder import Sink

Value = str | int | float | bool
Point = Mapping[str, Value]
Measures = dict[str, float]
Run = Callable[[Point, int, Sink], Measures]


def model_names() -> list[str]:
    """Return the models that thence comes with."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_"))


def model_named(name: str) -> Run:
    """Return the function ``run`` of a model."""
    module = name if "." in name else f"{__name__}.{name}"
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise ConfigError(f"model {name!r} needs {error.name}, which is not installed") from None
        near = get_close_matches(name, model_names(), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(model_names()) or 'none'}"
        raise ConfigError(f"no model {name!r}; {hint}") from None
    run = getattr(found, "run", None)
    if not callable(run):
        raise ConfigError(f"model {name!r}: {module} has no function run")
    checked: Run = run
    return checked
