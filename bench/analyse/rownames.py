"""What published rows call their models, in the names of the catalogue."""

import re

from bench.catalog.config import Model, read_catalogue

# tuned and converted versions of a model have its dimensions
VERSION = re.compile(r"-(?:instruct|chat|it|hf|base|pt)(?=-|$)")
META = re.compile(r"(?:(?<=/)|^)meta-(?=llama-3)")  # how the hub called these first


def find_model(name: str) -> Model | None:
    """The catalogued model of that key or hub name, with or without its owner; the hub is not asked.

    A tuned version (-Instruct, -Chat, -it) of a catalogued model has its dimensions and is found as that model.
    """
    wanted = META.sub("", re.sub(r"[\s_]+", "-", name.strip().lower()))
    models = read_catalogue()
    for key, model in models.items():
        if wanted in _names(key, model):
            return model
    owner, _, _ = wanted.rpartition("/")
    for key, model in models.items():
        names = {
            VERSION.sub("", one) for one in _names(key, model) if not owner or one.startswith(f"{owner}/")
        }
        if VERSION.sub("", wanted) in names:
            return model
    return None


def is_called(model: Model, name: str) -> bool:
    """Whether the catalogue has the model by that very name."""
    return name.lower() in _names(model.key, model)


def _names(key: str, model: Model) -> set[str]:
    return {key, model.name.lower(), model.name.lower().split("/")[-1]}
