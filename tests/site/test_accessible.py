"""Pages for everybody: axe finds nothing, what is wide scrolls by keyboard, phones have a menu, paper no controls.

Here a page of each kind; `make site-check` takes all of them, in both themes and at both widths.
"""

import re
from urllib.parse import urljoin

import pytest

KERNEL = "kernels/classics/layernorm/"
PHONE = {"width": 390, "height": 844}


#: What is far from the window is not laid out and has a guessed height, so that it seems to lie over what follows. A
#: reader who comes there finds it laid out, and so does axe.
LAID_OUT = """document.head.append(Object.assign(document.createElement("style"),
    { textContent: "* { content-visibility: visible !important; transition: none !important }" }))"""


def violations(browser) -> list[str]:
    """What axe finds on a page that is laid out as a whole, when the page's script has found all boxes that scroll."""
    browser.run(LAID_OUT)
    browser.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 100)))")
    return browser.violations()


@pytest.mark.parametrize(
    "page, window",
    [
        ("", {**PHONE, "dark": True}),
        ("kernels/tutorials/vector_add/", {}),
        ("learn/first_kernel/", PHONE),
        ("benchmarks/layernorm/", PHONE),
        pytest.param("derivations/linear_cross_entropy/", PHONE, id="a formula that is a pixel too wide"),
    ],
)
def test_axe_finds_nothing(browser, address, page, window):
    browser.open(urljoin(address, page), **window)
    assert violations(browser) == []


def test_what_is_folded_counts_in_the_guessed_height_of_a_row(site):
    """Else the places to press of two such rows out of sight lie over each other."""
    rows = re.split(r'(?=<div class="k-row)', (site / "kernels/moe/router/index.html").read_text("utf-8"))[1:]
    bars = [len(re.findall(r'class="(?:k-code highlight k-fold|k-helper)"', row)) for row in rows]
    lines = [int(re.search(r"--k-lines:(\d+)", row)[1]) for row in rows]
    assert sum(bars) > 5 and all(count >= 2 * each for count, each in zip(lines, bars))


@pytest.mark.parametrize(
    "page, boxes",
    [
        (KERNEL, ".k-code code"),
        ("learn/first_kernel/", "pre > code"),
        ("derivations/layernorm/", "div.arithmatex"),
        ("guides/what-is-verified/", ".md-typeset__scrollwrap"),
        ("benchmarks/layernorm/", "details[open] > .bench-scroll"),
    ],
)
def test_what_is_wide_scrolls_by_keyboard(browser, address, page, boxes):
    browser.open(urljoin(address, page), **PHONE)
    browser.run(LAID_OUT)
    is_wide = "b => b.checkVisibility() && b.scrollWidth > b.clientWidth + 1"
    wide = f"[...document.querySelectorAll('{boxes}')].filter({is_wide})"
    assert browser.run(f"{wide}.length") > 0
    browser.wait(f"{wide}.every(b => b.tabIndex === 0)")
    browser.run(f"{wide}[0].focus()")
    browser.press("ArrowRight")
    browser.wait("document.activeElement.scrollLeft > 0")


def test_the_menu_of_a_phone_leads_to_a_page(browser, address):
    browser.open(urljoin(address, KERNEL), **PHONE)
    shown = "document.querySelector('.md-sidebar--primary').getBoundingClientRect().right > 50"
    assert not browser.run(shown)
    link = "[...document.querySelectorAll('.md-sidebar--primary a')].find(a => a.textContent.trim() === 'Guides')"
    focused = f"(() => {{ const link = {link}; link.focus(); return document.activeElement === link }})()"
    assert not browser.run(focused), "a link of a closed menu"
    browser.run("document.querySelector('.md-header label[for=__drawer]').click()")
    browser.wait(shown)
    browser.wait(focused)
    browser.run(f"setTimeout(() => {link}.click())")
    browser.wait("location.pathname.includes('/guides/') && document.readyState === 'complete'")
    browser.run("document.querySelector('.md-header label[for=__drawer]').click()")
    browser.wait(shown)
    browser.run("document.querySelector('.md-overlay').click()")
    browser.wait(f"!({shown})")


def test_the_address_of_a_row_shows_it_below_the_bar(browser, address):
    """Rows out of sight are not laid out; a link to one has to find it all the same."""
    browser.fresh(urljoin(address, f"{KERNEL}#layernorm_backward_kernel"))
    top = "document.getElementById('layernorm_backward_kernel').getBoundingClientRect().top"
    bar = browser.run("document.querySelector('.k-bar').getBoundingClientRect().bottom")
    assert bar < browser.wait(top) < bar + 60


@pytest.fixture
def paper(browser, address):
    browser.open(urljoin(address, KERNEL), width=700, dark=True)
    browser.call("Emulation.setEmulatedMedia", media="print")
    yield browser
    browser.call("Emulation.setEmulatedMedia", media="")


def test_a_printed_kernel_is_notes_and_code_in_one_column(paper):
    hidden = ".md-header, .md-tabs, .md-sidebar, .md-footer, .md-path, .k-bar, .k-contents, .md-code__nav, .headerlink"
    assert paper.run(f"[...document.querySelectorAll('{hidden}')].every(e => !e.checkVisibility())")
    row = "document.querySelector('#layernorm_reference')"
    note, code = (
        paper.run(f"{row}.querySelector('{part}').getBoundingClientRect().toJSON()") for part in (".k-note", "pre")
    )
    assert note["bottom"] <= code["top"] + 1 and abs(note["left"] - code["left"]) < 30 and code["width"] > 600
    assert paper.run("[...document.querySelectorAll('.k-code code')].every(c => c.scrollWidth <= c.clientWidth + 1)")
    assert paper.run("getComputedStyle(document.body).getPropertyValue('--md-default-bg-color').trim()") == "#fff"
    assert paper.run("getComputedStyle(document.querySelector('.k-note p')).color") == "rgb(0, 0, 0)"


def test_a_printed_kernel_takes_few_pages(browser, address, tmp_path):
    browser.open(urljoin(address, "kernels/tutorials/vector_add/"))
    browser.pdf(tmp_path / "page.pdf")
    assert 1 < (tmp_path / "page.pdf").read_bytes().count(b"/Type /Page\n") < 8
