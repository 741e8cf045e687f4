"""The tree of Markdown that every engine builds: all pages, what is said of them, and nothing written twice."""

import ast
import shutil
import subprocess
import sys

import pytest

from academy.book import front_matter, layout
from academy.site import chapters, write
from academy.site.library import Library
from tests.site.conftest import ROOT
from tests.site.test_generated_pages import entries

INDEX = Library.read(ROOT)
KERNEL, PAGE = "annotated_examples/classics/layernorm.py", "kernels/classics/layernorm.md"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Written from scratch, with the addresses of a published site."""
    settings = write.settings()
    folder = tmp_path_factory.mktemp("tree")
    return write.tree(settings, folder)


def meta(tree, place):
    return front_matter.values((tree.docs / place).read_text("utf-8"))


def test_every_page_is_in_the_tree_and_in_the_navigation(tree):
    places = entries(tree.nav)
    written = {path.relative_to(tree.docs).as_posix() for path in tree.docs.rglob("*.md")}
    docs = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    docs |= {chapters.place(path.relative_to(ROOT / "docs").as_posix()) for path in layout.chapters(ROOT)}
    assert set(places) == written == docs | {page.uri for page in INDEX.pages.values()}
    assert len(places) == len(set(places)) == sum(map(len, tree.sections.values()))


def test_a_page_says_what_an_engine_needs(tree):
    found = meta(tree, PAGE)
    assert found["title"].startswith("LayerNorm: ") and "an annotated Triton kernel." in found["description"]
    assert found["edit"] == KERNEL and found["before"]["url"].startswith("derivations/") and found["after"]["title"]
    assert meta(tree, "learn/softmax.md")["edit"] == "docs/learn/softmax.py"
    assert "edit" not in meta(tree, "benchmarks/softmax.md")
    own = front_matter.values((ROOT / "docs/learn/index.md").read_text("utf-8"))
    assert own.items() <= {**meta(tree, "learn/index.md"), "description": own["description"]}.items()
    assert "{{ repo_url }}" not in (tree.docs / "getting-started.md").read_text("utf-8")


def test_a_page_that_has_not_changed_is_not_written_again(tree):
    times = {path: path.stat().st_mtime_ns for path in tree.docs.rglob("*") if path.is_file()}
    stale = tree.docs / "kernels/classics/gone.md"
    stale.write_text("A page of a file that is no longer there.")
    (tree.docs / PAGE).write_text("changed")
    settings = write.settings()
    write.tree(settings, tree.docs.parent)
    assert {path for path, time in times.items() if path.stat().st_mtime_ns != time} == {tree.docs / PAGE}
    assert not stale.exists()


def test_an_edit_writes_what_belongs_to_changed_pages_and_the_rest_is_written_when_it_is_asked_for(tree):
    other, notebook = "annotated_examples/classics/swiglu.py", "learn/softmax.ipynb"
    for place in (KERNEL, other, notebook):
        (tree.docs / place).unlink()
    (tree.docs / PAGE).write_text("changed")
    late = write.tree(tree.settings, tree.docs.parent, is_late=True)
    assert late.written == {PAGE, KERNEL} and late.nav == tree.nav
    write.beside(late)
    assert (tree.docs / other).is_file() and (tree.docs / notebook).is_file()


def test_a_page_has_another_text_when_a_helper_of_its_kernel_has_changed(tmp_path):
    """`made_of`: by it an engine sees that the page, which only names its file, is to be made again."""
    for part in ("annotated_examples", "operations", "exercises"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    texts = []
    for more in ("", "\n# changed\n"):
        helper = tmp_path / "annotated_examples/common/rows.py"
        helper.write_text(helper.read_text("utf-8") + more)
        library = Library.read(tmp_path)
        texts.append({uri: own["made_of"] for uri, (_, own) in write.generated(library)})
    changed = {uri for uri in texts[0] if texts[0][uri] != texts[1][uri]}
    assert {PAGE, "kernels/fast/softmax.md"} <= changed and "kernels/tutorials/vector_add.md" not in changed


def test_only_the_plugin_knows_mkdocs_and_it_is_short():
    plugin = ROOT / "academy/site/plugin.py"
    assert len(plugin.read_text("utf-8").splitlines()) <= 100
    for path in sorted((ROOT / "academy").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert path == plugin or not [name for name in names if name.startswith(("mkdocs", "zensical"))], path


def test_the_command_says_what_is_wrong_without_a_traceback(tmp_path):
    code = "from academy.site import write\ndef tree(*_):\n    raise write.Unreadable('a.py:1:2: invalid syntax')\n"
    code += "write.tree = tree\nwrite.main()\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "a.py:1:2: invalid syntax\n")
