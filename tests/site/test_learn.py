"""The chapters as pages: executed, set like every other page, light, and there as notebooks that run elsewhere."""

import html
import json
import re
from pathlib import Path

import pytest
from mkdocs.config import load_config

from academy.site import chapters

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted(path.stem for path in (ROOT / "docs/learn").glob("*.py"))
#: The most that a chapter may weigh, with all that its page loads, in bytes as they are sent. The index of the search
#: is left out: it is the whole site's, and any page fetches it, in the background.
LIMIT = 250_000


def text(site, chapter):
    return (site / f"learn/{chapter}/index.html").read_text("utf-8")


@pytest.mark.site_check
@pytest.mark.usefixtures("executed")
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_was_executed_and_set_like_any_page(site, chapter):
    page = text(site, chapter)
    words = html.unescape(re.sub(r"<[^>]+>", "", page))
    assert "Triton's interpreter" in words or "GPU" in words
    assert len(re.findall(r'class="[^"]*\bnb-output\b', page)) + page.count('class="nb-figure"') >= 4
    assert "without running the cells" not in words and "Traceback" not in words
    prose = re.sub(r"<pre.*?</pre>|<code.*?</code>|<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r"\[\[[a-z]+(:|\]\])", prose), "a directive that nothing was put in the place of"
    listed = re.search(r'id="exercises".*?<ul[^>]*>(.*?)</ul>', page, re.S)
    assert listed and len(re.findall(r'href="\.\./\.\./exercises/\w+/\w+/"', listed[1])) >= 3
    assert "data-figure=" not in page, "a drawing that did not find its place"
    assert "{{" not in words and "jp-Notebook" not in page and "mathjax" not in page.lower()
    assert f"/edit/main/docs/learn/{chapter}.py" in page


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_notebook_file_runs_elsewhere(site, chapter):
    config = load_config(str(ROOT / "mkdocs.yml"))
    notebook = json.loads((site / f"learn/{chapter}.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"]]
    assert f"git+{config.repo_url}" in "\n".join(cells)
    assert "{{" not in "\n".join(cells)
    prose = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", prose, flags=re.S)
    assert "[[" not in prose
    links = re.findall(r"\]\(([^)\s]+)\)", prose)
    assert links
    for link in links:
        page, _, anchor = link.removeprefix(config.site_url).partition("#")
        assert link.startswith(config.site_url) and (site / page / "index.html").is_file(), link
        assert not anchor or f'id="{anchor}"' in (site / page / "index.html").read_text("utf-8"), link
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            compile("".join(cell["source"]), chapter, "exec")
            assert cell["outputs"] == []


@pytest.mark.parametrize("executed", [True, False])
def test_a_chapter_without_output_says_so_at_its_head(executed):
    head = chapters.introduced("# Title\n\ntext", "learn/small.py", executed, "").partition("text")[0]
    assert ("built without running the cells" in head and "`make site` runs every chapter" in head) == (not executed)


def test_a_cell_that_fails_ends_the_build():
    import jupytext

    broken = jupytext.reads("# %%\nx = 0\n\n# %%\n1 / x\n", fmt="py:percent")
    with pytest.raises(chapters.CellFailed, match=r"docs/learn/broken.py: a cell failed(.|\n)*ZeroDivisionError"):
        chapters.execute(broken, "docs/learn/broken.py")


def test_nothing_is_left_where_the_build_was_started(tmp_path, monkeypatch):
    import jupytext

    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir(), scratch.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    notebook = jupytext.reads("# %%\nprint(6 * 7)\n", fmt="py:percent")
    chapters.execute(notebook, "docs/learn/small.py")
    assert notebook.cells[0].outputs[0].text == "42\n"
    shown = "```python\nprint(6 * 7)\n```\n\n```{ .text .nb-output }\n42\n```\n"
    assert chapters.as_markdown(notebook, "small") == shown
    left = [path for path in (*here.rglob("*"), *scratch.rglob("*"))]
    assert left == []


def test_cells_are_not_executed_unless_asked(monkeypatch):
    options = {}
    for value in (None, "true"):
        monkeypatch.setenv("EXECUTE_NOTEBOOKS", value) if value else monkeypatch.delenv("EXECUTE_NOTEBOOKS", False)
        options[value] = load_config(str(ROOT / "mkdocs.yml")).plugins["mkdocs-jupyter"].config["execute"]
    assert options == {None: False, "true": True}
