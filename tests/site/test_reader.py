"""What leads a reader through the site: the learning path, the line under a title, the glossary, shared variables."""

import html
import re
import tomllib
from urllib.parse import urljoin

import pytest
import yaml
from mkdocs.config import load_config

from academy.book import comments
from academy.book.learning_path import LearningPath, kind
from academy.site import chapters
from academy.site.glossary import ON_A_PAGE, Glossary
from academy.site.library import Library
from academy.site.page_facts import title
from academy.site.reading_time import minutes
from academy.site.variables import Variable, Variables, declared
from tests.site.conftest import ROOT

DOCS = ROOT / "docs"
INDEX = Library.read(ROOT)
PATH = LearningPath.read(DOCS)
GLOSSARY = Glossary.read(DOCS)
#: Pages without a line under the title, beside indexes, the API reference and the benchmarks.
WITHOUT_FACTS = {"credits.md", "exercises.md", "guides/glossary.md", "guides/what-is-verified.md"}


def sources() -> list[str]:
    """All pages: the files of docs/, as places under it, and what is made from kernels and derivations."""
    files = [p.relative_to(DOCS).as_posix() for kind in ("*.md", "learn/*.py") for p in DOCS.rglob(kind)]
    return sorted([*files, *(page.uri for kind in ("kernel", "derivation") for page in INDEX.shown(kind))])


def at(site, uri: str) -> str:
    """The page that a file of docs/ became."""
    return (site / re.sub(r"(?:index)?\.(?:md|py)$", "", uri) / "index.html").read_text("utf-8")


def text(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", markup)).split())


# The learning path


def test_the_path_has_every_lesson_once_and_asks_for_nothing_that_comes_later():
    steps = PATH.pages
    assert len(steps) == len(set(steps)) >= 30
    for uri, before in PATH.before.items():
        assert uri in sources(), uri
        assert uri not in before and len(before) <= 2
        for page in before:
            assert page in steps, f"{uri} asks for {page}, which is not on the path"
            assert uri not in steps or steps.index(page) < steps.index(uri), (uri, page)
    lessons = {uri for uri in sources() if kind(uri) in ("kernel", "chapter") and not uri.endswith("index.md")}
    assert lessons <= set(steps)


def test_the_footer_follows_the_path(site):
    steps = ["index.md", "getting-started.md", *PATH.pages]
    assert steps[2] == "learn/first_kernel.py"
    for number, uri in enumerate(steps):
        links = re.findall(r'<a href="([^"]+)" class="md-footer__link md-footer__link--(prev|next)"', at(site, uri))
        here = "/" + re.sub(r"(?:index)?\.(?:md|py)$", "/", uri).lstrip("/")
        found = {way: urljoin(here, href) for href, way in links}
        wanted = {"prev": number - 1, "next": number + 1}
        wanted = {way: steps[step] for way, step in wanted.items() if 0 <= step < len(steps)}
        pages = {way: "/" + re.sub(r"(?:index)?\.(?:md|py)$", "/", page).lstrip("/") for way, page in wanted.items()}
        assert found == pages, uri


def test_the_map_shows_every_step_in_order(site):
    page = at(site, "learn/index.md").partition('id="three-short-tracks"')[0]
    stops = re.findall(r'<li>\s*<a href="([^"]+)">(.*?)</a>\s*<span class="path-kind">(.*?)</span>', page)
    assert [urljoin("/learn/", href) for href, _, _ in stops] == [
        "/" + re.sub(r"\.(?:md|py)$", "/", uri) for uri in PATH.pages
    ]
    assert all(len(words) > 3 and re.fullmatch(r"\w+ · \d+ min", about) for _, words, about in stops)
    starts = [int(start) for start in re.findall(r'<ol class="path" start="(\d+)"', page)]
    assert starts == [1 + sum(len(s.pages) for s in PATH.stages[:n]) for n in range(len(PATH.stages))]


def test_every_page_says_how_long_it_takes_and_what_to_read_before(site):
    for uri in sources():
        facts = re.findall(r'<p class="page-facts"[^>]*>(.*?)</p>', at(site, uri), re.S)
        if uri.endswith("index.md") or uri.startswith("reference/") or uri in WITHOUT_FACTS:
            assert facts == [] and uri not in PATH.before, uri
            continue
        assert len(facts) == 1, f"{uri} is in no line of the table in docs/learn/index.md"
        words = text(facts[0])
        assert re.match(r"[1-9]\d? min\b", words), uri
        assert (" · before this: " in words) == bool(PATH.before[uri])
        for page in PATH.before[uri]:
            assert title(INDEX, page) in words, (uri, page)


def test_reading_time_counts_words_code_and_equations(tmp_path):
    prose, code = "word " * 400, "x = 1\n" * 50
    for name, page in {
        "prose": prose,
        "code": f"```python\n{code}```\n",
        "snippet": '```python\n--8<-- "part.py:half"\n```\n',
        "equations": "$$x$$\n\n[[eq: A]]\n\n" * 4,
        "everything": f"---\ntitle: {prose}\n---\n{prose}\n\n```\n{code}```\n",
    }.items():
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / f"docs/{name}.md").write_text(page)
    (tmp_path / "part.py").write_text(f"y = 2\n# --8<-- [start:half]\n{code}# --8<-- [end:half]\n{code}")
    index = Library.read(tmp_path)
    found = [minutes(index, f"{n}.md") for n in ("prose", "code", "snippet", "equations", "everything")]
    assert found == [2, 2, 2, 2, 4]


