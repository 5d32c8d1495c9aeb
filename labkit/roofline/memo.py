"""What was worked out of a config, kept while the same config object is asked again (sliders ask dozens of times)."""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from labkit.catalog.config import ModelConfig

T = TypeVar("T")
KEPT = 32


def by_config(function: Callable[[ModelConfig], T]) -> Callable[["dict | ModelConfig"], T]:
    """Keeps the results of the last few ModelConfig objects. A plain dict, which may change, and a GGUF file, which may
    be replaced, are worked out each time."""
    kept: OrderedDict[int, tuple[ModelConfig, T]] = OrderedDict()

    @wraps(function)
    def remembered(config: "dict | ModelConfig") -> T:
        if not isinstance(config, ModelConfig) or config.gguf is not None:
            return function(ModelConfig.of(config))
        found = kept.get(id(config))
        if found is None or found[0] is not config:
            found = (config, function(config))
            kept[id(config)] = found
            while len(kept) > KEPT:
                kept.popitem(last=False)
        return found[1]

    return remembered
