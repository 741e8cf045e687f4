"""The recorded run on a built page: the switch, data that loads when it is needed, links into the run, no
JavaScript."""

import re

import markdown
import pytest

from academy.book import layout
from academy.book.splitter import split
from academy.results import changes
from academy.site import playground_page, project_parts
from academy.traces import store
from tests.site.conftest import ROOT

pytest.importorskip("triton", reason="recording needs triton")
PAGE = "kernels/classics/layernorm/"


def opened(browser, address, fragment=""):
    browser.open("about:blank")
    browser.errors.clear(), browser.requests.clear()
    browser.open(address + PAGE + fragment)
    return browser


def test_data_loads_only_when_the_reader_asks(browser, address):
    page = opened(browser, address)
    data = "assets/traces/data/classics.layernorm.js"
    assert not any(data in url for url in page.requests)
    page.run("document.querySelector('[data-k-mode=run]').click()")
    page.wait("document.querySelector('.t-stepper') !== null")
    assert any(data in url for url in page.requests) and not page.errors
    assert all(url.startswith((address, "data:", "about:")) for url in page.requests)
    line = "[...document.querySelectorAll('.k-l')].find(l => l.textContent.includes('tl.arange(0, BLOCK_N)'))"
    assert page.run(f"{line}.querySelector('.t-val').textContent").startswith("offs_n [0, 1, 2, 3]")
    page.run("document.querySelector('[data-k-mode=read]').click()")
    assert page.run("getComputedStyle(document.querySelector('.k-panel')).display") == "none"
    assert page.run("getComputedStyle(document.querySelector('.t-val')).display") == "none"
    assert page.run("location.hash") == ""


def test_every_kernel_page_carries_its_run(site):
    pages = {path: layout.module_name(layout.ROOT, path).replace(".", "/") for path in store.kernel_files()}
    has_run = lambda page: 'class="t-view"' in (site / "kernels" / page / "index.html").read_text("utf-8")  # noqa: E731
    lacking = [store.shorten(path) for path, page in pages.items() if not has_run(page)]
    assert not lacking, f"no recorded run on the page of {', '.join(lacking)}"


def place(page, selector):
    """Where the middle of an element stands in the window: 0 at its top, 1 at its bottom."""
    box = f"document.querySelector({selector!r}).getBoundingClientRect()"
    return page.run(f"({box}.top + {box}.bottom) / 2 / innerHeight")


@pytest.mark.parametrize("width", [1440, pytest.param(390, marks=pytest.mark.nightly)])
def test_run_leads_the_reader(browser, address, width):
    page = opened(browser, address)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    browser.open(address + PAGE, width=width, height=900)
    page.run("document.querySelector('[data-k-mode=run]').focus()")
    page.press("Enter")
    page.wait("document.activeElement.closest('.t-view') !== null")
    definition = '.k-l:has(> [data-n="{}"])'.format(page.run("document.querySelector('.t-now .k-n').dataset.n"))
    assert page.run(f"document.querySelector({definition!r}).textContent").startswith("def layernorm_forward_kernel")
    assert 0.05 < place(page, definition) < 1 / 3
    assert "step" in page.run("document.querySelector('.t-keys').textContent")
    # The arrow keys belong to the viewer, wherever they lead; the current line stays in the middle of what is in sight.
    places = []
    for _ in range(30):
        page.press("ArrowRight")
        places.append(place(page, ".k-l.t-now"))
    assert page.run("document.querySelector('.t-count').textContent").startswith("31 of")
    low, high = (0.3, 0.7) if width > 1000 else (0.1, 0.5)  # on a phone the panel is a sheet at the bottom
    assert all(low < place < high for place in places[-15:]), places
    title = "document.querySelector('.t-title').textContent"
    page.run("document.querySelector('[data-k-mode=run]').click()")
    while "start = 0" not in page.run(title):
        page.press("ArrowLeft")
    page.press("Shift+ArrowRight")
    assert "start = 4" in page.run(title)
    count = "document.querySelector('.t-count').textContent"
    before = page.run(count)
    page.press("Space")
    page.wait(f"{count} !== {before!r}")
    page.press("Space")
    assert page.run("document.querySelector('.t-play').textContent") == "Play"
    browser.call("Emulation.setEmulatedMedia", features=[])
    assert not page.errors