# The glossary


def test_definitions_are_short_and_lead_to_the_page_that_teaches_the_word():
    source = (DOCS / "guides/glossary.md").read_text()
    assert len(re.findall(r"^:   ", source, re.M)) == len(GLOSSARY.terms) >= 45
    for term in GLOSSARY.terms.values():
        assert 1 <= len(re.findall(r"[.!?](?:\s|$)", term.text)) <= 3 and len(term.text) <= 260, term.id
        assert term.teacher in sources(), (term.id, term.teacher)
        assert all(GLOSSARY.pattern.fullmatch(form.removesuffix(".")) for form in term.forms if form[0] != "`"), term


def test_a_page_marks_a_few_first_mentions_outside_of_headings_links_and_code(site):
    marked = set()
    for uri in sources():
        page = at(site, uri)
        words = re.findall(r'<a (?=[^>]*class="term")[^>]*href="([^"]+)"[^>]*>(.*?)</a>', page)
        ids = [href.partition("#")[2] for href, _ in words]
        assert len(ids) == len(set(ids)) <= ON_A_PAGE, uri
        marked |= set(ids)
        for term in ids:
            tip = re.search(rf'<div (?=[^>]*role="tooltip")[^>]*id="term-{term}"[^>]*>(.*?)</div>', page)
            assert tip and html.unescape(tip[1]) == GLOSSARY.terms[term].text
            assert f'aria-describedby="term-{term}"' in page
            assert GLOSSARY.terms[term].teacher != uri, f"{uri} teaches {term}"
        for place in re.findall(r"<(h[1-6]|pre|code|a|summary|table)\b[^>]*>(.*?)</\1>", page, re.S):
            assert 'class="term"' not in place[1], (uri, place)
        if uri.startswith("reference/") or uri == "guides/glossary.md":
            assert ids == []
    assert len(marked) >= 25, "many words of the glossary should come up somewhere"


def test_a_word_in_another_sense_is_left_alone():
    text = "Writing\nis atomic, then a program; Blocks and mask.any, L2s."
    assert [term.id for _, term in GLOSSARY.mentions(text)] == ["program", "block", "l2"]
    assert [term.id for _, term in GLOSSARY.mentions("an SM, not sm; programmers, unblock, block-wise, mask.any")] == [
        "sm"
    ]
    assert [found[0] for found, _ in GLOSSARY.mentions("the upstream\ngradients")] == ["upstream\ngradients"]


