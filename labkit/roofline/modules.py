"""Whether a list of module patterns, as quantisers write them, names a tensor of the model."""

import fnmatch
import re
from collections.abc import Iterable

from labkit.roofline.tensors import Role, Tensor

_PREFIXES = ("model.", "language_model.model.", "model.language_model.", "language_model.", "")
_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_SHORT = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def names_of(tensor: Tensor, layer: int, layers: int) -> list[str]:
    """Every name under which checkpoints keep this module: other prefixes, other words for an MLP's matrices, and
    mtp.layers.N for the layers after the model's own."""
    path = tensor.path.format(layer, e=0) if tensor.path else tensor.name
    paths = [path]
    if layer >= layers and path.startswith("model.layers."):
        paths.append(f"mtp.layers.{layer - layers}." + path.split(".", 3)[3])
    if ".attention." in path:
        paths += [p.replace(".attention.", ".self_attn.") for p in paths]
    last = path.rpartition(".")[2]
    if last in _SHORT:
        paths += [p.removesuffix(last) + _SHORT[last] for p in paths]
    core = [p.removeprefix("model.") for p in paths]
    return list(dict.fromkeys([*paths, *(prefix + c for prefix in _PREFIXES for c in core)]))


class Patterns:
    """Patterns of one list: names, name parts, wildcards, and regular expressions after `re:`.

    A plain name stands for the module, everything below it, and every module that ends in it or has it inside, taken
    by whole parts between the dots.
    """

    def __init__(self, patterns: Iterable[str]):
        self.listed = [str(p) for p in patterns]
        plain, regexes = set(), []
        for p in self.listed:
            if p.startswith("re:"):
                regexes.append(f"(?:{p[3:]})")
            elif any(c in p for c in "*?["):
                regexes += [fnmatch.translate(p), fnmatch.translate(p.rstrip("*").rstrip(".") + ".*")]
            else:
                plain.add(_core(p.strip(".")))
        for p in list(plain):
            last = p.rpartition(".")[2]
            plain |= {p.removesuffix(last) + part for part in _FUSED.get(last, ())}
        self.plain = plain
        self.regex = re.compile("|".join(regexes)) if regexes else None

    def match(self, names: Iterable[str]) -> bool:
        """Whether any of a module's names is meant."""
        return any(self._one(n) for n in names)

    def _one(self, name: str) -> bool:
        if self.plain and _core(name) == name:  # of the names with other prefixes the core has been seen
            parts = name.split(".")
            spans = (".".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))
            if any(s in self.plain for s in spans):
                return True
        return bool(self.regex and self.regex.match(name))


def _core(name: str) -> str:
    """A module's name without the prefix under which a checkpoint keeps its language model."""
    prefix = max((p for p in _PREFIXES if name.startswith(p)), key=len)
    return name.removeprefix(prefix)


LINEAR = {Role.EXPERTS, Role.DENSE, Role.ABSORBED, Role.HEAD}
