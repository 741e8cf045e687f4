"""What the playground runs, on the torch that it runs on: the browser's files in a process of their own, without PyTorch.

The browser itself is asked by tests/site, where one is installed. Here are its files under this Python: academy.zip,
the Triton that is vendored, numpy. A name that the browser's torch lacks stops each kernel there, and nothing else.
"""

import ast
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
import pytest

pytest.importorskip("triton")
from academy.book import exercise_files
from academy.playground import bundle, vendor
from academy.traces import store
from tests.playground.shim import native, shim

ROOT = bundle.ROOT

#: In a browser's place: PyTorch can't be found, what asks for its system is told that it is one, and numbers that numpy
#: counts with have 32 bits, unless it is told otherwise.
SCRIPT = """
import json, sys, sysconfig
sys.path.insert(0, sys.argv[1])
sys.path.append(sys.argv[2])
import numpy
def short(make):
    def made(*args, **kwargs):
        is_counted = not kwargs and all(type(each) in (int, tuple) for each in args)
        return make(*args, **kwargs).astype(numpy.int32) if is_counted else make(*args, **kwargs)
    return made
numpy.arange, numpy.indices = short(numpy.arange), short(numpy.indices)
sysconfig.get_config_vars()  # of this system: Triton looks something up there
sys.platform = "emscripten"
from academy.playground.run import answer
import torch
assert torch.__file__.startswith(sys.argv[1]), torch.__file__
for line in sys.stdin:
    said = json.loads(answer(line))
    data = json.dumps(said.get("data"), separators=(",", ":"))
    told = said.get("without_rounding") or said.get("problems") or said.get("message", "")
    print(json.dumps([said["state"], told, data]))
print(json.dumps(sorted(name for name in sys.modules if name.partition(".")[0] == "academy")))
"""
EXERCISE = "first_kernel/dropped_tail"
#: File, an edit that floats don't see, and what is said of it without rounding.
EDITED = [
    ("tutorials/vector_add", "x + y", "y + x", "Without rounding, too, it gives the same."),
    ("tutorials/vector_add", "x + y", "x + y * 1.0000001", "Without rounding it gives something else"),
    ("tutorials/softmax", "tl.exp(x - ", "tl.exp(1.0000001 * x - ", "Without rounding it gives something else"),
    ("classics/rmsnorm", "+ eps", "+ eps * 1.0001", "Without rounding it gives something else"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """triton.zip and academy.zip, unpacked into one folder as in the browser."""
    folder = tmp_path_factory.mktemp("browser")
    for content in (vendor.FOLDER / "triton.zip", io.BytesIO(bundle.academy(ROOT))):
        with zipfile.ZipFile(content) as file:
            file.extractall(folder, [name for name in file.namelist() if not name.endswith(".pyc")])
    return folder


def without_addresses(data: str) -> str:
    """What AdamW reads from its table is another number in each process."""
    return re.sub(r"(?<![\d.])\d{13,}(?![\d.])", "an address", data)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["some", "all"])
def test_kernels_run_as_natively_and_exercises_are_judged(served, every):
    """Of the kernels that the site shows, every sixth or all: what is recorded there is what is recorded here."""
    exercise = exercise_files.named(EXERCISE)
    recordings = store.load(store.kernel_files()[:: 1 if every else 6])
    questions = [
        {"action": "run", "path": store.shorten(path), "source": path.read_text("utf-8"), "original": None}
        for path in recordings
    ]
    questions += [
        {"action": "check", "name": EXERCISE, "source": source, "seed": 1}
        for source in (exercise.solution, exercise.starter)
    ]
    for name, old, new, _ in EDITED:
        path = f"annotated_examples/{name}.py"
        text = (ROOT / path).read_text("utf-8")
        assert old in text
        questions.append({"action": "run", "path": path, "source": text.replace(old, new), "original": text})
    command = [sys.executable, "-S", "-c", SCRIPT, str(served), str(Path(numpy.__file__).parents[1])]
    done = subprocess.run(
        command,
        input="\n".join(map(json.dumps, questions)),
        env={**os.environ, "TRITON_INTERPRET": "1", "TRITON_BACKENDS_IN_TREE": "1", "PYTHONPATH": ""},
        cwd=served,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *answers, modules = map(json.loads, done.stdout.splitlines())
    answers, edited = answers[: -len(EDITED)], answers[-len(EDITED) :]
    assert all(told.startswith(said) for (_, told, _), (*_, said) in zip(edited, EDITED)), [
        told for _, told, _ in edited
    ]
    assert [state for state, *_ in answers[-2:]] == ["passed", "failed"], answers[-2:]
    wrong = {
        store.shorten(path): (state, problems)
        for (path, recording), (state, problems, data) in zip(recordings.items(), answers)
        if state != "passed" or without_addresses(data) != without_addresses(native(path, recording))
    }
    assert len(answers) == len(recordings) + 2 and wrong == {}
    assert {"academy.interpreter.quick", "academy.gluon.machine", "academy.exercises.marking"} <= set(modules)


#: Names of PyTorch that these files use only where the browser's torch isn't.
ELSEWHERE = {
    "academy/exercises/watch.py": {"torch.cuda.synchronize"},  # kernels are compiled
    "academy/interpreter/launches.py": {"torch._dynamo.graph_break"},  # torch.compile was called
}
#: What prepares kernels and runs them, watches them and judges them. (academy's own files also measure on a card.)
PARTS = "academy/exercises academy/gluon academy/interpreter academy/judge academy/playground academy/traces".split()


def lacking(text: str) -> set[str]:
    """Dotted names of PyTorch in a text that the browser's torch doesn't have."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        names, value = [], node
        while isinstance(value, ast.Attribute):
            names.insert(0, value.attr)
            value = value.value
        if isinstance(value, ast.Name) and value.id == "torch" and not has(names):
            found.add(".".join(["torch", *names]))
    return {name for name in found if not any(other.startswith(f"{name}.") for other in found)}


def has(names: list[str]) -> bool:
    owner = shim()
    for name in names:
        if not hasattr(owner, name):
            return False
        owner = getattr(owner, name)
    return True


def test_a_name_that_is_lacking_is_seen():
    assert lacking("x = torch.nn.Parameter\nif torch.float32: torch.cuda.is_available()") == {"torch.nn.Parameter"}


def test_what_runs_there_names_nothing_that_it_lacks():
    """Also where none of the kernels above come along."""
    with zipfile.ZipFile(io.BytesIO(bundle.academy(ROOT))) as file:
        texts = {name: file.read(name).decode() for name in file.namelist() if name.startswith(tuple(PARTS))}
    found = {name: names for name, text in texts.items() if (names := lacking(text))}
    assert len(texts) > 40 and found == ELSEWHERE
