"""The playground on built pages, in Chromium. Every request has to go to the site itself.

Starting Python takes seconds, so what can be tested natively is in tests/playground, and one page serves many tests.
"""

import json

import pytest

from academy.book import layout
from academy.playground import bundle
from tests.playground.shim import native
from tests.site.browser import Browser
from tests.site.conftest import ROOT

pytest.importorskip("triton", reason="the pages have no recorded run without triton")
PAGE = "kernels/tutorials/vector_add/"
EDITOR, OUTCOME = "[data-academy=editor]", "[data-academy=outcome]"
STATE = f"document.querySelector('{OUTCOME}').dataset.state"
#: Seconds for the first run on a busy machine.
PATIENCE = 120


@pytest.fixture(scope="module")
def page(address, browser):
    """A browser of its own, so that its worker stays alive, with the editor of a lesson open."""
    own = Browser()
    own.open(address + PAGE)
    yield own
    hosts = [url for url in own.requests if not url.startswith((address, "data:", "blob:", "about:"))]
    own.close()
    assert not hosts, "another host was asked"
    assert not own.errors


def click(page, action):
    page.run(f"document.querySelector('[data-action={action}]').click()")


def opened(page):
    if not page.run(f"!!document.querySelector('{EDITOR} .cm-content')"):
        click(page, "edit")
        page.wait(f"document.querySelector('{EDITOR} .cm-content')", 30)
    return page


def ended(page, action="run", seconds=PATIENCE):
    click(page, action)
    return page.wait(f"['passed', 'differs', 'failed', 'error'].includes({STATE}) && {STATE}", seconds)


def edit(page, old, new):
    text = page.run(f"document.querySelector('{EDITOR}').academyText")
    assert old in text
    page.run(f"document.querySelector('{EDITOR}').academyText = {json.dumps(text.replace(old, new, 1))}")


def outcome(page):
    return page.run(f"document.querySelector('{OUTCOME}').innerText")


def test_nothing_of_the_runtime_loads_before_the_click(page, address):
    ours = {url.removeprefix(address) for url in page.requests if "/playground/" in url}
    assert ours == {"assets/playground/playground.js"}
    opened(page)
    assert not [url for url in page.requests if "runtime" in url.rpartition("/")[2] and "json" in url]
    said = f"about {bundle.megabytes()} MB, once"
    assert said in page.run(f"document.querySelector('{EDITOR}').innerText")
    assert page.run(STATE) == "idle"


@pytest.mark.site_check
@pytest.mark.parametrize("width, dark", [(1440, False), (390, True)])
def test_the_open_editor_has_no_violations(page, address, width, dark):
    page.open(address + PAGE, width=width, height=900, dark=dark)
    opened(page)
    assert page.violations() == []
    assert page.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.site_check
def test_the_keyboard_can_leave_the_editor(page):
    opened(page)
    inside = f"document.activeElement.closest('{EDITOR} .cm-content') !== null"
    page.run(f"document.querySelector('{EDITOR} .cm-content').focus()")
    page.press("Tab")
    assert page.run(inside), "Tab indents"
    page.press("Escape")
    page.press("Tab")
    assert not page.run(inside)
    click(opened(page), "reset")


@pytest.mark.site_check
def test_the_editor_opens_at_the_kernel_and_a_run_comes_into_sight(page, address):
    page.fresh(address + PAGE, width=1440)
    assert page.run("document.querySelector('[data-k-toggle]').checkVisibility()")
    opened(page)
    assert "@triton.jit" in page.wait(f"document.querySelector('{EDITOR} .cm-activeLine')?.textContent")
    assert not page.run("[...document.querySelectorAll('[data-k-toggle]')].some(each => each.checkVisibility())")
    rectangle = f"document.querySelector('{OUTCOME}').getBoundingClientRect()"
    edit(page, "out = x + y", "out = x * y")
    assert ended(page) == "differs"
    assert page.run(f"{rectangle}.top > 0 && {rectangle}.top < innerHeight"), "beside the button that was pressed"
    click(page, "reset")
    assert ended(page) == "passed"
    top = f"document.querySelector('{EDITOR} .p-run').getBoundingClientRect().top"
    page.wait(f"{top} > 0 && {top} < innerHeight / 2")
    assert page.run("document.activeElement.matches('.t-view')"), "its keys work at once"


