"""Pages without a file under docs/, their places in the navigation, and the links that tie those of an operation
together."""

import ast
import re
from posixpath import join, normpath

import pytest
from mkdocs.config import load_config

from academy.book import layout
from academy.site import chapters, generated_pages
from academy.site.helpers import first_uses
from academy.site.library import Library
from academy.site.page_facts import links
from tests.site.conftest import ROOT

INDEX = Library.read(ROOT)


def entries(nav) -> list[str]:
    """The pages of a navigation, in order."""
    if isinstance(nav, str):
        return [nav]
    inside = nav.values() if isinstance(nav, dict) else nav
    return [uri for item in inside for uri in entries(item)]


def test_every_file_has_its_page_and_its_place_in_the_navigation():
    names = [layout.module_name(ROOT, path) for path in layout.pages(ROOT)]
    wanted = {f"kernels/{name.replace('.', '/')}.md" for name in names}
    wanted |= {f"derivations/{p.name}" for p in layout.derivations(ROOT)}
    wanted |= {f"benchmarks/{p.stem}.md" for p in layout.operations(ROOT) if "\nBENCH = " in p.read_text()}
    wanted |= {f"learn/{p.name}" for p in layout.chapters(ROOT)}
    wanted |= {f"exercises/{p.parent.name}/{p.stem}.md" for p in layout.exercises(ROOT)}
    nav = entries(generated_pages.completed(load_config(str(ROOT / "mkdocs.yml")).nav, INDEX))
    assert len(nav) == len(set(nav)) and wanted <= set(nav)
    assert not [*ROOT.glob("docs/kernels/*/*"), *(p for p in ROOT.glob("docs/derivations/*") if p.stem != "index")]


def test_the_navigation_follows_the_learning_path():
    nav = generated_pages.completed([{"K": ["kernels/index.md"]}, {"L": ["learn/index.md"]}, {"H": "index.md"}], INDEX)
    steps = INDEX.path.steps
    groups = nav[0]["K"][1:]
    names = [next(iter(group)) for group in groups]
    assert names[:3] == ["Tutorials", "Classics", "Attention"] and {"Low-bit", "FP8", "Gluon", "Fast"} <= set(names)
    for pages in [entries(nav[1])[1:], *(entries(group) for group in groups)]:
        found = [steps[uri] for uri in pages if uri in steps]
        assert found and found == sorted(found)


def test_no_two_pages_have_the_same_title_in_the_navigation():
    def titles(items):
        for item in items:
            for name, below in item.items() if isinstance(item, dict) else ():
                yield from titles(below) if isinstance(below, list) else [name]

    found = list(titles(generated_pages.completed(load_config(str(ROOT / "mkdocs.yml")).nav, INDEX)))
    assert sorted(found) == sorted(set(found))
    assert {"2. Reduce a row: softmax", "Softmax", "Softmax: derivation", "Softmax: benchmark"} <= set(found)


def test_what_is_listed_by_hand_stays():
    nav = [{"Benchmarks": ["benchmarks/index.md", {"Mine": "benchmarks/softmax.md"}]}]
    listed = entries(generated_pages.completed(nav, INDEX))
    assert listed.count("benchmarks/softmax.md") == 1 and {"Mine": "benchmarks/softmax.md"} in nav[0]["Benchmarks"]


def test_what_a_page_shows_is_known():
    """Its text is another one when one of these has changed: of the page of a kernel, its derivation's and a
    benchmark's."""
    shown = {
        "kernels/fast/softmax.md": ["annotated_examples/fast/softmax.py", "annotated_examples/common/rows.py"],
        "derivations/softmax.md": ["backprop_math/softmax.md", "annotated_examples/tutorials/softmax.py"],
        "benchmarks/softmax.md": ["operations/softmax.py", "benchmarks/results/nvidia-h200/softmax.json"],
    }
    for uri, sources in shown.items():
        assert set(sources) <= set(generated_pages.sources(INDEX, INDEX.page_at(uri)))


def test_every_page_of_an_operation_leads_to_the_others(site):
    """Lesson, fast version, derivation and benchmark, one row on each; what they lead to is there."""
    for operation in INDEX.operations:
        uris = [INDEX.pages[path].uri for path in operation.files]
        for path, uri in zip(operation.files, uris):
            here = uri.removesuffix(".md") + "/"
            page = (site / here / "index.html").read_text("utf-8")
            (row,) = re.findall(r'<nav [^>]*class="op-links".*?</nav>', page, re.S)
            found = {normpath(join(here, href)) for href in re.findall(r'href="([^":]+)"', row)}
            assert {other.removesuffix(".md") for other in uris} <= found, (path, found)
            assert row.count('aria-current="page"') == 1
            if path in (operation.lesson, operation.fast) and operation.tests:
                assert operation.tests in page and operation.tests not in row
            labels = [
                text.strip()
                for text in re.findall(r"<(?:a|summary)[^>]*>([^<]*)<", re.sub(r"<div>.*?</div>", "", row, flags=re.S))
            ]
            order = [label.rstrip("s") for label in labels if label != "All kernels"]
            assert order == [
                label for label in ("Lesson", "Fast", "Derivation", "Benchmark", "Exercise") if label in order
            ]


