"""The vendored parts are the ones that were vendored, and belong together."""

import _imp
import ast
import base64
import csv
import gzip
import hashlib
import io
import json
import re
import zipfile

import pytest

from academy.playground import bundle, vendor

ROOT = bundle.ROOT


def test_numpy_is_what_its_wheel_held():
    with zipfile.ZipFile(vendor.FOLDER / "numpy.zip") as file:
        record = next(name for name in file.namelist() if name.endswith("/RECORD"))
        digests = {row[0]: row[1] for row in csv.reader(io.StringIO(file.read(record).decode()))}
        for name in file.namelist():
            digest = base64.urlsafe_b64encode(hashlib.sha256(file.read(name)).digest()).rstrip(b"=").decode()
            compiled = name.endswith(".pyc") and name.removesuffix("c") in digests
            assert name == record or compiled or digests[name] == f"sha256={digest}", name


def test_triton_is_the_one_that_is_pinned():
    assert f"\ntriton=={vendor.TRITON} " in (ROOT / "constraints/torch-2.13.txt").read_text()
    triton = pytest.importorskip("triton")
    if triton.__version__ != vendor.TRITON:
        pytest.skip(f"triton {triton.__version__} is installed")
    with zipfile.ZipFile(vendor.FOLDER / "triton.zip") as file:
        for name, path in vendor.triton_files().items():
            assert file.read(f"triton/{name}") == path.read_bytes(), name
            folder, _, module = f"triton/{name}".rpartition("/")
            compiled = file.read(f"{folder}/__pycache__/{module.removesuffix('.py')}.{vendor.CACHE_TAG}.pyc")
            # A compiled module begins with its Python's number, then a flag, then the hash of the source it was made from.
            assert compiled[8:16] == _imp.source_hash(int.from_bytes(compiled[:4], "little"), path.read_bytes()), name


def test_what_is_compiled_beforehand_is_never_compared_with_its_source():
    """Python would compile a module anew, in the page, whose date or number is not the expected one."""
    for archive in ("python_stdlib.zip", "numpy.zip", "triton.zip"):
        with zipfile.ZipFile(vendor.FOLDER / archive) as file:
            heads = {file.read(name)[:8] for name in file.namelist() if name.endswith(".pyc")}
        assert [head[4:] for head in heads] == [(1).to_bytes(4, "little")], archive  # a hash that is not checked


def test_pyodide_is_the_pinned_one():
    pinned = json.loads((vendor.FOLDER / "package.json").read_text())["devDependencies"]["pyodide"]
    worker = (bundle.RUNTIME.parent / "static/worker.js").read_text()
    assert f'version: "{pinned}"' in worker and f'"{pinned}"' in (vendor.FOLDER / "pyodide.js").read_text()
    assert "resolved" not in (vendor.FOLDER / "package-lock.json").read_text()


def test_the_bundle_imports_nothing_that_the_browsers_python_lacks():
    with zipfile.ZipFile(io.BytesIO(bundle.academy(ROOT))) as file:
        texts = {name: file.read(name) for name in file.namelist() if name.endswith(".py")}
    found = []
    for name, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            found += [(name, each) for each in names if each.partition(".")[0] in vendor.STDLIB_LEFT_OUT]
    assert len(texts) > 100 and not found


def test_the_bundle_is_named_by_content_and_no_larger_than_said():
    files = bundle.published()
    listed = json.loads(files["runtime.json"])["files"]
    for name, entry in listed.items():
        content = files[entry["place"]]
        held = gzip.decompress(content) if entry["place"].endswith(".gz") else content
        assert hashlib.sha256(held).hexdigest() == entry["sha256"] and len(content) == entry["bytes"], name
        assert f".{entry['sha256'][:32]}." in entry["place"]
    assert sum(entry["bytes"] for entry in listed.values()) < bundle.megabytes() * 1_000_000 <= 9_000_000
    assert f"about {bundle.megabytes()} MB" in " ".join((ROOT / "docs/index.md").read_text().split())


def test_the_bundle_holds_what_runs_there_and_no_more():
    with zipfile.ZipFile(io.BytesIO(bundle.academy(ROOT))) as file:
        names = set(file.namelist())
        assert {"torch/__init__.py", "triton/_C/libtriton.py", "academy/playground/run.py"} <= names
        assert "academy/traces/native_memory.py" not in names and not [name for name in names if "/static/" in name]
        texts = [file.read(name).decode() for name in names if name.endswith(".py")]
    assert not [text for text in texts if re.search(r"^(import|from) (mmap|multiprocessing)\b", text, re.M)]


def test_the_bundle_is_the_same_each_time():
    assert bundle.academy(ROOT) == vendor.zipped(dict(_entries(bundle.academy(ROOT))), zipfile.ZIP_STORED)


def _entries(content: bytes):
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return [(name, file.read(name)) for name in file.namelist()]