def test_run_shows_the_run_and_an_edit_is_run(page, address):
    page.open(address + PAGE, width=1440)
    opened(page)
    assert ended(page) == "passed", outcome(page)
    page.wait(f"document.querySelector('{EDITOR} .t-programs')")
    assert page.run(f"document.querySelectorAll('{EDITOR} .t-programs button').length") == 3
    assert page.violations() == []
    edit(page, "torch.arange(10,", "torch.arange(6,")
    assert page.run(STATE) == "idle"
    assert ended(page) == "passed", outcome(page)
    assert page.run(f"document.querySelectorAll('{EDITOR} .t-programs button').length") == 2


@pytest.mark.parametrize(
    "old, new, state, line, said",
    [
        ("mask = offsets < n", "mask = offsets <", "error", "mask = offsets <", "SyntaxError"),
        ("tl.load(y_ptr", "tl.laod(y_ptr", "error", "tl.laod", "laod"),
        (
            "mask = offsets < n",
            "mask = offsets <= n",
            "error",
            "x = tl.load",
            "program 2 of vector_add_kernel does a load",
        ),
        ("out = x + y", "out = x * y", "differs", "tl.store", "out_ptr[1] is 10, in the original 11"),
        ("pid * BLOCK +", "pid * (BLOCK - 1) +", "failed", "tl.store", "out_ptr[3]"),
    ],
)
def test_a_mistake_lands_on_its_line(page, old, new, state, line, said):
    click(opened(page), "reset")
    edit(page, old, new)
    assert ended(page) == state and said in outcome(page)
    text = page.run(f"document.querySelector('{EDITOR}').academyText").split("\n")
    number = next(number for number, each in enumerate(text, 1) if line in each)
    assert f"line {number}" in outcome(page)
    page.run(f"document.querySelector('{EDITOR} .p-line').click()")
    assert line.split()[0] in page.wait(f"document.querySelector('{EDITOR} .cm-activeLine')?.textContent")
    marker = "info" if state == "differs" else "error"  # a change that may be meant isn't marked as a mistake
    assert page.run(f"document.querySelectorAll('{EDITOR} .cm-lint-marker-{marker}').length") > 0


@pytest.mark.site_check
def test_the_link_fills_the_editor_and_runs_nothing(page, address):
    click(opened(page), "reset")
    edit(page, "out = x + y", "out = x - y")
    click(page, "share")
    link = page.wait("location.hash.startsWith('#edit=') && location.href")
    asked = len(page.requests)
    page.fresh(link)
    page.wait(f"document.querySelector('{EDITOR} .cm-content')", 30)
    assert "out = x - y" in page.run(f"document.querySelector('{EDITOR}').academyText")
    assert page.run(STATE) == "idle" and "link" in outcome(page)
    assert not [url for url in page.requests[asked:] if "worker.js" in url]
    page.fresh(address + PAGE + "#edit=nonsense")  # a link that was cut off
    page.wait(f"document.querySelector('{EDITOR} .cm-content')", 30)
    assert "out = x + y" in page.run(f"document.querySelector('{EDITOR}').academyText") and "damaged" in outcome(page)


@pytest.mark.site_check
def test_stop_ends_a_loop_and_the_runtime_was_kept(page, address):
    page.fresh(address + PAGE)
    opened(page)
    edit(page, "def EXAMPLE():", "def EXAMPLE():\n    while True:\n        pass")
    asked = len(page.requests)
    click(page, "run")
    page.wait(f"{STATE} === 'running'", PATIENCE)
    assert not page.run("document.querySelector('[data-action=stop]').disabled")
    click(page, "stop")
    assert page.run(STATE) == "idle" and "Stopped" in outcome(page)
    click(page, "reset")  # or the loop would be the next test's draft
    kept = page.run("caches.open('academy-playground').then(c => c.keys()).then(all => all.map(r => r.url))")
    assert len(kept) == 7 and all("/assets/playground/runtime/" in url for url in kept)
    assert asked < len(page.requests)


