"""Caches are made anew when code changes that their content depends on, wherever it lies."""

import shutil

import pytest

from academy.book import layout
from academy.files import dependencies
from academy.traces import store

ROOT = dependencies.ROOT


def test_what_a_module_is_made_of(tmp_path):
    package = tmp_path / "academy/part"
    package.mkdir(parents=True)
    one = "import json\nfrom academy.part import two\n\ndef f():\n    from . import three\n"
    texts = dict(__init__="", one=one, two="import numpy.linalg\nfrom academy.part.one import f\n", three="", four="")
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text)
    files, outside = dependencies.made_of(("academy.part.one",), tmp_path)
    assert [file.name for file in files] == ["__init__.py", "one.py", "three.py", "two.py"]
    assert outside == ("numpy",)


@pytest.mark.parametrize(
    "module",
    [
        "interpreter/mistakes",
        "runtime/launch",
        "runtime/autograd",
        "runtime/checks",
        "gluon/machine",
        "interpreter/libdevice",
        "interpreter/memory",
        "traces/recorder",
    ],
)
def test_a_change_there_makes_a_recording_stale(module, tmp_path):
    """Of LayerNorm, whose files take checks, autograd and launch from `academy`."""
    shutil.copytree(ROOT / "academy", tmp_path / "academy", ignore=shutil.ignore_patterns("vendor", "__pycache__"))
    used = store.machinery(store.built_on(layout.module_path(ROOT, "fast.layernorm")))
    before = dependencies.made_by(*used, root=tmp_path)
    file = tmp_path / f"academy/{module}.py"
    file.write_text(file.read_text("utf-8") + "\nCHANGED = True\n", "utf-8")
    dependencies._made_by.cache_clear()
    assert dependencies.made_by(*used, root=tmp_path) != before


def test_what_a_recording_does_not_use_leaves_it_alone():
    files, _ = dependencies.made_of(tuple(store.machinery([layout.module_path(ROOT, "classics.layernorm")])))
    parts = {file.relative_to(ROOT / "academy").parts[0] for file in files}
    assert not parts & {"site", "exercises", "playground", "formulas"}
