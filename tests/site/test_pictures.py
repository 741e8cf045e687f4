"""Pictures: each lesson, chapter and guide has one, they can be read on a phone, and those that move tell the truth.

`python tests/site/test_pictures.py` prints which page has which pictures.
"""

import importlib
import json
import re
import sys
from pathlib import Path
from urllib.parse import urljoin
from xml.etree import ElementTree

import pytest

from academy.book import layout
from academy.book.directives import on_line, without_fences
from academy.site import pictures
from academy.site.library import Library

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs/figures"


def pages() -> dict[str, list[str]]:
    """Each lesson, chapter, guide and derivation, and the keys of its pictures."""
    lessons = [path for path in layout.lessons(ROOT) if "def EXAMPLE" in path.read_text("utf-8")]
    others = [*layout.chapters(ROOT), *(ROOT / "docs/guides").glob("*.md")]
    found = {}
    for path in sorted([*lessons, *others, *layout.derivations(ROOT)]):
        text = path.read_text("utf-8")
        lines = without_fences(text).split("\n") if path.suffix == ".md" else text.split("\n")
        directives = [on_line(line.strip().removeprefix("# ")) for line in lines]
        found[path.relative_to(ROOT).as_posix()] = [
            each.argument for each in directives if each and each.name == "figure"
        ]
    return found


def keys() -> list[str]:
    return [
        f"{path.stem}/{name}"
        for path in sorted(FIGURES.glob("*.py"))
        for name in re.findall(r"^@picture\ndef (\w+)", path.read_text("utf-8"), re.M)
    ]


def test_no_lesson_chapter_or_guide_is_without_a_picture():
    without = [page for page, shown in pages().items() if not shown and not page.startswith("backprop_math")]
    assert not without, f"put [[figure: script/name]] on a line of {', '.join(without)}"


def test_no_fast_version_and_no_family_of_exercises_is_without_a_picture():
    kernels = ROOT / "annotated_examples"
    fast = [path for folder in ("fast", "gluon") for path in (kernels / folder).rglob("*.py")]
    fast = [path for path in fast if path.name != "__init__.py" or path.parent.parent != kernels]
    without = [str(path.relative_to(ROOT)) for path in fast if "[[figure: " not in path.read_text("utf-8")]
    for family in sorted(path for path in (ROOT / "exercises").iterdir() if path.is_dir()):
        files = [path.read_text("utf-8") for path in family.glob("*.py")]
        without += [f"exercises/{family.name}"] if files and not any("[[figure: " in text for text in files) else []
    assert not without, f"put [[figure: script/name]] on a line of {', '.join(without)}"


def test_the_built_pages_show_them(site):
    for page, shown in pages().items():
        folder, _, name = page.rpartition(".")[0].replace("annotated_examples/", "docs/kernels/").rpartition("/")
        folder = folder.replace("backprop_math", "docs/derivations").removeprefix("docs/")
        html = (site / folder / name / "index.html").read_text("utf-8")
        assert html.count('<figure class="drawn') == len(shown), page


def test_kernels_begin_with_their_picture_and_their_list_shows_it(site):
    kernels = Library.read(ROOT).shown("kernel")
    shown = {page.uri: pictures.first((ROOT / page.source).read_text("utf-8"))[0] for page in kernels}
    for uri in (uri for uri, key in shown.items() if key):
        html = (site / uri.removesuffix(".md") / "index.html").read_text("utf-8")
        top = html.partition('class="k-top"')[2].partition('class="k-file"')[0]
        assert top.count("<svg") >= 1 and "k-card" in top, uri
        assert 'class="k-picture" href="#L0"' not in top
    listed = (site / "kernels/index.html").read_text("utf-8")
    assert listed.count('class="drawn thumb"') == sum(map(bool, shown.values())) > 30
    assert listed.count('class="k-entry"') == len(shown)
    copy = (site / "kernels/index.md").read_text("utf-8")
    assert "Picture, on the page" not in copy and copy.count("](tutorials/softmax/index.md)") >= 1


def test_every_picture_is_shown_somewhere():
    files = [path for folder in ("annotated_examples", "exercises") for path in (ROOT / folder).rglob("*.py")]
    files += (ROOT / "docs/about").glob("*.md")
    shown = {key for listed in pages().values() for key in listed}
    shown |= {found["argument"] for path in files for found in pictures.FIGURE.finditer(path.read_text("utf-8"))}
    assert shown == set(keys())


@pytest.mark.parametrize("key", keys())
def test_a_picture_has_words_for_those_who_do_not_see_it(key):
    drawn = pictures.found(ROOT, key)
    assert len(drawn["alt"]) > 40 and drawn["alt"].endswith(".") and drawn["caption"].endswith(".")
    assert "`" not in drawn["alt"] + drawn["caption"], "neither of them is Markdown"
    assert key.startswith("work/") or re.search(r"\d", drawn["alt"]), "the numbers are what a picture is for"
    for panel in drawn["panels"]:
        svg = ElementTree.fromstring(panel)
        assert svg.get("viewBox").split()[2] == "360"
        assert not re.search(r"#[0-9a-f]{3,6}|rgb", panel), "a colour of its own is wrong on a light or on a dark page"