@pytest.mark.site_check
def test_without_a_network_python_starts_again(page, address):
    """From what the first run has kept: the page is open, and its Python was stopped."""
    page.fresh(address + PAGE)
    opened(page)
    assert ended(page) == "passed"
    page.run("import('/assets/playground/runtime.js').then(module => module.stop())")
    page.offline(True)
    try:
        click(page, "reset")
        assert ended(page) == "passed", outcome(page)
    finally:
        page.offline(False)


@pytest.mark.usefixtures("browser")
def test_without_wasm_the_page_is_as_before(address):
    own = Browser()
    try:
        own.call("Page.enable")
        own.call("Page.addScriptToEvaluateOnNewDocument", source="delete window.WebAssembly")
        own.open(address + PAGE)
        assert own.run("document.querySelector('[data-action=edit]').checkVisibility()") is False
        assert own.run("document.querySelector('[data-k-mode=run]').checkVisibility()") is True
    finally:
        own.close()


@pytest.mark.usefixtures("browser")
def test_from_a_folder_the_page_is_as_before(site):
    own = Browser()
    try:
        own.open((site / PAGE / "index.html").as_uri())
        assert own.run("document.querySelector('[data-action=edit]').checkVisibility()") is False
    finally:
        own.close()


@pytest.mark.site_check
def test_every_lesson_runs_and_equals_its_native_recording(address):
    """Unchanged, as the site's own files hold them: the recording that Python writes there is byte for byte the same.

    The worker is asked without the page between: JavaScript reads -5.0 and would write -5.
    """
    from academy.traces import store

    own = Browser()
    recordings = store.load(store.kernel_files())
    different = []
    try:
        own.open(address + PAGE)
        own.run("window.worker = new Worker('/assets/playground/worker.js', {type: 'module'})")
        for path, recording in recordings.items():
            question = {"action": "run", "path": store.shorten(path), "source": path.read_text(), "original": None}
            answer = own.run(_ASK % json.dumps({"id": question["path"], "question": json.dumps(question)}))
            state = json.loads(answer)["state"]
            if state != "passed" or f'"data":{native(path, recording)}' not in answer:
                different.append((question["path"], state))
    finally:
        own.close()
    assert len(recordings) > 20 and different == []


_ASK = """new Promise(done => {
    const asked = %s
    worker.onmessage = ({ data }) => data.id === asked.id && done(data.answer)
    worker.postMessage(asked)
})"""


@pytest.mark.site_check
def test_every_exercise_is_judged_as_natively(address):
    """Its solution and its other right ways pass in the browser's Python too; a wrong solution gets its message."""
    from academy.book import exercise_files

    own = Browser()
    different = []
    try:
        own.open(address + PAGE)
        own.run("window.worker = new Worker('/assets/playground/worker.js', {type: 'module'})")
        for exercise in exercise_files.every():
            attempts = [("passed", "", exercise.solution)]
            attempts += [("passed", "", exercise.edited(edit)) for edit in exercise.right]
            attempts += [("failed error", message, exercise.edited(tuple(edit))) for message, *edit in exercise.wrong]
            for number, (states, message, source) in enumerate(attempts):
                question = {"action": "check", "name": exercise.name, "source": source, "seed": 1}
                asked = {"id": f"{exercise.name} {number}", "question": json.dumps(question)}
                answer = json.loads(own.run(_ASK % json.dumps(asked)))
                if answer["state"] not in states or message not in answer.get("message", ""):
                    different.append((exercise.name, number, answer))
    finally:
        own.close()
    assert different == []


