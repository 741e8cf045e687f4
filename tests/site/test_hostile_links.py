"""What comes with a link runs only when the reader says so, cut off from everything, and leaves nothing behind."""

import gzip
import json
import re
import shutil

import pytest

from tests.site import hostile_links
from tests.site.browser import Browser, served
from tests.site.test_playground import EDITOR, OUTCOME, PAGE, STATE, click, edit, ended, opened, outcome, page

__all__ = ["page"]  # the fixture
LESSON = "annotated_examples/tutorials/vector_add.py"
KEPT = """caches.open('academy-playground').then(async cache => Promise.all((await cache.keys()).map(async request =>
    [request.url, (await (await cache.match(request)).blob()).size]))).then(all => all.sort())"""
_ASK = """import('/assets/playground/runtime.js').then(runtime => runtime.ask(%s, () => {}, %s))
    .then(answer => [answer.state, answer.problems.map(each => each.message).join(' ')])"""


def asked(page, name):
    """[state, messages] of a text that EXAMPLE begins with. After one that breaks Python a new one is started."""
    text, breaks = hostile_links.TEXTS[name], json.dumps(name in hostile_links.IN_PYTHON)
    source = page.run(f"fetch('/assets/playground/starters/{LESSON}').then(response => response.text())")
    source = source.replace("def EXAMPLE():", f"def EXAMPLE():\n    {text}")
    question = {"action": "run", "path": LESSON, "source": source, "original": None}
    return page.run(_ASK % (json.dumps(question), breaks))


@pytest.mark.site_check
@pytest.mark.timeout(1800)
def test_a_hostile_text_gets_a_verdict_and_leaves_nothing(page, address):
    page.fresh(address + PAGE)
    assert ended(opened(page)) == "passed"
    before, stored = page.run(KEPT), page.run("JSON.stringify(localStorage)")
    silent = {}
    for name in hostile_links.TEXTS:
        state, message = asked(page, name)
        if state not in ("passed", "differs", "failed", "error") or (state != "passed" and not message):
            silent[name] = state, message
    assert silent == {}
    assert page.run(KEPT) == before and page.run("JSON.stringify(localStorage)") == stored
    assert not [url for url in page.requests if not url.startswith((address, "data:", "blob:", "about:"))]
    assert ended(page) == "passed", outcome(page)


def test_the_worker_has_given_up_what_leads_outside(page, address):
    """Asked in the worker's own JavaScript, which no text is meant to reach."""
    page.fresh(address + PAGE)
    probe = """
    addEventListener("message", ({ data }) => data.probe && ready.then(async () => {
      const names = "fetch XMLHttpRequest WebSocket EventSource caches indexedDB Worker BroadcastChannel " +
        "importScripts postMessage addEventListener navigator close Response URL"
      const left = names.split(" ").filter(name => self[name] != null)
      const tried = []
      for (const text of ["import('https://elsewhere.example/x.js')", "1 + 1"]) {
        try { tried.push(await (0, eval)(text)) } catch (error) { tried.push(error.name) }
      }
      tell({ left, tried })
    }))"""
    found = page.run(f"""(async () => {{
        const here = new URL("/assets/playground/", location.href).href
        const text = await (await fetch(here + "worker.js")).text() + {json.dumps(probe)}
        const address = URL.createObjectURL(new Blob([text], {{ type: "text/javascript" }}))
        const worker = new Worker(address, {{ type: "module", name: here }})
        return await new Promise((done, fail) => {{
            worker.onerror = fail
            worker.onmessage = ({{ data }}) => {{
                if (data.type === "failed") fail(new Error(data.message))
                if (data.left) worker.terminate(), done(data)
            }}
            worker.postMessage({{ probe: true }})
        }})
    }})()""")
    assert found == {"left": [], "tried": ["EvalError", "EvalError"]}


@pytest.mark.nightly
def test_a_kept_file_that_was_changed_is_not_run(page, address):
    page.fresh(address + PAGE)
    assert ended(opened(page)) == "passed"
    poisoned = page.run("""caches.open('academy-playground').then(async cache => {
        const [key] = (await cache.keys()).filter(request => request.url.includes('/triton.'))
        await cache.put(key, new Response('throw new Error("planted")'))
        return key.url
    })""")
    page.run("import('/assets/playground/runtime.js').then(module => module.stop())")
    assert ended(page) == "passed", outcome(page)
    size = f"caches.open('academy-playground').then(c => c.match('{poisoned}')).then(r => r.blob()).then(b => b.size)"
    assert page.run(size) > 100_000, "the site's own file is kept again"


