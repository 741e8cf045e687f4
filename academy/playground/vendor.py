"""The playground's vendored parts: verify them, or make them anew from published packages at pinned versions.

    python -m academy.playground.vendor                     as `python -m academy.files.vendored`: verify them all
    python -m academy.playground.vendor --make WHEEL        make vendor/ anew; needs npm, node, triton as pinned,
                                                            and numpy's wheel for Pyodide, which is on no registry

vendor/package.json pins Pyodide, CodeMirror and esbuild. Pyodide's own lock file names numpy's wheel and its sha256;
the wheel is cut to what the playground imports, and keeps its RECORD, so that its libraries can be compared with it.
Modules are compiled beforehand by Pyodide's Python itself, under node (`vendor/compile.mjs`): compiling them in the
page took most of the first run. Triton's are there as source too, because `triton.jit` reads it.
Everything is stored compressed, once: a browser inflates it (`static/worker.js`).
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from academy.files import vendored
from academy.files.vendored import sha256

FOLDER = Path(__file__).parent / "vendor"
#: The version whose Python runs in the browser, the one that constraints/torch-2.13.txt pins.
TRITON = "3.7.1"
#: Of Pyodide's Python: what its cached modules are called after.
CACHE_TAG = "cpython-314"
#: What no import of the playground needs.
STDLIB_LEFT_OUT = """pydoc pydoc_data pdb doctest unittest mailbox imaplib smtplib poplib ftplib xmlrpc ensurepip
    idlelib turtle turtledemo tkinter venv lib2to3 test _pyrepl wsgiref dbm curses _pydecimal _pydatetime _pyio
    multiprocessing xml http optparse plistlib pickletools pstats profile trace urllib tarfile ipaddress configparser
    difflib bdb tomllib calendar _strptime modulefinder mimetypes wave socketserver compileall py_compile symtable
    zoneinfo cmd code fileinput runpy pyclbr tabnanny filecmp zipapp netrc cProfile quopri getpass shelve rlcompleter
    pty tty webbrowser sched colorsys nturl2path this antigravity __hello__ __phello__ _markupbase""".split()
_ENCODINGS = "__init__ aliases ascii cp437 idna latin_1 punycode unicode_escape utf_16 utf_8 utf_8_sig".split()
_NUMPY_LEFT_OUT = """tests f2py include distutils _pyinstaller testing polynomial typing fft random ctypeslib char rec
    strings""".split()
_TRITON_LEFT_OUT = """backends/amd backends/nvidia profiler _filecheck tools/triton_to_gluon tools/ragged
    language/extra/hip instrumentation tools/compile tools/link tools/build tools/mxfp _C""".split()


def zipped(entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The same bytes for the same entries, on any day. method: how each is compressed, as `zipfile` names it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in sorted(entries.items()):
            file.writestr(zipfile.ZipInfo(name), data, method, 9)
    return out.getvalue()


def make(wheel: Path) -> None:
    with TemporaryDirectory() as made:
        modules = Path(made) / "node_modules"
        for name in ("package.json", "package-lock.json", "codemirror.entry.js"):
            shutil.copy(FOLDER / name, made)
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=made, check=True)
        _make_editor(Path(made), modules)
        _make_python(modules / "pyodide", wheel)
        _make_triton(modules / "pyodide")
    vendored.renew()


def _make_editor(made: Path, modules: Path) -> None:
    options = ["--bundle", "--format=esm", "--minify", "--legal-comments=none", "--target=es2022"]
    command = [modules / ".bin/esbuild", "codemirror.entry.js", *options, f"--outfile={FOLDER / 'codemirror.js'}"]
    subprocess.run([str(part) for part in command], cwd=made, check=True)
    shutil.copy(modules / "@codemirror/view/LICENSE", FOLDER / "LICENSE.codemirror")


def _make_python(pyodide: Path, wheel: Path) -> None:
    for name in ("pyodide.asm.wasm", "pyodide.asm.mjs"):
        (FOLDER / f"{name}.gz").write_bytes(gzip.compress((pyodide / name).read_bytes(), 9, mtime=0))
    shutil.copy(pyodide / "pyodide.mjs", FOLDER / "pyodide.js")  # a suffix that every host serves as JavaScript
    with zipfile.ZipFile(pyodide / "python_stdlib.zip") as file:
        kept = {name: file.read(name) for name in file.namelist() if _is_kept_of_stdlib(name)}
    (FOLDER / "python_stdlib.zip").write_bytes(zipped(compiled(pyodide, kept, optimize=2)))
    pinned = json.loads((pyodide / "pyodide-lock.json").read_text())["packages"]["numpy"]
    if sha256(wheel.read_bytes()) != pinned["sha256"]:
        sys.exit(f"{wheel} is not {pinned['file_name']}, which Pyodide pins")
    with zipfile.ZipFile(wheel) as file:
        kept = {name: file.read(name) for name in file.namelist() if _is_kept_of_numpy(name)}
    (FOLDER / "numpy.zip").write_bytes(zipped(compiled(pyodide, kept, optimize=2)))  # without docstrings
    licence = next(name for name in kept if name.endswith("licenses/LICENSE.txt"))
    (FOLDER / "LICENSE.numpy").write_bytes(kept[licence])


def compiled(pyodide: Path, files: dict[str, bytes], optimize: int) -> dict[str, bytes]:
    """The files with each `.py` compiled to a `.pyc` at its place. optimize: as Python's own; 0 keeps asserts."""
    with TemporaryDirectory() as folder:
        modules = {name: data for name, data in files.items() if name.endswith(".py")}
        for name, data in modules.items():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_bytes(data)
        subprocess.run(["node", FOLDER / "compile.mjs", pyodide, folder, str(optimize)], check=True)
        made = {f"{name}c": (Path(folder) / f"{name}c").read_bytes() for name in modules}
    return {name: data for name, data in files.items() if name not in modules} | made


