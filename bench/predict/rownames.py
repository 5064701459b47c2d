"""What published rows call their models, in the names of the catalogue."""

import re

from bench.catalog.models.resolve import Model, read_catalogue

# tuned and converted versions of a model have its dimensions
VERSION = re.compile(r"-(?:instruct|chat|it|hf|base|pt)(?=-|$)")
META = re.compile(r"(?:(?<=/)|^)meta-(?=llama-3)")  # how the hub called these first
FP8 = "fp8"
# what a name ends with where weights were converted, and what they are then
WEIGHTS = (
    (re.compile(r"-(?:fp8|float8)(?:-(?:dynamic|block))?$"), FP8),
    (
        re.compile(r"-(?:awq|gptq)(?:-(?:int)?4(?:-?bits?)?)?$|-(?:int4|w4a16|4bit|bnb-4bit|nvfp4|mxfp4)$"),
        "4 bits",
    ),
    (re.compile(r"-gptq-(?:int)?8(?:-?bits?)?$|-(?:int8|w8a8|w8a16|8bit)$"), "8-bit integers"),
)
# later releases with the dimensions of the first; sources: their config.json on the hub beside that of the first
RELEASES = (
    (re.compile(r"(?<=deepseek-v3)(?:-0324|\.1(?:-terminus)?)(?=-base$|$)"), ""),
    (re.compile(r"(?<=deepseek-r1)-0528$"), ""),
    (re.compile(r"(?<=qwen3-4b|-30b-a3b)-(?:instruct|thinking)-2507$"), ""),
)


def find_model(name: str) -> Model | None:
    """The catalogued model of that key or hub name, with or without its owner; the hub is not asked.

    A tuned version (-Instruct, -Chat, -it), a later release and one with converted weights (-FP8, -AWQ) of a
    catalogued model have its dimensions and are found as that model.
    """
    wanted = META.sub("", _plain(name))
    models = read_catalogue()
    for key, model in models.items():
        if wanted in _names(key, model):
            return model
    for ending, _ in (*WEIGHTS, *RELEASES):
        wanted = ending.sub("", wanted)
    owner, _, _ = wanted.rpartition("/")
    for key, model in models.items():
        names = {
            VERSION.sub("", one) for one in _names(key, model) if not owner or one.startswith(f"{owner}/")
        }
        if VERSION.sub("", wanted) in names:
            return model
    return None


def named_weights(name: str) -> str | None:
    """What the weights are by the model's name: "fp8", "4 bits" or "8-bit integers"; None where it does not say."""
    return next((weights for ending, weights in WEIGHTS if ending.search(_plain(name))), None)


def is_called(model: Model, name: str) -> bool:
    """Whether the catalogue has the model by that very name."""
    return name.lower() in _names(model.key, model)


def _plain(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def _names(key: str, model: Model) -> set[str]:
    return {key, model.name.lower(), model.name.lower().split("/")[-1]}
