"""The home page: what it is in five seconds, a kernel that plays at once, one line to change and a real run."""

import pytest

from tests.site.browser import Browser
from tests.site.test_accessible import violations
from tests.site.test_recorded_run import convert
from tests.site.test_site import ROOT, text

LIVE = "[data-academy=live]"
STATE = f"document.querySelector('{LIVE}').dataset.state"
OUT = f"[...document.querySelectorAll('{LIVE} .p-strips tr:last-child td')].map(cell => cell.textContent)"
NOW = f"document.querySelector('{LIVE} .p-live-now').textContent"
SIZES = [(1440, 900), (390, 844)]


@pytest.fixture(scope="module")
def page():
    pytest.importorskip("triton", reason="without triton nothing is recorded")
    own = Browser()
    yield own
    assert not own.errors
    own.close()


def opened(page, address, **window):
    page.fresh(address, **window)
    page.wait(f"{STATE} === 'playing'")


def bottom(page, selector):
    return page.run(f"document.querySelector({selector!r}).getBoundingClientRect().bottom")


@pytest.mark.parametrize("width, height", SIZES)
def test_a_kernel_plays_above_the_fold_and_nothing_is_cut_or_moves(page, address, width, height):
    opened(page, address, width=width, height=height)
    shown = page.run("performance.now()")
    assert page.run(OUT)[:4] == ["0", "11", "22", "33"], "what the first program has written is there at once"
    assert shown < 5000, "one second on a machine that does nothing else"
    for part in ("h1", ".lead", f"{LIVE} .p-strips", f"{LIVE} [data-action=run]", f"{LIVE} .p-change"):
        assert 0 < bottom(page, part) <= height, (part, bottom(page, part))
    seen = "list => done(list.getEntries().reduce((sum, entry) => sum + entry.value, 0))"
    moved = f"new PerformanceObserver({seen}).observe({{ type: 'layout-shift', buffered: true }})"
    assert page.run(f"new Promise(done => {{ {moved}; setTimeout(done, 500, 0) }})") < 0.02, "when the script comes"
    cut = (
        f"[...document.querySelectorAll('{LIVE} :is(.p-l, .p-c, .p-v)')].filter(e => e.scrollWidth > e.clientWidth + 1)"
    )
    for program in ("0", "1"):
        page.wait(f"{NOW}.startsWith('Program {program} of 0 to 2: writes')", 30)
        assert page.run(f"{cut}.map(e => e.textContent)") == [], program


def test_it_plays_to_the_end_and_pauses(page, address):
    opened(page, address, width=390, height=844)
    page.wait(f"({OUT})[4] === '44' && {NOW}.startsWith('Program 1 of 0 to 2')", 20)
    assert page.run(f"document.querySelector('{LIVE} .p-now .p-v')?.textContent ?? 'a step without a name'")
    page.run(f"document.querySelector('{LIVE} [data-action=play]').click()")
    stopped = page.run(NOW)
    page.run("new Promise(done => setTimeout(done, 900))")
    assert page.run(NOW) == stopped, "Pause stops it"
    page.run(f"document.querySelector('{LIVE} [data-action=play]').click()")
    page.wait(f"({OUT}).at(-1) === '99' && {NOW}.startsWith('All 3 programs')", 30)


def test_who_asks_for_less_motion_sees_the_end(page, address):
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    page.fresh(address)
    page.wait(f"{STATE} === 'playing'")
    page.call("Emulation.setEmulatedMedia", features=[])
    assert page.run(OUT) == [str(11 * n) for n in range(10)]


def test_one_line_is_changed_and_run_and_kept(page, address):
    opened(page, address, width=390, height=844)
    asked = len(page.requests)
    places = f"['.p-strips', '[data-action=run]'].map(part => document.querySelector(`{LIVE} ${{part}}`).offsetTop)"
    before = page.run(f"[{places}, document.querySelector('.tracks').offsetTop, scrollY]")
    page.run(f"document.querySelector('{LIVE} [data-line]').click()")
    page.wait(f"{STATE} === 'differs'", 120)
    assert page.run(f"[{places}, scrollY]") == [before[0], before[2]], "what is watched stays where it was"
    assert page.run("document.querySelector('.tracks').offsetTop") - before[1] < 250, "the outcome, and no second code"
    assert page.run(OUT) == [str(10 * n * n) for n in range(10)], "x * y"
    assert all(url.startswith((address, "data:", "blob:")) for url in page.requests[asked:])
    begun = page.run("performance.now()")
    typed = "(field => {{ field.value = {!r}; field.dispatchEvent(new Event('input')) }})"
    page.run(typed.format("out = y - x") + f"(document.querySelector('{LIVE} .p-change'))")
    page.run(f"document.querySelector('{LIVE} [data-action=run]').click()")
    page.wait(f"({OUT})[9] === '81'", 30)
    assert page.run("performance.now()") - begun < 5000, "one second on a machine that does nothing else"
    for line, said in ("out = x + z", "The names of this function are"), ("out = x +", "invalid syntax"):
        page.run(typed.format(line) + f"(document.querySelector('{LIVE} .p-change'))")
        page.run(f"document.querySelector('{LIVE} [data-action=run]').click()")
        page.wait(
            f"{STATE} === 'error' && document.querySelector('{LIVE} .p-outcome').innerText.includes('{said}')", 30
        )
        assert "have run" not in page.run(NOW), "it has stopped"
        assert page.run(f"document.querySelectorAll('{LIVE} .p-wrong').length") == 1, "its line is marked"
    assert violations(page) == []
    opened(page, address)
    assert page.run(f"document.querySelector('{LIVE} .p-change').value") == "out = x +", "kept at every key"
    page.run(f"document.querySelector('{LIVE} [data-action=reset]').click()")
    opened(page, address)
    assert page.run(f"document.querySelector('{LIVE} .p-change').value") == "out = x + y"


def test_home_says_for_whom_and_how_long(site):
    home = text(site, "")
    assert "You should know Python and a little PyTorch" in home
    assert home.count('<li><strong><a href="learn/#') + home.count('<li>\n<p><strong><a href="learn/#') == 3, (
        "the tracks"
    )
    copy = (site / "index.md").read_text("utf-8")
    assert "def vector_add_kernel(" in copy and "out = x + y" in copy and "Pause" not in copy


def test_a_line_that_is_not_there_is_a_mistake(logged):
    path = "annotated_examples/tutorials/vector_add.py"
    made, problems = convert(f"[[live: {path} vector_add_kernel: out = x + y | out = x]]", logged)
    change = int(made.partition('data-change="')[2].partition('"')[0])
    assert (ROOT / path).read_text().split("\n")[change - 1].strip() == "out = x + y" and not problems
    assert "has the line 'out = x' 0 times" in convert(f"[[live: {path} vector_add_kernel: out = x]]", logged)[1][0]
    assert "no.py does not exist" in convert("[[live: no.py f: out = x]]", logged)[1][-1]