def test_a_definition_appears_on_hover_and_focus_and_goes_with_escape(browser, address):
    browser.open(urljoin(address, "guides/numerics/"))
    word = "document.querySelectorAll('a.term')[1]"
    tip = f"document.getElementById({word}.getAttribute('aria-describedby'))"
    shown = f"{tip}.matches(':popover-open')"
    assert not browser.run(shown) and browser.run(f"{tip}.offsetHeight") == 0
    browser.run(f"{word}.focus()")
    assert browser.run(shown)
    box = browser.run(f"(() => {{ const b = {tip}.getBoundingClientRect(); return [b.left, b.right, b.width] }})()")
    assert 0 <= box[0] and box[1] <= 1440 and box[2] > 100
    browser.run("dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
    assert not browser.run(shown)
    browser.run(f"{word}.dispatchEvent(new PointerEvent('pointerenter', {{pointerType: 'mouse'}}))")
    assert browser.run(shown)
    browser.run(f"{word}.dispatchEvent(new PointerEvent('pointerleave', {{pointerType: 'mouse'}}))")
    browser.wait(f"!{shown}")


def test_the_first_tap_shows_a_definition_and_the_second_follows_it(browser, address):
    browser.open(urljoin(address, "guides/numerics/"), width=390, height=844)
    word = "document.querySelectorAll('a.term')[1]"
    tap = (
        f"['pointerdown', 'click'].map(kind => {word}.dispatchEvent(new PointerEvent(kind, "
        "{pointerType: 'touch', bubbles: true, cancelable: true})))[1]"
    )
    browser.run(
        "addEventListener('click', event => { window.followed = !event.defaultPrevented; event.preventDefault() })"
    )
    browser.run(tap)
    assert browser.run("window.followed") is False
    tip = f"document.getElementById({word}.getAttribute('aria-describedby'))"
    box = browser.run(f"(() => {{ const b = {tip}.getBoundingClientRect(); return [b.left, b.right, b.width] }})()")
    assert 0 <= box[0] and box[1] <= 390 and box[2] > 100
    browser.run(tap)
    assert browser.run("window.followed") is True


# The same variable in formulas, notes and code


def tables() -> dict[str, list[Variable]]:
    return {page.source: found for page in INDEX.shown("derivation") if (found := declared(INDEX, page.source))}


def test_every_symbol_stands_in_the_formulas_and_every_name_in_the_code(site):
    kernels: dict[str, list[str]] = {}
    for page in INDEX.shown("kernel"):
        if INDEX.main_derivation(page.source):  # the capstone has none
            kernels.setdefault(INDEX.main_derivation(page.source), []).append(page.source)
    assert set(kernels) <= set(tables()), "each derivation that a kernel implements has a table"
    for derivation, variables in tables().items():
        page = at(site, INDEX.page_of(derivation).uri)
        code = {name for path in kernels[derivation] for name in comments.names((ROOT / path).read_text())}
        one_by_one = [Variables([*variables[:n], variable]) for n, variable in enumerate(variables)]
        equations = re.findall(r"\$+([^$]+)\$+", (ROOT / derivation).read_text())
        for variable, alone in zip(variables, one_by_one):
            assert set(variable.names) <= code, (derivation, variable)
            assert re.search(rf'class="enclosing[^"]*" data-v="{variable.id}"', page), (derivation, variable)
            mark = rf"\htmlData{{v={variable.id}}}{{{variable.tex[0]}"
            assert any(mark in alone.marked(tex) for tex in equations), (derivation, variable)


@pytest.mark.parametrize("page", ["kernels/classics/layernorm.md", "kernels/classics/linear_cross_entropy.md"])
def test_a_kernel_page_marks_names_in_code_notes_and_formulas(site, page):
    source = at(site, page)
    assert len(re.findall(r'<span class="n" data-v="(?:x|rstd)">(?:x|rstd)</span>', source)) > 20
    assert re.search(r'<code[^>]* data-v="x"[^>]*>x</code>', source), "`x` in a note is not marked"
    assert re.search(r'class="enclosing[^"]*" data-v="', source), "no formula has a marked variable"
    assert 'aria-label="Symbols and their names in the code"' in source


@pytest.mark.parametrize(
    ("tex", "marked"),
    [
        (r"X_{ri}^2 + \hat{X}_r", r"\htmlData{v=x}{X_{ri}^2} + \htmlData{v=h}{\hat{X}_r}"),
        (r"\frac{\partial L}{\partial X_{ri}}", r"\htmlData{v=dx}{\frac{\partial L}{\partial X_{ri}}}"),
        (r"\frac{\partial L}{\partial Z_{X}}", r"\frac{\partial L}{\partial Z_{X}}"),
        (r"\nabla_{C_{ij}} \nabla_C \nabla_X", r"\htmlData{v=dc}{\nabla_{C_{ij}}} \htmlData{v=dc}{\nabla_C} \nabla_X"),
        (r"\sum_{i=1}^n \frac1n n", r"\sum_{i=1}^n \frac1\htmlData{v=N}{n} \htmlData{v=N}{n}"),
        (r"\operatorname{nX} \text{X} \tilde{X}", r"\operatorname{nX} \text{X} \tilde{X}"),
        (r"f'(X) f(X)", r"\htmlData{v=df}{f'}(\htmlData{v=x}{X}) f(\htmlData{v=x}{X})"),
        (r"\sum_m X_i", r"\sum_m \htmlData{v=x}{X_i}"),
        (r"\sum_{t} \frac{\partial L}{\partial X_t}", r"\sum_{t} \htmlData{v=dx}{\frac{\partial L}{\partial X_t}}"),
        (r"e^{X_i - n} X^X", r"e^{\htmlData{v=x}{X_i} - \htmlData{v=N}{n}} \htmlData{v=x}{X^X}"),
    ],
)
def test_symbols_are_found_with_their_scripts_and_inside_longer_ones_they_are_not(tex, marked):
    table = {"X": "x", r"\hat{X}": "h", r"\frac{\partial L}{\partial X}": "dx", r"\nabla_C": "dc", "n": "N", "f'": "df"}
    variables = Variables([Variable(symbol, (name,)) for symbol, name in table.items()])
    assert variables.marked(tex) == marked


def test_marking_changes_neither_what_is_copied_nor_the_look():
    variables = Variables([Variable("X", ("x",))])
    plain, marked = Variables([]).render(r"\frac{X_i}{2}", True), variables.render(r"\frac{X_i}{2}", True)
    assert "data-v" in marked and "htmlData" not in marked
    assert (
        re.sub(r'<span class="enclosing[^"]*" data-v="x">(.*)', r"\1", marked).count("</span>") - plain.count("</span>")
        == 1
    )
    assert re.findall(r"<annotation.*?</annotation>", plain) == re.findall(r"<annotation.*?</annotation>", marked)
    assert re.findall(r'style="[^"]*"', plain) == re.findall(r'style="[^"]*"', marked)


def test_a_variable_lights_up_everywhere_and_nothing_moves(browser, address):
    browser.open(urljoin(address, "kernels/classics/layernorm/"))
    boxes = (
        "JSON.stringify([...document.querySelectorAll('[data-v]')].map(e => e.getBoundingClientRect())"
        ".map(box => [box.x, box.y, box.width]))"
    )
    # Rows out of sight are laid out late, which moves what stands below them: not what this test is about.
    browser.run("document.styleSheets[0].insertRule('* { content-visibility: visible !important }')")
    before = browser.run(boxes)
    over = "dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))"
    browser.run(f"document.querySelector('.k-c [data-v=rstd]').{over}")
    lit = (
        "[...document.querySelectorAll('.v-on')]"
        ".map(e => e.closest('.katex') ? 'formula' : e.closest('.k-c') ? 'code' : e.tagName)"
    )
    assert set(browser.run(lit)) == {"formula", "code", "CODE", "BUTTON"}
    assert browser.run("[...document.querySelectorAll('.v-on')].every(e => e.dataset.v === 'rstd')")
    assert browser.run(boxes) == before
    browser.run(f"document.querySelector('.katex [data-v=x_hat]').{over}")
    assert browser.run("[...document.querySelectorAll('.v-on')].every(e => e.dataset.v === 'x_hat')")
    browser.run(f"document.body.{over}")
    assert browser.run("document.querySelectorAll('.v-on').length") == 0
    browser.run("document.querySelector('button[data-v=dx]').focus()")
    assert set(browser.run(lit)) >= {"formula", "code"}
    browser.run("document.querySelector('button[data-v=dx]').click(); document.activeElement.blur()")
    assert browser.run("document.querySelector('button[data-v=dx]').getAttribute('aria-pressed')") == "true"
    assert set(browser.run(lit)) >= {"formula", "code"}


@pytest.mark.parametrize("dark", [False, True])
def test_what_lights_up_can_be_read(browser, address, dark):
    browser.open(urljoin(address, "kernels/classics/layernorm/"), dark=dark)
    browser.run("document.querySelectorAll('[data-v]').forEach(e => e.classList.add('v-on'))")
    colours = browser.run(
        "[...new Set([...document.querySelectorAll('.v-on')].map(e => getComputedStyle(e).color + '|' + "
        "getComputedStyle(e).backgroundColor))]"
    )
    assert colours
    for pair in colours:
        ink, paper = (luminance(colour) for colour in pair.split("|"))
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) >= 4.5, pair