@pytest.mark.site_check
def test_a_file_that_is_not_the_sites_is_not_run(site, tmp_path):
    """A host, or a proxy, hands out other bytes."""
    shutil.copytree(site / "assets", tmp_path / "assets")
    shutil.copytree(site / PAGE, tmp_path / PAGE)
    (changed,) = (tmp_path / "assets/playground/runtime").glob("academy.*.zip.gz")
    changed.write_bytes(gzip.compress(gzip.decompress(changed.read_bytes()) + b"x"))
    with served(tmp_path) as address:
        own = Browser()
        try:
            own.open(address + PAGE)
            assert ended(opened(own)) == "error"
            assert "academy.zip is not the file that this site was built with" in outcome(own)
        finally:
            own.close()


def test_every_page_forbids_other_hosts(site):
    allowed = re.compile(r"'(?:self|none|unsafe-inline|wasm-unsafe-eval)'|blob:|data:")
    for path in [*site.glob("*.html"), site / PAGE / "index.html", *site.glob("learn/*/index.html")]:
        (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)"', path.read_text("utf-8"))
        for directive in policy.split(";"):
            name, *sources = directive.split()
            assert sources and all(allowed.fullmatch(source) for source in sources), f"{path}: {directive}"
        assert policy.startswith("default-src 'self'") and "'unsafe-eval'" not in policy


def test_a_word_before_somebody_elses_text_runs_and_a_reload_keeps_it(page, address):
    click(opened(page), "reset")
    edit(page, "out = x + y", "out = x - y")
    click(page, "share")
    link = page.wait("location.hash.startsWith('#edit=') && location.href")
    click(page, "reset")
    page.run("localStorage.clear()")
    page.fresh(link)
    page.wait(f"document.querySelector('{EDITOR} .cm-content')", 30)
    for _ in range(2):  # the first time it is only told what would run
        text = page.run(f"document.querySelector('{EDITOR}').academyText")
        assert "out = x - y" in text and page.run(STATE) == "idle"
        click(page, "run")
        assert page.run(STATE) == "idle" and "Somebody else wrote this text" in outcome(page)
        page.fresh(link)
        page.wait(f"document.querySelector('{EDITOR} .cm-content')", 30)
    edit(page, "out = x - y", "out = y - x")
    page.fresh(link)
    page.wait(f"document.querySelector('{EDITOR} .cm-content')", 30)
    assert "out = y - x" in page.run(f"document.querySelector('{EDITOR}').academyText"), "a draft of its own"
    click(page, "run")
    page.run(f"document.querySelector('{OUTCOME} .p-line').click()")
    assert page.wait(f"['passed', 'differs', 'failed', 'error'].includes({STATE}) && {STATE}", 120) == "differs"
    click(page, "reset")


def test_what_is_typed_survives_a_reload(page, address):
    page.fresh(address + PAGE)
    click(opened(page), "reset")
    edit(page, "out = x + y", "out = x + y + 0")
    page.fresh(address + PAGE)
    assert "out = x + y + 0" in page.run(f"document.querySelector('{opened(page) and EDITOR}').academyText")
    assert "your edit from before" in outcome(page)
    click(page, "reset")
    page.fresh(address + PAGE)
    assert "out = x + y + 0" not in page.run(f"document.querySelector('{opened(page) and EDITOR}').academyText")


def test_an_unfinished_exercise_survives_a_reload(page, address):
    place = f"{address}exercises/first_kernel/scale_and_add/"
    element = f"document.querySelector('{EDITOR}')"
    page.fresh(place)
    page.run("localStorage.clear()")
    page.fresh(place)
    page.run(f"{element}.querySelector('pre').dispatchEvent(new Event('focusin'))")
    page.wait(f"document.querySelector('{EDITOR} .cm-content')", 30)
    page.run(f"{element}.academyText += '# half an idea\\n'")
    page.wait("localStorage.getItem('academy.drafts')?.includes('half an idea')", 5)
    page.fresh(place)
    page.wait(f"document.querySelector('{EDITOR} .cm-content')", 30)
    assert "# half an idea" in page.run(f"{element}.academyText")
    click(page, "reset")
    assert page.run("JSON.parse(localStorage.getItem('academy.drafts'))") == {}
