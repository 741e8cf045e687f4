"""The site where Triton has no wheel, as on macOS and Windows: it builds, and kernels say in one sentence what to do.

Triton is hidden, and with it the modules of Python that Windows doesn't have.
"""

import pytest

from tests.python import run
from tests.site.conftest import ROOT

HIDE = """
import sys
for name in ("triton", "fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
"""
# What the plugin and the extension import while they build pages, some of it inside of functions.
PARTS = """
import importlib, pathlib
from academy.site import plugin, extension, project_parts
from academy.formulas import reports
from academy.results import pages
from academy.results import plots
from academy.results import figures
for path in sorted(pathlib.Path("academy/site").glob("*.py")):
    importlib.import_module(f"academy.site.{path.stem}".removesuffix(".__init__"))
assert "Triton, which is not installed" in project_parts.no_run()
assert project_parts.recorded_run("annotated_examples/tutorials/vector_add.py") == ("", "", "")
assert project_parts.check_mark("backprop_math/vector_add.md", "x", None) is not None
"""


def python(code):
    return run(["-c", HIDE + code], ROOT, timeout=3600)


def test_nothing_that_builds_the_site_needs_it():
    done = python(PARTS)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("system", ["Darwin", "Windows", "Linux"])
def test_a_kernel_says_in_one_sentence_what_to_do(system):
    code = (
        f"import platform, torch; platform.system = lambda: {system!r}\nimport annotated_examples.tutorials.vector_add"
    )
    last = python(code).stderr.strip().splitlines()[-1]
    if system == "Linux":
        assert last.startswith("ImportError: Kernels need triton, which is not installed: pip install triton")
    else:
        assert f"Triton has no wheel for {system}" in last and "the editor on each kernel's page" in last
    assert last.count(". ") == 0 and last.endswith(".")


@pytest.mark.site_check
@pytest.mark.timeout(3600)
def test_the_site_builds_without_it(tmp_path):
    build = f"sys.argv = ['mkdocs', 'build', '--strict', '--site-dir', {str(tmp_path / 'site')!r}]\n"
    done = python(build + "from mkdocs.__main__ import cli; cli()")
    assert done.returncode == 0, done.stderr[-2000:]
    page = (tmp_path / "site/kernels/classics/layernorm/index.html").read_text("utf-8")
    assert "it needs Triton, which is not installed here" in page