def test_an_unknown_picture_is_reported():
    with pytest.raises(pictures.NoPicture, match="hardware/none"):
        pictures.found(ROOT, "hardware/none")
    with pytest.raises(pictures.NoPicture, match="nowhere"):
        pictures.found(ROOT, "nowhere/none")


def test_the_card_is_the_one_of_the_guide(scripts):
    card = scripts("card")
    table = (ROOT / "docs/guides/how-a-gpu-runs-triton.md").read_text("utf-8")
    table = table.partition("## From a program to threads")[0]
    rows = {row[0].split(",")[0]: row[1] for row in re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|", table, re.M)}
    said = {
        "streaming multiprocessors (SMs)": str(card.SMS),
        "warps an SM can hold": f"{card.WARPS}, of 32",
        "registers of an SM": f"{card.REGISTERS:,} of 32 bits",
        "shared memory of an SM": f"{card.SHARED_KB} KB",
        "L2 cache": f"{card.L2_MB} MB",
        "memory": f"{card.MEMORY_GB} GB at {card.BANDWIDTH_TB_S} TB/s",
        "float32": f"{card.FLOAT32_TFLOP_S} TFLOP/s",
        "bfloat16": f"{card.MATRIX_TFLOP_S} TFLOP/s",
    }
    assert (
        not [name for name, words in said.items() if not rows[name].startswith(words)] and card.guide().SMS == card.SMS
    )


@pytest.fixture(scope="module")
def scripts():
    """Imports a script of docs/figures by its name, leaving nothing there that the site would publish."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FIGURES))
        patch.setattr(sys, "dont_write_bytecode", True)
        yield importlib.import_module


def test_the_marked_points_of_the_curves_are_where_the_slopes_vanish(scripts):
    gelu, silu = scripts("curves").gelu().alt, scripts("curves").silu().alt
    assert f"steepest slope 1.129 at {2**0.5:.2f}" in gelu, "its second derivative is (2 - x²) times the normal density"
    least = 1.2784645  # where 1 + x (1 - sigmoid(x)) is zero
    assert f"least value {1 - least:.3f} at {-least:.2f}" in silu, "there SiLU is x + 1"


def test_measurements_stay_inside_the_roofline(scripts):
    roofline = scripts("hardware").roofline()
    dots = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="4.5"', roofline.panels[0])
    assert len(dots) == len(roofline.facts["dots"]) > 15
    for x, y in dots:
        assert 44 + 4 < float(x) < 350 - 4 and 42 + 4 < float(y) < 278 - 4


#: Text that sticks out of its drawing, or is smaller than 11 pixels, or lies on another one.
FAULTS = """(() => [...document.querySelectorAll('.drawn svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect()
  const texts = [...svg.querySelectorAll('text')].filter(text => text.textContent.trim())
  const boxes = texts.map(text => text.getBoundingClientRect())
  const meet = (a, b) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4
  return texts.flatMap((text, i) => {
    const box = boxes[i], size = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a
    const faults = []
    const inside = box.left >= frame.left - 1 && box.right <= frame.right + 1 && box.bottom <= frame.bottom + 1
    if (!inside) faults.push('outside')
    if (boxes.some((other, j) => j > i && meet(box, other))) faults.push('lies on another')
    if (size < 11) faults.push(`${size} px`)
    return faults.map(fault => `${text.textContent}: ${fault}`)
  })
}))()"""


#: Pictures whose panels end above the place that was made for them.
ROOM = """[...document.querySelectorAll('.drawn .panels')].filter(panels => {
  const ends = [...panels.querySelectorAll('svg')].map(svg => svg.getBoundingClientRect().bottom)
  return panels.getBoundingClientRect().bottom > Math.max(...ends) + 8
}).map(panels => panels.textContent.slice(0, 40))"""


@pytest.mark.parametrize("width", [390, 1440])
def test_pictures_can_be_read(browser, address, width):
    browser.open(urljoin(address, "guides/numerics/"), width=width)
    html = json.dumps("".join(pictures.html(ROOT, key) for key in keys()))
    browser.run(f"document.querySelector('article').innerHTML = {html}")
    assert browser.run(FAULTS) == []
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run(ROOM) == [], "nothing but room below the panels"


def test_copies_have_the_words(site):
    copy = (site / "guides/keep-the-card-busy/index.md").read_text("utf-8")
    assert pictures.found(ROOT, "hardware/memory")["alt"] in copy.replace("\n", " ")
    notebook = json.loads((site / "learn/reductions.ipynb").read_text("utf-8"))
    assert "[[figure" not in json.dumps(notebook)


if __name__ == "__main__":
    for page, shown in pages().items():
        print(f"{page:60} {', '.join(shown) or '-'}")


def test_the_waits_of_a_step_are_the_kernel_s(scripts):
    lines, _ = scripts("below").step_of_products()
    drawn = re.findall(r"wait\((\d)\): (\w+)", "\n".join(words for words, _ in lines))
    kernel = (ROOT / "annotated_examples/gluon/flash_attention_backward.py").read_text("utf-8")
    assert [(n, name.lower()) for n, name in drawn] == re.findall(r"warpgroup_mma_wait\((\d), deps=\((\w+),", kernel)
