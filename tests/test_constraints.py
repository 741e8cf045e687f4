"""The pinned sets fit pyproject.toml, and each has the triton that its torch brings."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
SETS = sorted((ROOT / "constraints").glob("*.txt"))
#: torch and the triton that its CUDA build requires.
PAIRS = {"torch-2.11": "3.6.", "torch-2.13": "3.7.", "torch-2.14": "3.8.", "torch-2.15": "3.9."}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WANTED = [*PROJECT["dependencies"], *(each for extra in PROJECT["optional-dependencies"].values() for each in extra)]


def pins(path: Path) -> dict[str, str]:
    """Package -> version, of those that Linux with the oldest supported Python takes."""
    environment = {**default_environment(), "sys_platform": "linux", "platform_machine": "x86_64"}
    environment |= {"python_version": "3.11", "python_full_version": "3.11.9", "implementation_name": "cpython"}
    found = {}
    for line in path.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            pin = Requirement(line)
            if pin.marker is None or pin.marker.evaluate(environment):
                (only,) = pin.specifier
                assert only.operator == "=="
                found[normal(pin.name)] = only.version
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(lines: list[str]) -> list[Requirement]:
    return [Requirement(line) for line in (line.partition("#")[0].strip() for line in lines) if line]


def test_each_set_has_its_reason():
    assert {path.stem for path in SETS} == set(PAIRS)
    assert {path.stem for path in (ROOT / "constraints").glob("*.in")} == set(PAIRS)


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)
def test_a_set_pins_all_that_the_project_asks_for(path):
    pinned = pins(path)
    asked = requirements([*WANTED, *path.with_suffix(".in").read_text("utf-8").splitlines()])
    for wanted in asked:
        version = pinned.get(normal(wanted.name))
        assert version and wanted.specifier.contains(version), f"{path.name}: {wanted}, pinned: {version}"
    assert pinned["triton"].startswith(PAIRS[path.stem])
    assert "make constraints" in path.read_text("utf-8").splitlines()[1]


def test_the_page_about_compatibility_lists_the_sets():
    rows = re.findall(r"^\| `(torch-.*)\.txt` \| (\S+) \| `make ", (ROOT / "docs/compatibility.md").read_text(), re.M)
    assert rows == [(path.stem, pins(path)["triton"]) for path in SETS]


def test_the_set_that_make_installs_is_the_one_that_runs_here():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    default = re.search(r"^TORCH +\?= (.+)$", makefile, re.M)[1]
    assert (ROOT / "constraints" / f"torch-{default}.txt").is_file()
    assert re.search(r"^constraints:", makefile, re.M) and re.search(r"^UV +=\s*uv==[\d.]+$", makefile, re.M)