def test_an_exercise_is_a_tab_of_its_operation(site):
    page = (site / "exercises/rows/logsumexp/index.html").read_text("utf-8")
    uri = next(each.page for each in INDEX.exercises.values() if each.name == "rows/logsumexp")
    (row,) = re.findall(r'<nav [^>]*class="op-links".*?</nav>', page, re.S) or [""]
    assert bool(row) == bool(INDEX.page_at(uri)), uri
    with_row = [each for each in INDEX.exercises.values() if INDEX.page_at(each.page)]
    for exercise in with_row[:3]:
        page = (site / exercise.uri.removesuffix(".md") / "index.html").read_text("utf-8")
        (row,) = re.findall(r'<nav [^>]*class="op-links".*?</nav>', page, re.S)
        lesson = exercise.page.removesuffix(".md")
        assert f"{lesson}/" in row and row.count('aria-current="page"') == 1


def test_previous_and_next_make_sense_beside_the_path(site):
    """An exercise: the page that it belongs to or the one before, and the one after or the next stage's first page."""
    for stage, after in zip(INDEX.path.stages, [*INDEX.path.stages[1:], None]):
        pages = [page for page in INDEX.shown("exercise") if page.group == stage.exercises]
        for number, page in enumerate(pages):
            here = page.uri.removesuffix(".md") + "/"
            html = (site / here / "index.html").read_text("utf-8")
            found = re.findall(r'<a href="([^"]+)" class="md-footer__link md-footer__link--(?:prev|next)"', html)
            before = pages[number - 1].uri if number else INDEX.exercises[page.source].page
            following = pages[number + 1].uri if number + 1 < len(pages) else after.pages[0] if after else None
            wanted = [re.sub(r"\.(md|py)$", "", uri) for uri in (before, following) if uri]
            assert [normpath(join(here, href)) for href in found] == wanted, here


def test_the_sidebar_of_a_section_does_not_repeat_what_it_is(site):
    page = (site / "derivations/softmax/index.html").read_text("utf-8")
    sidebar = page.partition("md-sidebar--primary")[2].partition("md-sidebar--secondary")[0]
    assert not re.search(r"\w: (?:derivation|benchmark)\s*</span>", sidebar)
    top = re.findall(r'md-tabs__link">\s*(.*?)\s*</a>', page, re.S)
    assert top[-2:] == ["Glossary", "About"], top


def test_a_derivation_leads_to_all_kernels_that_implement_it():
    found = dict(links(INDEX, "backprop_math/softmax.md"))
    assert found["Lesson"] == ["annotated_examples/tutorials/softmax.py"]
    assert found["Fast"] == ["annotated_examples/fast/softmax.py"]
    assert len(dict(links(INDEX, "backprop_math/matmul.md"))["Lesson"]) >= 3


KERNEL = """import torch
from annotated_examples.common import rows
from annotated_examples.common.rows import as_rows, row_stride as stride


def f(x):
    return as_rows(x), as_rows(x)


def g(x):
    return rows.row_stride(x, 3) + stride(x, 3)
"""


def test_a_helper_is_shown_where_it_is_first_used():
    uses = first_uses(KERNEL, ROOT)
    assert {line: [helper.name for helper in found] for line, found in uses.items()} == {
        7: ["as_rows"],
        11: ["row_stride"],
    }
    (helper,) = uses[7]
    lines = helper.text.split("\n")[helper.lines.start - 1 : helper.lines.stop - 1]
    assert lines[0].startswith("# ") and any(line.startswith("def as_rows(") for line in lines)


@pytest.mark.parametrize("page", INDEX.shown("kernel"), ids=lambda page: page.uri)
def test_all_helpers_of_a_kernel_are_folded_on_its_page(site, page):
    text = (ROOT / page.source).read_text("utf-8")
    shown = (site / page.uri.removesuffix(".md") / "index.html").read_text("utf-8")
    folded = re.findall(r'<details class="k-helper"[^>]*><summary><code[^>]*>(\w+)</code>', shown)
    assert folded == [helper.name for found in first_uses(text, ROOT).values() for helper in found]
    if f"{layout.KERNELS}.common" in text:
        assert folded
    # The box shows the source: what is markup elsewhere would stand there as it is written.
    for box in re.findall(r'<details class="k-helper".*?</details>', shown, re.S):
        source = re.sub(r"<[^>]+>", "", box)
        comments = "\n".join(line for line in source.split("\n") if line.lstrip().startswith("#"))
        assert not re.search(r"\[\[|\$", source), (page.source, source)
        assert not re.search(r"\]\(|^# #", comments, re.M), (page.source, source)  # in code `](` launches a kernel


@pytest.mark.parametrize("path", layout.kernels(ROOT), ids=lambda path: layout.module_name(ROOT, path))
def test_a_downloaded_kernel_is_clean_and_the_same_code(path):
    """What only the site understands is written out or gone, and nothing else has changed."""
    before = path.read_text("utf-8")
    after = chapters.downloaded(before, INDEX)
    assert not re.search(r"\[\[[a-z]+(?::[^\]]*)?\]\]", after)

    def code(text):
        tree = ast.parse(text)
        for node in ast.walk(tree):  # without docstrings
            if isinstance(body := getattr(node, "body", None), list):
                node.body = [each for each in body if not isinstance(getattr(each, "value", None), ast.Constant)]
        return ast.dump(tree)

    assert code(after) == code(before)


def test_a_downloaded_formula_stays_within_its_comment():
    text = "# Why:\n#\n# [[eq: SM]]\n#\n# [[figure: a/b]]\n#\n# See [[tag: SM]].\nx = 1\n"
    after = chapters.downloaded(text, INDEX)
    assert after.startswith("# Why:\n#\n# $$\n# y_i") and after.endswith("# $$\n#\n# See (SM).\nx = 1\n")
