"""What is from elsewhere is what it claims to be: unchanged, with its version, its licence and a mention."""

import gzip
import json
import re
import shutil
import tomllib
import zipfile

import pytest

from academy.files import vendored

ROOT = vendored.ROOT
COMPONENTS = {part["name"]: part for part in vendored.manifest()["components"]}
PLAYGROUND = ROOT / "academy/playground/vendor"


def test_every_file_is_the_one_that_is_listed():
    assert vendored.problems() == []


def test_the_command_succeeds_where_nothing_is_wrong(monkeypatch):
    monkeypatch.setattr("sys.argv", ["vendored"])
    with pytest.raises(SystemExit) as ended:
        vendored.main()
    assert ended.value.code is None


@pytest.fixture
def copy(tmp_path):
    """The vendored files of the site, small ones, and a manifest of these alone."""
    listed = vendored.manifest()
    listed["components"] = [part for part in listed["components"] if part["name"] in ("KaTeX", "IBM Plex Sans")]
    listed["files"] = {path: digest for path, digest in listed["files"].items() if "/site/" in path}
    (tmp_path / "academy/files").mkdir(parents=True)
    shutil.copytree(ROOT / "academy/site/vendor", tmp_path / "academy/site/vendor")
    for path in (tmp_path / "academy/site/vendor/plex").glob("*mono*"):
        path.unlink()
    (tmp_path / "academy/site/vendor/plex/LICENSE").unlink()
    (tmp_path / vendored.MANIFEST).write_text(json.dumps(listed))
    (tmp_path / vendored.NOTICES).write_text(vendored.notices(tmp_path))
    assert vendored.problems(tmp_path) == []
    return tmp_path


CHANGES = {
    "other bytes": ("katex/katex.min.js", b"alert(1)", "another sha256"),
    "one less": ("plex/LICENSE.sans", None, "is missing"),
    "one more": ("katex/more.js", b"", "is in no component"),
    "another licence": ("katex/LICENSE", b"free for all", "another sha256"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_found(change, copy):
    name, content, message = CHANGES[change]
    path = copy / "academy/site/vendor" / name
    path.unlink() if content is None else path.write_bytes(content)
    (found,) = vendored.problems(copy)
    assert name in found and message in found


def test_a_deliberate_change_is_written_to_the_list_and_the_notices(copy):
    (copy / "academy/site/vendor/katex/LICENSE").write_text("Another licence, of this year.")
    vendored.renew(copy)
    assert vendored.problems(copy) == [] and "of this year" in (copy / vendored.NOTICES).read_text()


def test_notices_that_are_edited_by_hand_are_found(copy):
    (copy / vendored.NOTICES).write_text("Nothing to see here.")
    assert [found.split()[0] for found in vendored.problems(copy)] == [vendored.NOTICES]


# ---------------------------------------------------------------- the versions are those of the files
def test_katex_says_its_version():
    text = (ROOT / "academy/site/vendor/katex/katex.min.js").read_text("utf-8")
    assert f'"{COMPONENTS["KaTeX"]["version"]}"' in text


def test_what_comes_from_npm_has_the_locked_version():
    locked = json.loads((PLAYGROUND / "package-lock.json").read_text("utf-8"))["packages"]
    versions = {name.removeprefix("node_modules/"): part for name, part in locked.items()}
    source = COMPONENTS["CodeMirror"]["source"].removeprefix("npm, bundled: ")
    bundled = dict(part.rsplit(" ", 1) for part in source.split(", "))
    left_out = ("esbuild", "@esbuild/", "pyodide", "@types/", "ws")  # tools, and what is listed by itself
    assert bundled == {n: part["version"] for n, part in versions.items() if n and not n.startswith(left_out)}
    assert {versions[name]["license"] for name in bundled} == {COMPONENTS["CodeMirror"]["licence"]}
    pyodide = COMPONENTS["Pyodide"]
    assert (pyodide["version"], pyodide["licence"]) == (versions["pyodide"]["version"], versions["pyodide"]["license"])


def test_python_numpy_and_triton_have_the_version_of_their_files():
    wasm = gzip.decompress((PLAYGROUND / "pyodide.asm.wasm.gz").read_bytes())
    assert COMPONENTS["Python's standard library"]["version"].encode() in wasm
    for name, archive in (("NumPy", "numpy.zip"), ("Triton", "triton.zip")):
        with zipfile.ZipFile(PLAYGROUND / archive) as file:
            held = next(file.read(each).decode() for each in file.namelist() if each.endswith("dist-info/METADATA"))
        assert f"Version: {COMPONENTS[name]['version']}\n" in held


# ---------------------------------------------------------------- where a reader finds them
def test_the_credits_name_all_that_is_served():
    credits = (ROOT / "docs/credits.md").read_text("utf-8")
    served = [part for part in COMPONENTS.values() if not all(path.startswith("tests/") for path in part["files"])]
    assert len(served) == 8 and not [part["home"] for part in served if part["home"] not in credits]
    assert "(third-party-notices.txt)" in credits


def test_the_site_and_the_package_carry_the_licences():
    text = vendored.of_the_site()
    for part in COMPONENTS.values():
        licence = (ROOT / part["licence_file"]).read_text("utf-8") if part["licence_file"] else part["licence_url"]
        assert part["name"] in text and licence.strip().splitlines()[-1].rstrip() in text
    assert re.search(r"^## mkdocs-material [\d.]+$", text, re.M) and "## Triton Academy" in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert vendored.NOTICES in project["project"]["license-files"]
    assert "vendored.json" in project["tool"]["setuptools"]["package-data"]["academy.files"]