def test_a_quoted_number_leads_to_its_moment(browser, address):
    page = opened(browser, address)
    page.run("document.querySelector('.k-file').dispatchEvent(new FocusEvent('focusin'))")
    page.wait("document.querySelector('a.t-watch') !== null")
    assert page.run(
        "document.querySelectorAll('.k-note code.k-claim').length === document.querySelectorAll('a.t-watch').length"
    )
    page.run("[...document.querySelectorAll('a.t-watch')].find(a => a.textContent.includes('mean = 4')).click()")
    page.wait("document.querySelector('.k-running .k-l.t-now') !== null")
    assert page.run("document.querySelector('.k-l.t-now').textContent").startswith("    mean = tl.div_rn(")


def test_an_address_opens_the_run(browser, address):
    line = next(
        i
        for i, text in enumerate((ROOT / "annotated_examples/classics/layernorm.py").read_text().split("\n"), 1)
        if "mean = tl.div_rn(tl.sum(acc, axis=0)" in text
    )
    page = opened(browser, address, f"#pid=1&line={line}")
    page.wait("document.querySelector('.k-running .t-title') !== null")
    assert page.run("document.querySelector('.t-title').textContent") == f"After line {line}"
    assert page.run("document.querySelector('.t-programs [aria-pressed=true]').textContent") == "1"
    top = page.run("document.querySelector('.k-l.t-now').getBoundingClientRect().top")
    assert 0 < top < 1000


def test_without_javascript_the_run_is_a_table(browser, address):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.call("Page.navigate", url=address + PAGE)
        browser.wait("document.readyState === 'complete' && document.querySelector('.t-static') !== null")
        assert browser.run("getComputedStyle(document.querySelector('.k-panel')).display") == "block"
        assert browser.run("document.querySelectorAll('.t-static .t-steps tbody tr').length") > 5
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def convert(text: str, logged) -> tuple[str, list[str]]:
    html = markdown.markdown(text, extensions=["academy.site"], extension_configs={"academy.site": {"root": str(ROOT)}})
    return html, [*logged]


def test_any_text_can_draw_a_number_from_a_run(logged):
    html, problems = convert(
        "It owns `[[x]]` [[run: tutorials/vector_add: vector_add_kernel, pid=2: offsets[:2]]].", logged
    )
    assert problems == []
    assert '<code class="k-claim">[8, 9]</code>' in html and 'data-run="pid=2&amp;line=' in html


@pytest.mark.parametrize(
    "key, message",
    [
        ("tutorials/nothing: k, pid=0: x", "has no recorded run"),
        ("tutorials/vector_add: vector_add_kernel, pid=9: offsets", "there is no program 9 in the grid (3,)"),
        ("tutorials/vector_add: vector_add_kernel: nothing", "nothing has no value here"),
    ],
)
def test_a_wrong_key_is_a_problem(logged, key, message):
    _, problems = convert(f"[[run: {key}]]", logged)
    assert len(problems) == 1 and message in problems[0]


def test_a_sentence_counts_which_comparison_sees_changes(logged):
    html, problems = convert("Now [[changes: fine]].", logged)
    assert not problems and f">{changes.said('fine', ROOT)}</span>." in html
    _, problems = convert("Now [[changes: bold]].", logged)
    assert len(problems) == 1 and "nothing was counted of 'bold': coarse, fine" in problems[0]


def test_without_triton_pages_say_so(monkeypatch, logged):
    monkeypatch.setattr(project_parts, "find_spec", lambda name: None)
    html, problems = convert("[[run: tutorials/vector_add: vector_add_kernel, pid=2: n]]", logged)
    assert problems == [] and "not recorded here" in html


def test_links_into_a_run_lead_to_the_line(logged):
    html, _ = convert("[a](#pid=13&line=79&k=1) and [b](#launch=1&whole=9)", logged)
    assert 'href="#L79"' in html and 'data-run="pid=13&amp;line=79&amp;k=1"' in html
    assert 'href="#EXAMPLE"' in html and 'data-run="launch=1&amp;whole=9"' in html


def test_the_lines_of_an_editor_are_known_in_the_file(site):
    """`data-lines` says where each line of the starter stands, so that the recorded run fits the editor's text."""
    path = "annotated_examples/classics/layernorm.py"
    html = (site / PAGE / "index.html").read_text("utf-8")
    numbers = []
    for part in re.search(r'data-lines="([^"]+)"', html)[1].split():
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    lines = (ROOT / path).read_text().split("\n")
    starter = playground_page.starter(split("\n".join(lines), path)).rstrip("\n").split("\n")
    assert [lines[number - 1] if number else "" for number in numbers] == starter