@pytest.mark.site_check
def test_every_page_with_an_editor_opens_it(browser, address, site):
    """The text of each lesson's editor is the one that the site made for it."""
    for path in layout.pages(ROOT):
        name = layout.module_name(ROOT, path).replace(".", "/")
        starter = site / "assets/playground/starters" / path.relative_to(ROOT)
        if starter.exists():
            browser.open(f"{address}kernels/{name}/")
            click(browser, "edit")
            browser.wait(f"document.querySelector('{EDITOR} .cm-content')", 30)
            assert browser.run(f"document.querySelector('{EDITOR}').academyText") == starter.read_text(), name


@pytest.mark.parametrize("width", [1440, 390])
def test_a_click_into_the_code_opens_the_editor(browser, address, width):
    """Also where the code is too wide for the page, so that it can be scrolled and takes the focus itself."""
    browser.open(address + "exercises/first_kernel/unwritten_output/", width=width)
    clicked = "import to"
    x, y = browser.run(f"""(() => {{
        const pre = document.querySelector("{EDITOR} pre"), range = document.createRange()
        pre.scrollIntoView({{ block: "center", behavior: "instant" }})
        const texts = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT)
        let left = pre.textContent.indexOf("{clicked}") + {len(clicked)}
        while (texts.nextNode() && left > texts.currentNode.length) left -= texts.currentNode.length
        range.setStart(texts.currentNode, left)
        const at = range.getBoundingClientRect()
        return [at.left, at.top + at.height / 2]
    }})()""")
    for type_ in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=type_, x=x, y=y, button="left", clickCount=1)
    browser.wait(f"document.querySelector('{EDITOR} .cm-content')", 30)
    assert "Ctrl+Enter checks" in browser.run(f"document.querySelector('{EDITOR}').innerText")
    place, before = browser.run("location.href"), browser.run(f"document.querySelector('{EDITOR}').academyText")
    assert browser.run("document.activeElement.matches('.cm-content')"), "what is typed now belongs to the text"
    browser.press("n")  # the theme's key for the next page
    text = browser.run(f"document.querySelector('{EDITOR}').academyText")
    at = before.index(clicked) + len(clicked)
    assert text == before[:at] + "n" + before[at:] and browser.run("location.href") == place
    browser.run("localStorage.clear()")


def test_the_keyboard_comes_into_the_code_and_a_letter_leads_nowhere(browser, address):
    browser.open(address + "exercises/first_kernel/unwritten_output/")
    place = browser.run("location.href")
    browser.run(f"document.querySelector('{EDITOR} pre').focus()")
    browser.press("n")
    browser.wait("document.activeElement.matches('.cm-content')", 30)
    browser.press("n")
    assert browser.run("location.href") == place
    assert browser.run(f"document.querySelector('{EDITOR}').academyText").startswith("n")
    browser.run("localStorage.clear()")


def test_an_exercise_is_checked(page, address, site):
    """Its starter fails, its solution passes, and is remembered as solved."""
    from academy.book import exercise_files

    exercise = exercise_files.named("first_kernel/scale_and_add")
    page.fresh(f"{address}exercises/{exercise.name}/")
    element = f"document.querySelector('{EDITOR}')"
    assert page.run(f"{element}.academyText").strip() == exercise.starter.strip()
    assert ended(page, "check") in ("failed", "error")
    said = []
    for wrong in ("alpha * x - y", "alpha * x - 1 * y"):  # two tries: with the same numbers
        page.run(f"{element}.academyText = {json.dumps(exercise.solution.replace('alpha * x + y', wrong))}")
        assert ended(page, "check") == "failed"
        said.append(outcome(page))
    assert said[0] == said[1]
    page.run(f"{element}.academyText = {json.dumps(exercise.solution)}")
    page.wait(f"{element}.academyText === {json.dumps(exercise.solution)}")
    assert ended(page, "check") == "passed", outcome(page)
    assert exercise.name in page.run("localStorage.getItem('academy.exercises')")
    assert page.violations() == []
