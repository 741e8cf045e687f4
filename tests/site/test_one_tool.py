"""Watch and Edit as one tool: the bar, the viewer on phones, the run beside the editor, after a check, sliders."""

import pytest

from tests.site.test_change_it import LIVE
from tests.site.test_playground import EDITOR, OUTCOME, STATE, edit, ended, page

__all__ = ["page"]  # the fixture

pytest.importorskip("triton", reason="the pages have no recorded run without triton")
KERNEL, LARGE = "kernels/tutorials/softmax/", "kernels/gemlite/gemm/"
TEXT = f"document.querySelector('{EDITOR}').academyText"


def click(page, selector):
    page.run(f"document.querySelector({selector!r}).click()")


def box(page, selector):
    """Left, top, right and bottom of an element in the window."""
    script = f"(({{ left, top, right, bottom }}) => [left, top, right, bottom])(document.querySelector({selector!r})"
    return page.run(script + ".getBoundingClientRect())")


def test_the_modes_stand_under_the_title_and_back_leads_to_reading(page, address):
    page.fresh(address + KERNEL, height=900)
    modes = "[...document.querySelectorAll('[data-k-mode]')].map(button => button.textContent)"
    assert page.run(modes) == ["Read", "Watch", "Edit"]
    assert box(page, ".k-modes")[3] < 450 < box(page, ".k-file")[1], "before the introduction"
    mode = "document.querySelector('[data-k-mode][aria-pressed=true]').textContent"
    for name in ("run", "edit"):
        click(page, f"[data-k-mode={name}]")
        assert page.run(mode) != "Read" and page.run("document.querySelector('.k-top').checkVisibility()") is False
        page.run("history.back()")
        page.wait(f"{mode} === 'Read'")
        assert page.run("location.pathname").endswith(KERNEL) and page.run("location.hash") == ""
        assert page.run("document.querySelector('.k-top').checkVisibility()")


@pytest.mark.site_check
@pytest.mark.parametrize("width, height, dark", [(390, 844, False), (844, 390, True)])
def test_watch_on_a_phone(page, address, width, height, dark):
    """Memory is in sight, large values too; a finger hits each control; the slider takes the width there is."""
    page.fresh(address + LARGE, width=width, height=height, dark=dark)
    click(page, "[data-k-mode=run]")
    page.wait("document.querySelector('.t-memory td') !== null")
    page.run("document.querySelector('.t-bar input').dispatchEvent(new Event('input'))")
    _, steps = page.run("document.querySelector('.t-count').textContent").split(" of ")
    left, top, right, bottom = box(page, ".t-bar input[type=range]")
    assert right - left > (300 if height > width else 150) and bottom - top >= 44 and int(steps) > 20
    small = """[...document.querySelectorAll('.t-view :is(button, select, summary)')]
        .filter(each => each.checkVisibility()).filter(each => { const { width, height } = each.getBoundingClientRect()
            return width < 44 || height < 43.9 })
        .map(each => each.outerHTML)"""
    assert page.run(small) == []
    out_of_sight, slider = [], "document.querySelector('.t-bar input')"
    for step in range(0, int(steps), 5):
        page.run(f"(at => {{ at.value = {step}; at.dispatchEvent(new Event('input')) }})({slider})")
        _, top, _, bottom = box(page, ".t-memory td")
        if not 0 < top < bottom < height:
            out_of_sight.append(step)
    assert out_of_sight == []
    assert page.violations() == []


@pytest.mark.site_check
def test_a_large_value_leaves_memory_in_sight_on_a_desktop(page, address):
    page.fresh(address + LARGE, width=1440, height=900)
    click(page, "[data-k-mode=run]")
    page.wait("document.querySelector('.t-memory td') !== null")
    assert page.run("!document.querySelector('.t-more').open"), "controls are folded, memory comes first"
    left, _, right, _ = box(page, ".t-bar input[type=range]")
    assert right - left > 400
    hidden = """[...document.querySelectorAll('.t-memory .t-scroll')].filter(box => {
        const { top, bottom } = box.getBoundingClientRect()
        const cell = box.querySelector('td.t-r, td.t-w')?.getBoundingClientRect()
        return cell && (cell.top < top - 1 || cell.bottom > bottom + 1) }).length"""
    largest = "Math.max(0, ...[...document.querySelectorAll('.t-now table')].map(table => table.rows.length))"
    rows = 0
    for _ in range(45):
        click(page, "[data-t-key=next]")
        rows = max(rows, page.run(largest))
        _, top, _, bottom = box(page, ".t-memory td")
        assert 0 < top < bottom < 900 and page.run(hidden) == 0, "what is read or written now is in sight"
    assert rows >= 16, "a value of 16 rows has been shown"


