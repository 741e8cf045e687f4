"""Results on disk: one JSON file per operation and device, with where and when it was measured, and of which source.

`benchmarks/results/<device>/<operation>.json`; ladders, written while a kernel was developed, in
`benchmarks/results/<device>/ladder/<operation>.json`. Nothing here needs torch: the site reads the files without it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from academy.book import facts, layout
from academy.files import textfiles
from academy.results import measured_code


class OtherDevice(ValueError):
    """A result measured on another device would be overwritten."""


def slug(device: str) -> str:
    """`"NVIDIA H200"` -> `"nvidia-h200"`, the name of the device's folder."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


# ---------------------------------------------------------------- the source a result belongs to


def sources(files: dict[str, str], root: Path) -> dict[str, str]:
    """Provider -> hash of its kernel file's code."""
    return {provider: source_hash(root / file, root) for provider, file in files.items()}


def source_hash(path: Path, root: Path) -> str:
    """Hash of the code that a kernel file's speed depends on (`academy.results.measured_code`)."""
    return hashlib.sha256(measured_code.of(path, root)).hexdigest()[:16]


# ---------------------------------------------------------------- files


class Results:
    """The results of one device, in a folder of files or in a single file. Each change is saved at once.

    Args:
        device: the device's name as CUDA gives it.
        folder: `<folder>/<device>/<operation>.json` is read and written, or
        file: everything goes into this one file.
    """

    def __init__(self, device: str, folder: Path | None = None, file: Path | None = None):
        if (folder is None) == (file is None):
            raise ValueError("give either folder or file")
        self.device, self.folder, self.file = device, folder, file

    def path(self, operation: str) -> Path:
        return self.file or cast(Path, self.folder) / slug(self.device) / f"{operation}.json"

    def load(self, operation: str) -> dict:
        """The operation's results, or an empty record. Raises `OtherDevice` if they are another device's."""
        path = self.path(operation)
        content = json.loads(path.read_text("utf-8")) if path.exists() else {}
        if content and content.get("device") != self.device:
            raise OtherDevice(
                f"{path} holds results of {content.get('device')}, this is {self.device}: "
                "give another --json FILE or --results DIR"
            )
        record = content.get("operations", {}).get(operation) if self.file else content
        return record or {"operation": operation, "device": self.device, "cases": []}

    def save(self, record: dict) -> None:
        """Write the operation's record, whole or not at all."""
        content = record
        if self.file:
            old = json.loads(self.file.read_text("utf-8")) if self.file.exists() else {}
            operations = {**old.get("operations", {}), record["operation"]: record}
            content = {"device": self.device, "operations": operations}
        write(self.path(record["operation"]), content)


def write(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    textfiles.write_text(path, dumps(content) + "\n")


def dumps(value: object, indent: str = "") -> str:
    """JSON with short lists and dictionaries on one line, so that a diff shows one measurement per line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) <= 110 or not isinstance(value, dict | list) or not value:
        return flat
    inner = indent + "  "
    if isinstance(value, dict):
        rows = [f"{inner}{json.dumps(k, ensure_ascii=False)}: {dumps(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + dumps(v, inner) for v in value) + f"\n{indent}]"


def key_of(case: dict) -> tuple[str, tuple[int, ...], str]:
    return case["variant"], tuple(case["shape"]), case["dtype"]


def put_case(record: dict, case: dict, order: Sequence[tuple] = ()) -> None:
    """Add a case, in place of an older one; in the order of these keys, what is not among them last."""
    cases = {key_of(old): old for old in record["cases"]} | {key_of(case): case}
    places = {key: place for place, key in enumerate(order)}
    record["cases"] = sorted(cases.values(), key=lambda each: places.get(key_of(each), len(places)))


# ---------------------------------------------------------------- committed results


def committed(root: Path) -> Iterator[tuple[Path, dict]]:
    """(path, record) of every result under benchmarks/results, ladders left out."""
    for path in layout.results(root):
        yield path, json.loads(path.read_text("utf-8"))


def stale(record: dict, root: Path) -> list[dict]:
    """The cases and host times in which one of our providers was measured with other code than its file has now."""
    now = {}
    with suppress(FileNotFoundError, SyntaxError):  # then everything is stale
        now = sources(facts.kernels(layout.facts(root, record["operation"])), root)
    return [entry for entry in [*record["cases"], *record.get("host", [])] if entry["sources"] != now]


def stale_note(root: Path) -> str:
    """One line on the kernels that have changed since they were measured; "" if there is none. For `academy check`."""
    names = dict.fromkeys(record["operation"] for _, record in committed(root) if stale(record, root))
    if not names:
        return ""
    return f"no error, but measured before the kernel last changed: {', '.join(names)} (`academy bench` measures again)"