def luminance(colour: str) -> float:
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# Published


def test_code_that_stays_in_sight_lies_over_none_of_its_helpers(browser, address):
    browser.open(address + "kernels/mx/mx_matmul/", width=1440, height=1000)
    covered = """(async () => {
        const covered = [], frame = () => new Promise(requestAnimationFrame)
        const rows = [...document.querySelectorAll(".k-row:has(> .k-code > .k-helper)")]
        for (const row of rows) {
            row.scrollIntoView({ block: "start", behavior: "instant" })
            for (const step of [0, 60, 60, 120]) {
                window.scrollBy({ top: step, behavior: "instant" })
                await frame()
                await frame()
                const end = row.querySelector(".k-code > pre").getBoundingClientRect().bottom
                for (const helper of row.querySelectorAll(".k-helper"))
                    if (helper.getBoundingClientRect().top < end - 1) covered.push(helper.innerText)
            }
        }
        return [covered, rows.length > 2]
    })()"""
    assert browser.run(covered) == [[], True]


def test_versions_are_asked_for_only_where_mike_publishes(monkeypatch):
    def configured(**settings):
        config = load_config(str(ROOT / "mkdocs.yml"))
        config.update(settings)
        return config.plugins["academy"].on_config(config)

    assert load_config(str(ROOT / "mkdocs.yml")).extra["version"] == {"provider": "mike", "default": "latest"}
    monkeypatch.delenv("MIKE_DOCS_VERSION", raising=False)
    assert "version" not in configured().extra
    monkeypatch.setenv("MIKE_DOCS_VERSION", "1.2.0")
    config = configured(site_url="https://example.org/academy/1.2.0")  # as mike leaves it
    assert config.extra["version"]["provider"] == "mike" and config.site_url == "https://example.org/academy/1.2.0/"


