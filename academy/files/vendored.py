"""Files from elsewhere that lie in this repository: what they are, under which licence, and that they are unchanged.

    python -m academy.files.vendored            compare each file with `vendored.json`, notices with licences
    python -m academy.files.vendored --write    after a deliberate change: new checksums, new THIRD_PARTY_NOTICES.md

`vendored.json` names each component with its version, its licence, where it comes from, what was changed, and its files
with their SHA-256. A file in a folder of vendored files that no component names is a problem, so nothing slips in.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = "academy/files/vendored.json"
NOTICES = "THIRD_PARTY_NOTICES.md"
#: Installed packages of whose files the built site carries copies.
IN_THE_SITE = ("mkdocs-material",)
#: Everything in these folders has to be named.
FOLDERS = ("academy/site/vendor", "academy/playground/vendor")
_OPENING = """# Third-party notices

Triton Academy itself is licensed under the Apache License 2.0. The repository, the package and the site also hold the
work of others, listed here with versions and licences. This file is made by
`python -m academy.files.vendored --write` from `academy/files/vendored.json`, which also has a checksum for each file.
"""


def manifest(root: Path = ROOT) -> dict:
    """components: name, version, licence (SPDX), licence_file or licence_url, home, source, changes, files (path ->
    SHA-256); files: of this project, between them."""
    return json.loads((root / MANIFEST).read_text("utf-8"))


def digests(root: Path = ROOT) -> dict[str, str]:
    """The SHA-256 that each vendored file must have, by its path in the repository."""
    found = manifest(root)
    return {path: digest for part in [*found["components"], found] for path, digest in part["files"].items()}


def problems(root: Path = ROOT) -> list[str]:
    """A sentence for each file that is missing, unknown or changed, and for each notice that is not the components'."""
    wanted = digests(root)
    there = {path.relative_to(root).as_posix() for folder in FOLDERS for path in (root / folder).rglob("*")}
    there = {path for path in there if (root / path).is_file() and "__pycache__" not in path}
    found = [f"{path} is missing" for path in sorted(wanted) if not (root / path).is_file()]
    found += [f"{path} is in no component of {MANIFEST}" for path in sorted(there - wanted.keys())]
    for path, digest in sorted(wanted.items()):
        if (root / path).is_file() and sha256((root / path).read_bytes()) != digest:
            found.append(f"{path} has another sha256 than {MANIFEST} says: it was changed")
    for component in manifest(root)["components"]:
        if not component.get("licence_url") and component["licence_file"] not in component["files"]:
            found.append(f"{component['name']}: its licence {component['licence_file']} is not among its files")
    if not found and (not (root / NOTICES).is_file() or (root / NOTICES).read_text("utf-8") != notices(root)):
        found.append(f"{NOTICES} is not what the components say: python -m academy.files.vendored --write")
    return found


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def notices(root: Path = ROOT) -> str:
    """The text of THIRD_PARTY_NOTICES.md: a table, then each licence in full."""
    components = manifest(root)["components"]
    lines = [_OPENING, "| component | version | licence | changes |", "|---|---|---|---|"]
    for part in components:
        licence = f"[{part['licence']}]({part['licence_url']})" if "licence_url" in part else part["licence"]
        lines.append(f"| [{part['name']}]({part['home']}) | {part['version']} | {licence} | {part['changes']} |")
    for part in components:
        if part["licence_file"]:
            lines += _licence(part["name"], (root / part["licence_file"]).read_text("utf-8"))
    return "\n".join(lines) + "\n"


def _licence(name: str, text: str) -> list[str]:
    return ["", f"## {name}", "", "```text", *(line.rstrip() for line in text.strip().splitlines()), "```"]


def of_the_site(root: Path = ROOT) -> str:
    """The notices as the built site carries them: also those of installed packages whose files are in it."""
    lines = [notices(root)]
    for package in IN_THE_SITE:
        for file in metadata.files(package) or ():
            if file.name.startswith(("LICENSE", "LICENCE")):
                lines += _licence(f"{package} {metadata.version(package)}", file.read_text("utf-8"))
    return "\n".join([*lines, *_licence("Triton Academy", (root / "LICENSE").read_text("utf-8"))]) + "\n"


def renew(root: Path = ROOT) -> None:
    """Write the checksums of the files as they are now, and the notices."""
    found = manifest(root)
    for part in [*found["components"], found]:
        part["files"] = {path: sha256((root / path).read_bytes()) for path in sorted(part["files"])}
    (root / MANIFEST).write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", "utf-8")
    (root / NOTICES).write_text(notices(root), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="new checksums and notices, after a deliberate change")
    if parser.parse_args().write:
        renew()
    sys.exit("\n".join(problems()) or None)  # an empty text would be a failure


if __name__ == "__main__":
    main()
