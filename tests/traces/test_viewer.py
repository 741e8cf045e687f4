"""The viewer in a real browser: programs, steps, iterations, deep links, phone, dark, keyboard, accessibility."""

import itertools
import json
import re
from pathlib import Path

import pytest

from academy.traces import page, store
from tests.site.browser import Browser

ROOT = Path(__file__).parents[2]
#: By their names, such as "classics.matmul": a lesson and its fast version share the last part.
FILES = {store.name(path).removeprefix("annotated_examples."): path for path in store.kernel_files()}


@pytest.fixture(scope="module")
def browser():
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Address of the self-contained page of a kernel."""
    folder = tmp_path_factory.mktemp("pages")

    def address(name: str, fragment: str = "") -> str:
        out = folder / f"{name}.html"
        if not out.exists():
            path = FILES[name]
            out.write_text(page.standalone(path, store.load([path])[path]))
        return f"{out.as_uri()}{fragment}"

    return address


@pytest.fixture
def matmul(browser, pages):
    open_page(browser, pages("classics.matmul"))
    return browser


def open_page(browser, address, **window):
    browser.open("about:blank")  # a change of the fragment alone would not load the page again
    browser.errors.clear(), browser.requests.clear()
    browser.open(address, **window)
    browser.wait("document.querySelector('.t-stepper') !== null")


def pressed(browser):
    return browser.run("document.querySelector('.t-programs [aria-pressed=true]').textContent")


def title(browser):
    return browser.run("document.querySelector('.t-title').textContent")


def click(browser, selector):
    browser.run(f"document.querySelector({selector!r}).click()")


def pick_launch(browser, number):
    picker = "document.querySelector('.t-head select')"
    browser.run(f"{picker}.selectedIndex = {number}; {picker}.dispatchEvent(new Event('change'))")


def key(browser, name, modifiers=0):
    codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13}
    for kind in ("keyDown", "keyUp"):
        browser.call(
            "Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=codes[name], modifiers=modifiers
        )


def line_of(name, text):
    return next(i for i, line in enumerate(FILES[name].read_text().split("\n"), 1) if text in line)


def beside(browser, line):
    return browser.run(f"document.querySelector('.k-l:has(> [data-n=\"{line}\"]) .t-val')?.textContent ?? ''")


def test_programs_can_be_picked(matmul):
    line = line_of("classics.matmul", "pid_m, pid_n = grouped_order(")
    click(matmul, "[data-t-key=p14]")
    assert pressed(matmul) == "14"
    assert beside(matmul, line) == "pid_m 5pid_n 0"  # two chips
    click(matmul, "[data-t-key=p29]")
    assert beside(matmul, line) == "pid_m 7pid_n 2"
    assert matmul.run("location.hash").startswith("#pid=29&line=")
    assert not matmul.errors


def test_steps_and_rounds(matmul):
    load = line_of("classics.matmul", "a = tl.load(a_ptrs")
    matmul.run(f"location.hash = '#pid=29&line={load}&k=0'")
    matmul.wait(f"document.querySelector('.t-title').textContent === 'After line {load}, k = 0'")
    first = beside(matmul, load)
    assert first.startswith("a [[") and "reads 4 in a_ptr" in first
    key(matmul, "ArrowRight", modifiers=8)
    assert title(matmul) == f"After line {load}, k = 1" and beside(matmul, load) != first
    key(matmul, "ArrowLeft", modifiers=8)
    assert beside(matmul, load) == first
    key(matmul, "ArrowRight")
    assert title(matmul) == f"After line {load + 1}, k = 0"
    click(matmul, "[data-t-key=back]")
    assert title(matmul) == f"After line {load}, k = 0"
    click(matmul, f'.k-n[data-n="{load + 1}"] + .k-c')
    assert title(matmul) == f"After line {load + 1}, k = 0"


def test_landmarks_and_loops_by_their_line(matmul):
    marks = "[...document.querySelectorAll('.t-ticks .t-tick')].map(tick => tick.className.split('t-m-')[1])"
    kinds = matmul.run(marks)
    assert kinds[:3] == ["load", "load", "dot"] and kinds[-1] == "store" and kinds.count("dot") == 8
    click(matmul, "[data-t-key=m-store]")
    store = line_of("classics.matmul", "tl.store(c_ptr")
    assert title(matmul) == f"After line {store}"
    click(matmul, "[data-t-key=m-load]")  # from the last load on, the first one again
    assert title(matmul) == f"After line {line_of('classics.matmul', 'a = tl.load(a_ptrs')}, k = 0"
    loop = line_of("classics.matmul", "for k in range(")
    assert matmul.run("document.querySelector('.t-loop').textContent").endswith(f"line {loop}: k = 0, round 1 of 8")


def test_the_line_that_called_a_function_of_another_file_is_marked(matmul):
    line = line_of("classics.matmul", "pid_m, pid_n = grouped_order(")
    matmul.run(f"location.hash = '#pid=29&line={line}'")
    matmul.wait(f"document.querySelector('.t-title').textContent === 'After line {line}'")
    marked = "[...document.querySelectorAll('.t-calls > .k-n')].map(number => +number.dataset.n)"
    assert matmul.run(marked) == []
    key(matmul, "ArrowRight")
    assert title(matmul) == "Call of grouped_order" and matmul.run(marked) == [line]
    key(matmul, "ArrowRight")
    assert "tile_order.py" in title(matmul) and matmul.run(marked) == [line]


def test_what_the_reader_knows_is_not_said_again(matmul):
    matmul.run("document.querySelector('.t-track input').value = 0")
    matmul.run("document.querySelector('.t-track input').dispatchEvent(new Event('input'))")
    arguments = matmul.run("[...document.querySelectorAll('.t-args .t-var code')].map(code => code.textContent)")
    assert "M" in arguments and "BLOCK_K" in arguments and "a_ptr" not in arguments
    assert matmul.run("document.querySelector('.t-now .t-later').textContent") == "still to come"


def test_heat_map(matmul):
    click(matmul, "[data-t-key=heat]")
    cells = "[...document.querySelectorAll('.t-memory td.t-warm')]"
    shares = matmul.run(f"{cells}.map(cell => parseInt(cell.style.getPropertyValue('--t-share')))")
    assert max(shares) == 85 and min(shares) < 40
    assert matmul.run(f"getComputedStyle({cells}[0]).color") == "rgba(0, 0, 0, 0)"
    click(matmul, "[data-t-key=heat]")
    assert matmul.run(f"{cells}.length") == 0


def test_a_mounted_run_can_be_removed(browser, pages):
    open_page(browser, pages("tutorials.vector_add"))
    browser.run("window.data = null; document.body.insertAdjacentHTML('beforeend', '<div id=here></div>')")
    data = page.viewer_data(
        FILES["tutorials.vector_add"], store.load([FILES["tutorials.vector_add"]])[FILES["tutorials.vector_add"]]
    )
    shown = json.dumps({"data": data, "source": "first\nsecond"})
    browser.run(f"window.other = academyViewer.mount(document.querySelector('#here'), ({shown}).data, ({shown})); null")
    assert browser.run("document.querySelectorAll('#here .k-l').length") == 2
    browser.run("other.go({ pid: [1, 0, 0], step: 3 }); other.focus()")
    key(browser, "ArrowRight")
    assert browser.run("document.querySelector('#here .t-count').textContent") == "5 of 8"
    assert browser.run("location.hash") == ""
    browser.run("other.remove()")
    assert browser.run("document.querySelectorAll('#here .t-val, #here .t-stepper').length") == 0 and not browser.errors


def test_memory_shows_what_is_read_and_written(matmul):
    load = line_of("classics.matmul", "a = tl.load(a_ptrs")
    matmul.run(f"location.hash = '#pid=29&line={load}&k=1'")
    matmul.wait("document.querySelectorAll('.t-memory td.t-r').length === 4")
    found = "[...document.querySelectorAll('.t-memory td.t-r')].map(cell => cell.title.split(']')[0] + ']')"
    assert matmul.run(found) == ["[14, 2]", "[14, 3]", "[15, 2]", "[15, 3]"]
    assert matmul.run("document.querySelectorAll('.t-memory td.t-r0').length") == 8  # both inputs' blocks of round 0
    status = matmul.run("document.querySelector('[role=status]').textContent")
    assert status.startswith(f"Program 29, After line {load}, k = 1") and "reads 4 in a_ptr" in status


def test_whole_launch_shows_order_and_reuse(matmul):
    click(matmul, "[data-t-key=p0]")
    click(matmul, "[data-t-key=wtrue]")
    caption = "[...document.querySelectorAll('.t-memory caption')].map(c => c.textContent)"
    assert "c_ptr 16×8, by which program written" in matmul.run(caption)
    written = matmul.run(
        "[...[...document.querySelectorAll('.t-memory table')]"
        ".find(table => table.caption.textContent.startsWith('c_ptr')).rows]"
        ".map(row => [...row.cells].map(cell => +cell.textContent))"
    )
    # Each tile of 2x2 by one program; the last group has two rows of tiles.
    assert written[0] == [0, 0, 3, 3, 6, 6, 9, 9] and written[12] == [24, 24, 26, 26, 28, 28, 30, 30]
    assert written[14] == [25, 25, 27, 27, 29, 29, 31, 31]
    reuse = matmul.run("document.querySelector('.t-reuse').textContent")
    # Five programs: three rows and two columns of tiles need 24 + 16 blocks; a row of four and one tile need 16 + 32.
    assert "The order saves most after 5 programs: 40 blocks instead of 48." in reuse
    facts = matmul.run("document.querySelector('.t-memory .t-facts').textContent")
    assert "reads 1536 different bytes for 8192 requested: each byte 5.33 times" in facts
    matmul.run("document.querySelector('.t-memory td.t-order:last-child').click()")
    assert pressed(matmul) == "9"
    click(matmul, "[data-t-key=wfalse]")


def test_where_a_store_goes(browser, pages):
    line = line_of("tutorials.softmax", "tl.store(y_ptr + offs_n")
    open_page(browser, pages("tutorials.softmax", f"#pid=1&line={line}&start=4"))
    cells = "[...document.querySelectorAll('.t-now td')].map(cell => cell.title)"
    found = browser.run(cells)
    assert len(found) == 4 and found[0].endswith("goes to y_ptr[1, 4], offset 10") and found[3].endswith("masked off")
    captions = browser.run("[...document.querySelectorAll('.t-memory caption')].map(c => c.textContent)")
    assert captions == ["x_ptr 3×6, float32, strides (8, 1)", "y_ptr 3×6, float32"]


def test_cells_by_keyboard(matmul):
    matmul.run("document.querySelector('.t-memory table').focus()")
    for name in ("ArrowRight", "ArrowRight", "ArrowDown"):
        key(matmul, name)
    assert matmul.run("document.querySelector('[role=status]').textContent").startswith("[1, 1]")


def test_programs_by_keyboard(matmul):
    click(matmul, "[data-t-key=p3]")
    matmul.run("document.querySelector('[data-t-key=p3]').focus()")
    key(matmul, "ArrowDown")
    assert pressed(matmul) == "19" and matmul.run("document.activeElement.textContent") == "19"


def test_several_launches(matmul):
    pick_launch(matmul, 1)
    assert "activation_backward_kernel" in title(matmul)  # it stands in another file than the page's
    key(matmul, "ArrowRight")
    assert title(matmul).startswith("After annotated_examples/common/activations.py:")
    assert "&launch=1" in matmul.run("location.hash")


#: Those of `make test`; `make site-check` opens all.
SHORT = "tutorials.vector_add", "classics.layernorm", "fast.decode"
ACCESSIBLE = [
    (1440, False, False),
    (390, True, True),
    *(
        pytest.param(*case, marks=pytest.mark.site_check)
        for case in itertools.product((1440, 390), (False, True), (False, True))
        if case not in [(1440, False, False), (390, True, True)]
    ),
]


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.site_check) for name in FILES]
)
@pytest.mark.parametrize("width, dark", [(1440, False), (390, True)])
def test_every_kernel_runs_without_errors(browser, pages, name, width, dark):
    open_page(browser, pages(name), width=width, height=900, dark=dark)
    launches = browser.run("document.querySelectorAll('.t-head option').length") or 1
    for launch in range(launches):
        if launches > 1:
            pick_launch(browser, launch)
        click(browser, "[data-t-key=wtrue]")
        reuse = browser.run("document.querySelector('.t-reuse')?.textContent ?? ''")
        assert not re.search(r"(\b\d+) blocks instead of \1\.", reuse), reuse
        click(browser, "[data-t-key=wfalse]")
        slider = "document.querySelector('.t-track input')"
        browser.run(f"{slider}.value = {slider}.max; {slider}.dispatchEvent(new Event('input'))")
    text = browser.run("document.querySelector('.t-view').textContent")
    assert not browser.errors and "undefined " not in text and "NaN" not in text and "[object" not in text
    assert browser.requests == [] or all(url.startswith(("file:", "about:", "data:")) for url in browser.requests)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width, dark, whole", ACCESSIBLE)
def test_accessibility(browser, pages, width, dark, whole):
    load = line_of("classics.matmul", "a = tl.load(a_ptrs")
    open_page(browser, pages("classics.matmul", f"#pid=29&line={load}&k=1"), width=width, height=900, dark=dark)
    if whole:
        click(browser, "[data-t-key=wtrue]")
    assert browser.violations() == []


RING = "gluon.tile_copy"


def at_step(browser, step):
    slider = "document.querySelector('.t-lanes input[type=range]')"
    browser.run(f"{slider}.value = {step}; {slider}.dispatchEvent(new Event('input'))")
    return browser.run("document.querySelector('.t-l-told').textContent")


def lane_labels(browser):
    return browser.run("[...document.querySelectorAll('.t-l-name')].map(name => name.textContent)")


@pytest.fixture
def ring(browser, pages):
    open_page(browser, pages(RING), width=1440, height=900)
    browser.wait("document.querySelector('.t-l-tracks') !== null")
    return browser


def test_lanes_show_what_overlaps(ring):
    recording = store.load([FILES[RING]])[FILES[RING]]
    orders = recording.data["launches"][0]["orders"]
    first = orders[0]
    (load, *_) = (span for span in first["spans"] if span["what"] == "TMA load")
    told = at_step(ring, load["from"])
    assert told == f"TMA a TMA load of kernel begins: it writes x_s[0] line {load['line']}"
    labels = lane_labels(ring)
    assert labels[:2] == ["kernel", "TMA"] and "x_s[0] TMA load of kernel" in labels and "y_s[0] nobody" in labels
    assert "full[0] phase 0, 1 of 1 arrival, 1,024 bytes to come" in labels
    at_step(ring, load["to"] + 1)
    assert "x_s[0] nobody" in lane_labels(ring)
    bars = "[...document.querySelector('.t-l-row:nth-child(3) .t-l-track').children]"
    units = [span for span in first["spans"] if span["lane"] == "TMA"]
    assert ring.run(f"{bars}.map(bar => bar.title)") == [f"{span['what']}: {span['buffer']}" for span in units]
    wide = ring.run(f"parseFloat({bars}[0].style.width) + 1") / (load["to"] - load["from"] + 1)
    assert ring.run(f"{bars}.map(bar => parseFloat(bar.style.left))") == [span["from"] * wide for span in units]
    assert "not a measurement" in ring.run("document.querySelector('.t-lanes').textContent") and not ring.errors


def test_lanes_in_another_order_by_keyboard_and_by_line(ring):
    recording = store.load([FILES[RING]])[FILES[RING]]
    orders = recording.data["launches"][0]["orders"]
    (number,) = [n for n, order in enumerate(orders) if order["told"] != orders[0]["told"]][:1]
    picker = "document.querySelector('.t-lanes select')"
    ring.run(f"{picker}.selectedIndex = {number}; {picker}.dispatchEvent(new Event('change'))")
    for step, (lane, line, words) in enumerate(orders[number]["told"]):
        assert at_step(ring, step) == f"{lane} {words} line {line}"
    before = title(ring)
    at_step(ring, 2)
    ring.run("document.querySelector('.t-lanes input[type=range]').focus()")
    key(ring, "ArrowRight")
    assert ring.run("document.querySelector('.t-lanes .t-count').textContent") == f"4 of {orders[number]['steps']}"
    assert title(ring) == before, "the slider's keys are its own"
    line = orders[number]["told"][3][1]
    click(ring, ".t-l-told button")
    assert title(ring).startswith(f"After line {line}")
    # A launch without lanes shows none; one with others shows its own.
    pick_launch(ring, 1)
    ring.wait("document.querySelector('.t-l-name')?.textContent === 'kernel'")
    assert ring.run("document.querySelector('.t-lanes input[type=range]').max") == str(
        recording.data["launches"][1]["orders"][0]["steps"] - 1
    )


@pytest.mark.parametrize("width, dark", [pytest.param(1440, False, marks=pytest.mark.nightly), (390, True)])
def test_lanes_are_accessible(browser, pages, width, dark):
    open_page(browser, pages(RING), width=width, height=900, dark=dark)
    browser.wait("document.querySelector('.t-l-tracks') !== null")
    assert browser.violations(".t-lanes") == []
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


def test_no_lanes_where_nothing_is_asynchronous(matmul):
    assert matmul.run("document.querySelectorAll('.t-l-tracks').length") == 0
    assert "lanes.js" not in "".join(matmul.requests)