def _is_kept_of_stdlib(name: str) -> bool:
    package, _, module = name.removesuffix(".py").partition("/")
    if package == "encodings":
        return module in _ENCODINGS
    return not name.endswith("/") and package not in STDLIB_LEFT_OUT


def _is_kept_of_numpy(name: str) -> bool:
    if name.startswith("numpy-"):
        return name.endswith(("/RECORD", "/METADATA", "licenses/LICENSE.txt"))
    left_out = set(name.split("/")[1:-1]) & set(_NUMPY_LEFT_OUT) or name.startswith("numpy/core/")
    return not left_out and name.endswith((".py", ".so"))


def _make_triton(pyodide: Path) -> None:
    """Triton's own Python, unchanged. What its C++ part would give is in runtime/libtriton.py."""
    if metadata.version("triton") != TRITON:
        sys.exit(f"triton {TRITON} is wanted here, and {metadata.version('triton')} is installed")
    files = {f"triton/{name}": path.read_bytes() for name, path in triton_files().items()}
    for name, data in compiled(pyodide, files, optimize=0).items():
        folder, _, module = name.rpartition("/")
        files[f"{folder}/__pycache__/{module.removesuffix('.pyc')}.{CACHE_TAG}.pyc"] = data
    files[f"triton-{TRITON}.dist-info/METADATA"] = f"Metadata-Version: 2.4\nName: triton\nVersion: {TRITON}\n".encode()
    (FOLDER / "triton.zip").write_bytes(zipped(files))
    licence = next(path for path in metadata.files("triton") or () if path.name == "LICENSE")
    shutil.copy(str(licence.locate()), FOLDER / "LICENSE.triton")


def triton_files() -> dict[str, Path]:
    """The files of the installed triton that the playground takes."""
    spec = find_spec("triton")
    root = Path(spec.origin or "").parent if spec else Path()
    paths = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*.py"))}
    return {name: path for name, path in paths.items() if not name.startswith(tuple(_TRITON_LEFT_OUT))}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--make", metavar="WHEEL", type=Path, help="numpy's wheel for Pyodide")
    wheel = parser.parse_args().make
    if wheel:
        make(wheel)
    sys.exit("\n".join(vendored.problems()) or None)  # an empty text would be a failure


if __name__ == "__main__":
    main()
