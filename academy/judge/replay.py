"""A report that others can trust: what it was made of, and the same trials once more.

`academy judge --json` writes, beside each outcome, the seed, the versions, and the SHA-256 of the files of the
function, its reference and its kernels. `--replay report.json` judges the same files in the same way and compares the
verdicts.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import inspect
import json
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from academy.judge.subject import Subject
from academy.traces.observer import jitted_files

_PACKAGES = ("triton-academy", "torch", "triton", "numpy")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def hashes(subject: Subject) -> dict[str, str]:
    """Of the files of the function, its reference and its kernels; empty where there are none, as in a notebook."""
    files: list[str] = []
    for function in (subject.function, subject.reference):
        with suppress(TypeError, OSError):
            module = inspect.getmodule(inspect.unwrap(function))
            files += [inspect.getfile(inspect.unwrap(function)), *(jitted_files(module) if module else [])]
    own = [file for file in dict.fromkeys(files) if "site-packages" not in file and Path(file).is_file()]
    return {os.path.relpath(file, Path(own[0]).parent): _sha256(Path(file)) for file in own}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The report. `options` become those that it was made with; a FILE that is given stands for its file.

    Raises:
        ValueError: it is no report, or a file is another than the one that was judged.
    """
    try:
        told = json.loads(path.read_text("utf-8"))
        asked, functions = told["asked"], told["functions"]
        options.file = options.file or Path(told["file"])
        options.name, options.only = asked["names"], ",".join(asked["groups"] or ())
        options.mutants, options.seed = asked["mutants"], asked["seed"]
        options.seconds, options.memory = asked["seconds"], asked["megabytes"]
        known = {file: sha for one in functions for file, sha in one["sha256"].items()}
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"--replay {path}: not a report of academy judge --json: {type(error).__name__}: {error}"
        ) from None
    if told["broken"] or not told["complete"]:
        raise ValueError(f"--replay {path}: that session came to no end: {told['broken'] or 'it was stopped'}")
    for file, sha in known.items():
        there = options.file.parent / file
        if file == Path(told["file"]).name:
            there = options.file
        if not there.is_file():
            raise ValueError(f"--replay {path}: {there} is missing, which was judged")
        if _sha256(there) != sha:
            raise ValueError(f"--replay {path}: {there} is not what was judged: its SHA-256 is not {sha[:12]}…")
    return told


def differences(told: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What is not as it was, a line each; after verdicts that differ, what else does."""
    before, now = dict(_verdicts(told)), dict(_verdicts(found))
    lines = [
        f"{name}: was {before.get(key, 'not tried')}, is {now.get(key, 'not tried')}"
        for key in {**before, **now}
        if before.get(key) != now.get(key)
        for name in [": ".join(json.loads(key)[:3])]
    ]
    here = {"device": found["device"], **found["versions"]}
    there = {"device": told["device"], **told["versions"]}
    other = [f"{what} was {there.get(what)}, is {here.get(what)}" for what in here if here[what] != there.get(what)]
    return lines + other if lines else []


def _verdicts(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Of each trial, and of each mutant. Nothing of a trial counts but its inputs, its question and its answer."""
    for one in report["functions"]:
        for outcome in one["outcomes"]:
            trial = outcome["trial"]
            yield json.dumps([one["name"], trial["group"], trial["name"], trial], sort_keys=True), outcome["state"]
    for number, mutant in enumerate(sorted(report["mutants"], key=lambda each: (each["line"], each["change"]))):
        yield json.dumps(["mutants", str(mutant["line"]), mutant["change"], number]), mutant["fate"]
