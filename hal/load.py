"""Device specs: JSON to `Device` and back, by the declarations of the fields.  The format is that of `hal.schema`.

    >>> load_device("v100").units
    80
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import Field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rollergen.hal.declared import Declared, declarations, is_required
from rollergen.hal.errors import SpecError, SpecWarning, name_advice, nearest, refused
from rollergen.hal.extending import Find, Parent, completed, is_figure
from rollergen.hal.files.bounded import MOST_BYTES, join, read_json, shown
from rollergen.hal.files.kept import write_whole
from rollergen.hal.files.trusted import open_untrusted
from rollergen.hal.files.user_specs import user_specs
from rollergen.hal.languages import language, present_names
from rollergen.hal.plugins import PluginSpec, plugin_specs
from rollergen.hal.schema import FORMAT
from rollergen.hal.spec import Device
from rollergen.hal.spec_rules import contradictions
from rollergen.hal.spec_schema import refuse_what_the_schema_refuses

TEMPLATE = "template"


def _shipped() -> Path:
    """The folder of the built-in devices.  (`importlib.resources` imports what takes 10 ms.)"""
    import rollergen.devices

    return Path(next(iter(rollergen.devices.__path__)))


@lru_cache(maxsize=1)
def device_names() -> tuple[str, ...]:
    """Names of the built-in devices, sorted."""
    found = (entry.name for entry in _shipped().iterdir())
    names = (name.removesuffix(".json") for name in found if name.endswith(".json"))
    return tuple(sorted(name for name in names if name != TEMPLATE))


def known_names() -> tuple[str, ...]:
    """Names of the built-in devices, of those that installed packages bring (`hal.plugins`) and of the user's own
    (`files.user_specs`), sorted."""
    return tuple(sorted({*device_names(), *plugin_specs(), *user_specs()}))


def every_spec() -> Iterator[tuple[str, Device]]:
    """Each spec with what it is asked for by: the user's own first, by their paths where others have their names.

    One that cannot be used is a SpecWarning: others are not harmed.
    """
    others = sorted({*device_names(), *plugin_specs()})
    clear = lambda name: name not in others and not name.endswith(".json")
    places: dict[str, str | Path] = {name if clear(name) else str(path): path for name, path in user_specs().items()}
    for name, place in (places | {name: name for name in others}).items():
        try:
            device = load_device(place)
        except SpecError as error:
            warnings.warn(f"a device is left out: {error}", SpecWarning, stacklevel=1)  # of one line: told once
        else:
            yield name, device


def load_device(name_or_path: str | Path) -> Device:
    """A built-in device, one of an installed package or the user's own by name, or that of a file (a Path, or a string
    in .json).

    Raises SpecError: unknown name, unreadable file, or a spec that breaks the format or contradicts itself.
    """
    if isinstance(name_or_path, Path) or name_or_path.endswith(".json"):
        path = Path(name_or_path)
        return parse_device(_content(path), path.name, path)
    if name_or_path not in device_names() and name_or_path in plugin_specs():
        return _of_package(plugin_specs()[name_or_path])
    if name_or_path not in device_names() and name_or_path in (own := user_specs()):
        return load_device(own[name_or_path])
    return _built_in(name_or_path)


def parse_device(content: bytes, where: str, path: Path | None = None) -> Device:
    """The device of a JSON text; `where` names it in errors.

    `path`: its file, beside which files that it extends are looked for; None: it may extend built-in devices only.
    Raises SpecError: first with all that breaks the format; where nothing does, with all that contradicts itself.
    """
    document = completed(read_json(content, where), where, str(path.resolve()) if path else where, _parents(path))
    refuse_what_the_schema_refuses(document, where)
    return _consistent(document, where)


def _consistent(document: dict[str, Any], where: str) -> Device:
    """The device of a document that meets the schema.  Raises SpecError with all that contradicts itself."""
    figures = dict(_figures(document, ""))
    found = [*_unknown_sources(document, figures), *(unknown := list(_unknown_languages(document)))]
    if unknown:  # what else contradicts itself is told, as far as no language matters
        document = {**document, "targets": [{"language": "opencl"}]}
    try:
        device = _device(plain(document), _provenance(document, figures))
    except SpecError as error:
        raise refused(where, [*found, str(error)]) from error.__cause__
    if found := [*found, *contradictions(device)]:
        raise refused(where, found)
    return device


def device_to_json(device: Device) -> dict[str, Any]:
    """The document that loads as `device`: figures carry kind and source; what a layer does not have is left out."""
    origins = dict(device.provenance)
    document = {"format": FORMAT, **_document(device)}
    document = _annotated(document, "", origins)
    if origins:
        document["provenance"] = {path: {"kind": kind, "source": text} for path, (kind, text) in origins.items()}
    return document


def save_device(device: Device, path: str | Path) -> None:
    """Writes a spec that loads as `device`, whole or not at all.

    Raises SpecError for a device that the loader would refuse, OSError where the file cannot be written.
    """
    path = Path(path)
    content = (_written(device_to_json(device)) + "\n").encode()
    parse_device(content, path.name)
    write_whole(path, content)


def device_hash(device: Device) -> str:
    """SHA-256 of everything that a kernel or a prediction can depend on: all but title,
    printed peaks, provenance and how it was verified."""
    document = {"tlbs": [], "costs": {}, **plain(device_to_json(device))}
    for key in ("title", "provenance", "verified"):
        document.pop(key, None)
    for instruction in document["instructions"]:
        instruction.pop("peak_dense_tflop_s", None)
    return hashlib.sha256(json.dumps(_as_floats(document), sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=64)
def _built_in(name: str) -> Device:
    """A file that ships with the package: tests hold it against the schema, which takes ten times as long as reading
    it does."""
    if name not in device_names():
        names = known_names()
        near = nearest(name, names)
        hint = f" (did you mean {near}?)" if near else ""
        raise SpecError(
            f"{shown(name)} is no known device{hint}; expected one of {', '.join(names)}, "
            f"{' or '.join(present_names())} for what is present, or a .json file"
        )
    where = f"{name}.json"
    content = _shipped().joinpath(where).read_bytes()
    return _consistent(completed(read_json(content, where), where, where, _parents(None)), where)


def _of_package(found: PluginSpec) -> Device:
    """The spec must bear the name of its file, by which it is asked for."""
    try:
        path = found.file if isinstance(found.file, Path) else None
        content = _content(path) if path else found.file.read_bytes()
    except OSError as error:
        raise SpecError(f"{found.where}: cannot be read: {error.strerror}; expected a device spec") from None
    device = parse_device(content, found.where, path)
    if device.name != found.name:
        raise SpecError(f"{found.where}: name is {shown(device.name)}; expected that of its file, {shown(found.name)}")
    return device


def _parents(path: Path | None) -> Find:
    """Finds what specs extend, beginning in the folder of `path`."""
    folder = path.resolve().parent if path else None

    def find(named: str, where: str) -> Parent:
        nonlocal folder
        if not named.endswith(".json"):
            folder = None
            if named not in device_names():
                known = ", ".join(device_names())
                raise SpecError(f"{where}: extends is {shown(named)}; expected one of {known}, or a .json file")
            content = _shipped().joinpath(f"{named}.json").read_bytes()
            return read_json(content, f"{named}.json"), f"{named}.json", f"{named}.json"
        if folder is None or Path(named).is_absolute():
            raise SpecError(f"{where}: extends is {shown(named)}; expected a path relative to the file's own folder")
        try:
            file = (folder / named).resolve()
            content = _content(file)
        except (SpecError, ValueError, OSError):
            raise SpecError(f"{where}: extends is {shown(named)}; expected a file that can be read") from None
        folder = file.parent
        return read_json(content, file.name), file.name, str(file)

    return find


def _content(path: Path) -> bytes:
    """The file, read no further than the first byte too many."""
    try:
        with open_untrusted(path) as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        names = ", ".join(device_names())
        reason = error.strerror or error
        raise SpecError(f"{path}: cannot be read: {reason}; expected the file of a spec, or one of {names}") from None


def _figures(node: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if is_figure(node):
        yield path, node
    elif isinstance(node, dict):
        for key, item in node.items():
            if path or key not in ("sources", "provenance"):
                yield from _figures(item, join(path, key))
    elif isinstance(node, list):
        for number, item in enumerate(node):
            yield from _figures(item, join(path, number))


def _unknown_sources(document: dict[str, Any], figures: dict[str, dict[str, Any]]) -> Iterator[str]:
    """A file without sources states them in full at each figure."""
    sources = document.get("sources")
    if sources is None:
        return
    for path, figure in (*figures.items(), *document.get("provenance", {}).items()):
        if figure["source"] not in sources:
            advice = name_advice(figure["source"], sources)
            yield f"{path}.source is {shown(figure['source'])}, no key of sources; {advice}"


def _unknown_languages(document: dict[str, Any]) -> Iterator[str]:
    for number, target in enumerate(document["targets"]):
        try:
            language(target["language"], f"targets[{number}].language")
        except SpecError as error:
            yield str(error)


def _provenance(
    document: dict[str, Any], figures: dict[str, dict[str, Any]]
) -> tuple[tuple[str, tuple[str, str]], ...]:
    sources = document.get("sources", {})
    found = {}
    for path, figure in (*figures.items(), *document.get("provenance", {}).items()):
        text = sources.get(figure["source"], figure["source"])
        found[path] = (figure["kind"], f"{text}; {figure['note']}" if "note" in figure else text)
    return tuple(sorted(found.items()))


def plain(node: Any) -> Any:
    """The document with every figure as its bare number."""
    if is_figure(node):
        return node["value"]
    if isinstance(node, dict):
        return {key: plain(item) for key, item in node.items()}
    return [plain(item) for item in node] if isinstance(node, list) else node


def _device(document: dict[str, Any], provenance: tuple[tuple[str, tuple[str, str]], ...]) -> Device:
    return Device(**_arguments(Device, document), provenance=provenance)


def _arguments(kind: type, item: dict[str, Any]) -> dict[str, Any]:
    """What a part is made of; keys that declare no field are of the file alone."""
    known = declarations(kind)
    return {one.name: _value(one, said, item[key]) for key, (one, said) in known.items() if key in item}


def _value(one: Field[Any], said: Declared, value: Any) -> Any:
    if said.part is None:
        return _READ.get(str(one.type), _same)(value)
    if isinstance(value, list):
        return tuple(said.part(**_arguments(said.part, item)) for item in value)
    return said.part(**_arguments(said.part, value))


def _same(value: Any) -> Any:
    return value


_READ: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "float": float,
    "tuple[tuple[str, float], ...]": lambda found: tuple((name, float(value)) for name, value in found.items()),
    "tuple[tuple[str, str], ...]": lambda found: tuple(sorted(found.items())),
}
"""JSON has one kind of number, and objects: the declared type says what is meant."""


def _document(part: Any) -> dict[str, Any]:
    """All declared fields of a part, in JSON; of the device itself those that have another value than their default."""
    known = declarations(type(part)).items()
    every = [(key, one, _json(said, getattr(part, one.name))) for key, (one, said) in known]
    return {key: value for key, one, value in every if value or is_required(one) or not isinstance(part, Device)}


def _json(said: Declared, value: Any) -> Any:
    if said.part is not None:
        return [_document(item) for item in value] if isinstance(value, tuple) else _document(value)
    return dict(value) if isinstance(value, tuple) else value


_PARTS = [said.part for _, said in declarations(Device).values() if said.part is not None]
_OPTIONAL = [one for part in _PARTS for one, _ in declarations(part).values() if not is_required(one)]
_DEFAULTS = {one.name: one.default for one in _OPTIONAL}


def _annotated(node: Any, path: str, origins: dict[str, tuple[str, str]]) -> Any:
    """`node` with kind and source beside each figure that has them; what is used is taken out of `origins`."""
    if isinstance(node, dict):
        items = ((key, item, join(path, key)) for key, item in node.items())
        return {
            key: _annotated(item, below, origins)
            for key, item, below in items
            if below in origins or not (path and _is_default(key, item))
        }
    if isinstance(node, list):
        return [_annotated(item, join(path, number), origins) for number, item in enumerate(node)]
    if path in origins and isinstance(node, (int, float)) and not isinstance(node, bool):
        kind, source = origins.pop(path)
        return {"value": node, "kind": kind, "source": source}
    return node


def _is_default(key: str, item: Any) -> bool:
    return key in _DEFAULTS and item in (_DEFAULTS[key], {})


def _as_floats(node: Any) -> Any:
    """16 and 16.0 are the same figure."""
    if isinstance(node, dict):
        return {key: _as_floats(item) for key, item in node.items()}
    if isinstance(node, list):
        return [_as_floats(item) for item in node]
    return float(node) if isinstance(node, int) and not isinstance(node, bool) else node


def _written(node: Any, indent: int = 0) -> str:
    """JSON with one figure a line."""
    inside = isinstance(node, (dict, list)) and node and not is_figure(node)
    if not inside:
        return json.dumps(node, ensure_ascii=False)
    pad = "\n" + " " * (indent + 1)
    if isinstance(node, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {_written(item, indent + 1)}" for key, item in node.items()]
        return "{" + pad + ("," + pad).join(items) + "\n" + " " * indent + "}"
    return "[" + pad + ("," + pad).join(_written(item, indent + 1) for item in node) + "\n" + " " * indent + "]"