def test_it_plays_faster_and_to_the_next_load(page, address):
    page.fresh(address + KERNEL, width=1440)
    click(page, "[data-k-mode=run]")
    page.wait("document.querySelector('[data-t-key=speed]') !== null")
    page.press("Shift+Tab")
    page.press("Tab")
    page.run("document.querySelector('.t-view').focus()")
    frame = "(style => [style.outlineStyle, style.boxShadow])(getComputedStyle(document.querySelector('{}')))"
    assert page.run("document.querySelector('.t-view').matches(':focus-visible')")
    assert page.run(frame.format(".t-view")) == ["none", "none"], "no frame round all of it"
    assert page.run(frame.format(".k-panel"))[1].endswith(" 2px 0px 0px 0px inset"), "a stroke beside it"
    options = "[...document.querySelector('[data-t-key={}]').options].map(option => option.textContent)"
    assert page.run(options.format("speed")) == ["0.5×", "1×", "2×", "4×", "8×"]
    assert page.run(options.format("until"))[:2] == ["to the end", "to the next load"]
    for name, place in (("speed", 4), ("until", 1)):
        pick = f"document.querySelector('[data-t-key={name}]')"
        page.run(f"{pick}.selectedIndex = {place}; {pick}.dispatchEvent(new Event('change'))")
    for _ in range(2):
        click(page, "[data-t-key=play]")
        assert page.run("document.querySelector('.t-play').textContent") == "Pause"
        page.wait("document.querySelector('.t-play').textContent === 'Play'", 8)
        assert "tl.load(" in page.run("document.querySelector('.k-l.t-now').textContent")
    assert page.run("+document.querySelector('.t-bar input').value") > 10, "the second load, not the first one again"
    page.run("localStorage.removeItem('academy.speed')")


def test_the_result_of_an_edit_is_where_the_edit_is(page, address):
    page.fresh(address + KERNEL, width=1440, height=900)
    click(page, "[data-k-mode=edit]")
    page.wait(f"document.querySelector('{EDITOR} .t-bar') !== null", 30)  # the recorded run: nothing of Python yet
    assert not [url for url in page.requests if "worker.js" in url]
    beside = f"document.querySelectorAll('{EDITOR} .cm-line .t-val').length"
    assert page.run(beside) > 5 and page.run("document.querySelectorAll('.t-source').length") == 0, "code once"
    code, run = box(page, f"{EDITOR} .p-code"), box(page, f"{EDITOR} .t-view")
    assert code[2] <= run[0] and abs(code[1] - run[1]) < 30, "side by side"
    edit(page, "row_max = new_max", "row_max = new_max + 1")
    assert page.run(beside) == 0 and page.run("document.querySelector('.p-old').checkVisibility()"), (
        "of the text before"
    )
    assert ended(page, "run") == "differs"
    said = page.run(f"document.querySelector('{OUTCOME}').innerText")
    assert "wrong" not in said and "may be what you meant" in said and "y_ptr[0, 0]" in said and "line " in said
    assert page.run(f"document.querySelector('{OUTCOME} code').textContent") == "y_ptr[0, 0]"
    assert page.run(beside) > 5
    page.wait(f"document.querySelector('{EDITOR} .cm-line.t-now')?.textContent.includes('tl.store(')")
    page.wait(f"document.querySelector('{EDITOR} .cm-line.t-now').getBoundingClientRect().bottom < 900", 3)  # it glides
    assert 0 < box(page, f"{EDITOR} .cm-line.t-now")[1] and 0 < box(page, OUTCOME)[3] < 900
    assert 0 < box(page, f"{EDITOR} .t-memory td.t-w")[3] < 900, "what it wrote, without scrolling"
    assert page.violations() == []
    click(page, "[data-action=reset]")
    assert page.run(beside) > 5, "the recorded run again"


