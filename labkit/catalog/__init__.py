"""Machines, models and published results as data: the files in data/, and the user's own catalog/*.yaml.

A project folder is the nearest folder upwards from the working directory that holds params/, or else the working
directory. Every *.yaml in its folder catalog/ may add `machines:` and `models:`; an id that is taken is an error.
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from labkit.catalog.config import ModelConfig, read_config
from labkit.catalog.read import (
    Machine,
    Model,
    Published,
    Result,
    Source,
    machine_of,
    model_of,
    published_of,
    read_yaml,
    result_of,
    source_of,
)
from labkit.errors import BadInput
from labkit.evidence import Evidence

DATA = Path(__file__).parent / "data"

__all__ = [
    "Catalog",
    "Machine",
    "Model",
    "ModelConfig",
    "Result",
    "Source",
    "catalog",
    "ladder",
    "load_config",
    "machine",
    "model",
    "result",
]


@dataclass(frozen=True)
class Catalog:
    """Everything known, by id."""

    machines: dict[str, Machine]
    models: dict[str, Model]
    results: dict[str, Result]
    sources: dict[str, Source]
    recipes: tuple[dict, ...]
    published: dict[str, Published]


def project_folder(start: Path | None = None) -> Path:
    """The nearest folder upwards that holds params/, or the start itself."""
    start = (start or Path.cwd()).resolve()
    return next((f for f in (start, *start.parents) if (f / "params").is_dir()), start)


def catalog(folder: Path | None = None) -> Catalog:
    """The lab's own entries and those of `folder`'s catalog/*.yaml (default: the project folder, or LABKIT_CATALOG as
    the folder of YAML files itself). BadInput names file, entry and field of anything wrong."""
    if folder is None and os.environ.get("LABKIT_CATALOG"):
        own = Path(os.environ["LABKIT_CATALOG"])
        if not own.is_dir():
            raise BadInput("LABKIT_CATALOG", str(own), "a folder of YAML files")
    else:
        own = (folder or project_folder()) / "catalog"
    files = sorted([*own.glob("*.yaml"), *own.glob("*.yml")])
    return _load(tuple((f, f.stat().st_mtime_ns) for f in files))


@lru_cache(maxsize=8)
def _load(user_files: tuple[tuple[Path, int], ...]) -> Catalog:
    """The file times are part of the key, so that an edited file is read again."""
    documents = [
        (DATA / f"{n}.yaml", read_yaml(DATA / f"{n}.yaml")) for n in ("sources", "machines", "models", "results")
    ]
    documents += [(f, read_yaml(f)) for f, _ in user_files]
    sources: dict[str, Source] = {}
    for file, document in documents:
        known = (
            {"sources", "machines", "models", "results", "recipes"}
            if file.parent == DATA
            else {"sources", "machines", "models"}
        )
        if unknown := set(map(str, document)) - known:
            raise BadInput(f"{file.name}: unknown sections", ", ".join(sorted(unknown)), ", ".join(sorted(known)))
        for key, fields in (document.get("sources") or {}).items():
            _add(sources, str(key), source_of(f"{file.name}: sources", fields, str(key)), file, "sources")
    found: dict[str, dict] = {"machines": {}, "models": {}, "results": {}}
    readers = {
        "machines": lambda w, f, _: machine_of(w, f, sources),
        "results": lambda w, f, _: result_of(w, f, sources),
        "models": lambda w, f, folder: model_of(w, f, sources, folder),
    }
    recipes: list[dict] = []
    for file, document in documents:
        recipes += document.get("recipes") or []
        for section, entries in found.items():
            listed = document.get(section) or []
            if not isinstance(listed, list):
                raise BadInput(f"{file.name}: {section}", listed, "a list of entries, each with an id")
            for i, fields in enumerate(listed):
                where = f"{file.name}: {section}[{i}]"
                if section == "models" and _absent_pocket(fields, file):
                    continue
                entry = readers[section](where, fields, file.parent)
                _add(entries, entry.id, entry, file, section)
    file = DATA / "published.yaml"
    document, published = read_yaml(file), {}
    for i, fields in enumerate(document["published"]):
        row = published_of(f"{file.name}: published[{i}]", fields, sources, document["reasons"])
        _add(published, row.name, row, file, "published")
    return Catalog(found["machines"], found["models"], found["results"], sources, tuple(recipes), published)


def _absent_pocket(fields: object, file: Path) -> bool:
    """A checkout without the pocket model's weights still has a catalog; only that id is unknown then."""
    return (
        file.parent == DATA
        and isinstance(fields, dict)
        and "config_path" in fields
        and not (DATA / fields["config_path"]).exists()
    )


def _add(entries: dict, key: str, entry: object, file: Path, section: str) -> None:
    if key in entries or (section == "machines" and key == "this"):
        raise BadInput(f"{file.name}: {section}: id", key, "an id that is not taken")
    entries[key] = entry


def machine(id: str, folder: Path | None = None) -> Machine:
    """A machine of the catalog by id; the one at hand, `this`, is `measure.machine.find`'s. BadInput lists all ids."""
    return _find(catalog(folder).machines, "machine", id, ["this"])


def model(id: str, folder: Path | None = None) -> Model:
    """A model by id. BadInput lists the ids."""
    return _find(catalog(folder).models, "model", id, [])


def result(id: str, folder: Path | None = None) -> Result:
    """A published result by id. BadInput lists the ids."""
    return _find(catalog(folder).results, "result", id, [])


def ladder(load: str, metric: str, folder: Path | None = None) -> dict[str, Evidence]:
    """A metric of the published results under a load (`load: {name: ...}`) by their rung, in order."""
    found = (r for r in catalog(folder).results.values() if r.load["name"] == load and r.rung is not None)
    return {r.rung: r.metrics[metric] for r in found if metric in r.metrics}


def load_config(model: str | Path, folder: Path | None = None) -> ModelConfig:
    """A model's config from a catalog id, or a path to a config.json or the folder that holds one."""
    known = catalog(folder).models
    if str(model) in known:
        return known[str(model)].config
    path = Path(model)
    if not path.exists():
        raise BadInput("model", str(model), "an existing config.json or its folder, or one of: " + ", ".join(known))
    read = read_config(path)
    # The pocket model reached by its path is still the pocket model, with the formats its engine uses.
    pocket = known.get("pocket")
    if pocket and Path(read.source).resolve() == (DATA / "../../pocket/weights/config.json").resolve():
        return pocket.config
    return read


def _find(entries: dict, what: str, id: str, more: list[str]):
    if id not in entries:
        raise BadInput(what, id, ", ".join([*entries, *more]))
    return entries[id]
