"""A syntax error in a file that the site is made from: a line with its place instead of a traceback."""

import shutil
import subprocess
import sys

import pytest

from tests.site.project import PARTS, ROOT, environment

KERNEL, CHAPTER = "annotated_examples/tutorials/vector_add.py", "docs/learn/softmax.py"


@pytest.fixture
def project(tmp_path):
    for part in (part for part in PARTS if (ROOT / part).is_dir()):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


def test_the_build_ends_with_the_places(project):
    places = []
    for name in (KERNEL, CHAPTER):
        lines = (project / name).read_text("utf-8").split("\n")
        line = lines.index("import torch")
        lines[line] = "import torch as"
        (project / name).write_text("\n".join(lines), "utf-8")
        places.append(f"{name}:{line + 1}:16: invalid syntax")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(project / "site")]
    done = subprocess.run(command, cwd=project, env=environment(project), capture_output=True, text=True)
    assert done.returncode == 1
    assert all(place in done.stderr for place in places) and "Traceback" not in done.stderr, done.stderr
    assert not (project / "site").exists()