@pytest.mark.site_check
def test_after_a_check_comes_the_run_and_then_the_next_exercise(page, address):
    page.fresh(address + "exercises/first_kernel/scale_and_add/")
    assert ended(page, "check") == "failed"
    assert page.run(f"document.querySelector('{OUTCOME} code').textContent") == "pass # your code here", (
        "no raw backticks"
    )
    assert page.run(f"!document.querySelector('{OUTCOME} [data-next=exercise]')")
    page.fresh(address + "exercises/first_kernel/dropped_tail/")
    assert ended(page, "check") == "failed"
    click(page, "[data-next=watch]")
    page.wait(f"document.querySelector('{EDITOR} .t-memory td') !== null", 30)
    captions = page.run("[...document.querySelectorAll('.t-memory caption')].map(caption => caption.textContent)")
    assert "out_ptr 10, by which program written" in captions
    written = "[...document.querySelectorAll('.t-memory table')].at(-1).innerText.replace(/\\s+/g, ' ')"
    assert page.run(written).endswith("1 1 1 1 · ·"), "nobody wrote the last two"
    edit(page, "len(x) // 4", "triton.cdiv(len(x), 4)")
    assert ended(page, "check") == "passed"
    link = page.run(f"document.querySelector('{OUTCOME} [data-next=exercise]').href")
    assert "/exercises/first_kernel/" in link and not link.endswith("dropped_tail/")
    page.run("localStorage.clear()")


@pytest.mark.site_check
def test_a_prediction_is_a_field_for_a_number(page, address):
    place = address + "exercises/first_kernel/bytes_saved/"
    page.fresh(place, width=390, height=844)
    page.wait("document.querySelector('.p-number') !== null")
    assert page.run(f"document.querySelector('{EDITOR} pre')") is None and "answer = None" in page.run(TEXT)
    typed = "(i => {{ i.value = {!r}; i.dispatchEvent(new Event('input')) }})(document.querySelector('.p-number'))"
    page.run(typed.format("4,000"))
    page.fresh(place, width=390, height=844)
    assert page.wait("document.querySelector('.p-number')?.value") == "4000", "kept at every key"
    for sign, python in (("−20.625", "-20.625"), ("2⁻³ · 10¹²", "2**-3 * 10**12"), ("2^30 ÷ 4", "2**30 / 4")):
        page.run(typed.format(sign))
        assert page.run(TEXT).strip() == f"answer = {python}", sign
    assert ended(page, "check") == "failed"
    page.run(typed.format("2 * 4000"))
    assert page.run(STATE) == "idle"
    assert ended(page, "check") == "passed" and page.run(f"!!document.querySelector('{OUTCOME} [data-next=exercise]')")
    assert page.violations() == []
    page.run("localStorage.clear()")


@pytest.mark.site_check
def test_every_live_cell_runs_in_the_page(page, address):
    """With what the browser has of PyTorch."""
    for name in LIVE:
        page.fresh(f"{address}learn/{name}/")
        assert ended(page, "run") == "passed", (name, page.run(f"document.querySelector('{OUTCOME}').innerText"))
        assert page.run(f"!!document.querySelector('{OUTCOME} :is(.p-printed, .p-picture)')"), name


def test_the_cells_to_change_run_in_the_chapter(page, address):
    page.fresh(address + "learn/first_kernel/")
    page.wait("document.querySelectorAll('.p-sliders label').length === 3")
    page.run("document.querySelector('.p-sliders').scrollIntoView({ block: 'center', behavior: 'instant' })")
    assert ended(page, "run") == "passed"
    assert 0 < box(page, ".p-sliders")[1] < 700, "the page stays where the reader moves the sliders"
    printed = f"document.querySelector('{OUTCOME} .p-printed').textContent"
    assert page.run(printed).startswith("3 programs of 8 lanes for 23 elements")
    move = "(field => {{ {}; field.dispatchEvent(new Event('input')) }})(document.querySelector('.p-sliders {}'))"
    page.run(move.format("field.value = 30", "input[type=range]"))
    page.wait(f"{STATE} === 'passed' && {printed}.startsWith('4 programs of 8 lanes for 30 elements')", 20)
    page.run(move.format("field.checked = false", "input[type=checkbox]"))
    assert page.wait(f"{STATE} === 'error' && {STATE}", 20), "the mistake that the chapter speaks of"
    assert "outside a tensor" in page.run(f"document.querySelector('{OUTCOME}').innerText")
    click(page, f"{EDITOR} [data-action=reset]")
    assert page.run("document.querySelector('.p-sliders input').value") == "23"
