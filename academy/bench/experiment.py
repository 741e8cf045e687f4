"""Experiments: scripts in `benchmarks/` whose results are no operation's.

Each writes `benchmarks/results/<device>/experiments/<name>.json`. `[[bench: <name>/<value>]]` quotes what stands there
under `values`: a number with its unit, or None where this machine couldn't measure it.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
from contextlib import suppress
from pathlib import Path

import torch

from academy.runtime import device  # before anything imports triton
from academy.book import layout
from academy.book.layout import ROOT
from academy.results import store


def parser(description: str) -> argparse.ArgumentParser:
    """The command line of an experiment."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--results", type=Path, default=ROOT / layout.RESULTS)
    return found


def versions(*packages: str) -> dict[str, str]:
    """Versions of PyTorch, Triton, those of `packages` that are installed, and CUDA."""
    import triton

    found = {"torch": torch.__version__, "triton": triton.__version__}
    for package in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def rounded(values: dict[str, tuple[float | None, str]], digits: int = 3) -> dict[str, dict]:
    """Name -> value and unit, of name -> (value, unit): more digits would be noise."""
    return {
        name: {"value": None if value is None else float(f"{value:.{digits}g}"), "unit": unit}
        for name, (value, unit) in values.items()
    }


def machine() -> str:
    """This machine's GPU; without one, that kernels are interpreted."""
    return "Triton's interpreter" if device.INTERPRET else torch.cuda.get_device_name()


def written(name: str, results: Path) -> Path:
    """The file of an experiment on this machine."""
    return results / store.slug(machine()) / "experiments" / f"{name}.json"


def kept(name: str, results: Path, *parts: str) -> dict:
    """What an earlier run wrote of an experiment on this machine; `parts` that aren't there are empty."""
    path = written(name, results)
    content = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return {part: {} for part in parts} | content


def about(*packages: str) -> dict:
    """Where, when and with what something is measured now."""
    today = datetime.date.today().isoformat()
    return {"device": machine(), "date": today, "versions": versions(*packages)}


def write_experiment(name: str, results: Path, content: dict, *packages: str) -> None:
    """Write what was found, with the device, the date and the versions, of `packages` too."""
    here = about(*packages)
    store.write(written(name, results), here | content | here)  # in front, also of what is measured again