def test_colab_opens_the_notebook_that_was_published(monkeypatch, site):
    monkeypatch.delenv("MIKE_DOCS_VERSION", raising=False)
    place = "https://colab.research.google.com/github/a/b/blob/gh-pages"
    assert chapters.colab("learn/softmax.py", "https://github.com/a/b.git") == f"{place}/latest/learn/softmax.ipynb"
    monkeypatch.setenv("MIKE_DOCS_VERSION", "1.2.0")
    assert chapters.colab("learn/softmax.py", "https://github.com/a/b/") == f"{place}/1.2.0/learn/softmax.ipynb"
    assert chapters.colab("learn/softmax.py", "https://git.example.org/a/b") == ""
    address = load_config(str(ROOT / "mkdocs.yml")).repo_url
    monkeypatch.delenv("MIKE_DOCS_VERSION")
    assert chapters.colab("learn/softmax.py", address) in at(site, "learn/softmax.py")
    assert (site / "learn/softmax.ipynb").is_file()


def test_the_workflow_checks_before_it_publishes():
    jobs = yaml.safe_load((ROOT / ".github/workflows/pages.yml").read_text())["jobs"]
    assert jobs["publish"]["needs"] == "check"
    lines = [step.get("run", "") for name in ("check", "publish") for step in jobs[name]["steps"]]
    place = {
        word: next(n for n, line in enumerate(lines) if word in line)
        for word in ("make CPU=1 site", "pytest", "mike deploy", "git push")
    }
    assert list(place.values()) == sorted(place.values())


def test_the_citation_agrees_with_the_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert citation["cff-version"] == "1.2.0" and {"message", "title", "authors"} <= citation.keys()
