"""What some layers of one kind add to a model while its Shape is being built."""

from dataclasses import dataclass, field

from labkit.roofline.tensors import Cache, Role, Tensor


@dataclass
class Part:
    """What some layers of one kind add to a model. `prefix` names their modules, {} for the layer."""

    at: tuple[int, ...]
    prefix: str
    tensors: list[Tensor] = field(default_factory=list)
    caches: list[Cache] = field(default_factory=list)
    recurrent: int = 0
    convolution: int = 0

    def add(self, name: str, group: str, role: Role, rows: int, cols: int = 1, experts: int = 0) -> None:
        """One tensor of every layer in `at`; nothing where it has no rows."""
        if rows and self.at:
            path = f"{self.prefix.rstrip('.')}.{name}" if self.prefix else name
            self.tensors.append(Tensor(name, group, role, rows, cols, len(self.at), experts, path, self.at))
