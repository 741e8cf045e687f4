"""Finding one's way: the bar of a kernel's page, what is folded there, searches, and plots on a phone."""

import json
import re
from urllib.parse import urljoin, urlsplit

import pytest

from academy.compiler import errors
from academy.site import error_page
from tests.site.test_accessible import LAID_OUT

PAGE = "kernels/classics/layernorm/"
ERRORS = "reference/error-messages/"
#: What a reader types, and the pages of which one must be among the first three.
SEARCHES = {
    # what a newcomer asked, and found nothing or half of it
    "no allocator was set": [ERRORS],
    "make_block_ptr": [ERRORS],
    "block pointers removed": [ERRORS],
    "break": [ERRORS],
    "return in a loop": [ERRORS],
    "continue in for loop": [ERRORS],
    "Cannot access global variable": [ERRORS],
    "fp8e4nv not supported": [ERRORS],
    "lock race layernorm tutorial": ["faq/", "guides/debugging/"],
    "why powers of two": ["faq/", ERRORS],
    "power of 2": [ERRORS],
    "cannot be accessed from Triton": [ERRORS, "faq/"],
    "cpu tensor": [ERRORS, "faq/"],
    "index a tile": [ERRORS, "learn/tiles_and_pointers/"],
    "torch.compile of my own kernel": ["faq/", "guides/compile-and-export/"],
    "0 active drivers": [ERRORS, "guides/debugging/"],
    "does not require grad": [ERRORS],
    "no": [ERRORS, "faq/", "guides/debugging/"],  # not "noisy"
    # what goes wrong
    "nan": ["guides/debugging/", "guides/numerics/", "faq/"],
    "why is my kernel slow": ["guides/profiling/", "guides/measuring/", "faq/"],
    "slower than torch.compile": ["faq/", "guides/should-you-write-a-kernel/"],
    "race condition": ["guides/debugging/"],
    "illegal memory access": ["guides/debugging/"],
    "out of resource": [ERRORS, "guides/debugging/", "guides/cards/"],
    "deterministic": ["faq/", "guides/numerics/"],
    "loss scaling": ["guides/numerics/"],
    "gradient check": ["learn/own_operation/", "guides/test-your-own-kernel/", "guides/debugging/"],
    # words
    "bank conflict": ["guides/glossary/"],
    "occupancy": ["guides/glossary/", "guides/keep-the-card-busy/"],
    "coalescing": ["guides/glossary/", "guides/how-a-gpu-runs-triton/"],
    "shared memory": ["guides/glossary/", "guides/keep-the-card-busy/"],
    "swizzling": ["guides/glossary/", "learn/l2_reuse/", "faq/"],
    "swizzle": ["guides/glossary/", "learn/l2_reuse/", "faq/"],
    "atomics": ["guides/glossary/", "guides/numerics/", "faq/"],
    "num_warps": ["guides/glossary/", "learn/first_kernel/", "faq/"],
    "num_stages": ["guides/glossary/", "learn/autotuning/", "faq/"],
    "tf32": ["guides/numerics/"],
    "fp8": ["guides/numerics/", "faq/", "kernels/fp8/quantize/", "derivations/fp8/"],
    "float8": ["guides/numerics/", "reference/triton-language/", "kernels/fp8/quantize/", "kernels/fp8/linear/"],
    "int4": ["faq/", "kernels/gemlite/gemm/"],
    "quantization": ["derivations/quantization/", "guides/glossary/", "kernels/gemlite/gemm/"],
    "online softmax": ["learn/softmax/", "guides/glossary/"],
    # names
    "tl.dot": ["learn/tiles_and_pointers/", "reference/triton-language/"],
    "tl.load": ["learn/first_kernel/", "reference/triton-language/"],
    "tl.sum": ["learn/softmax/", "reference/triton-language/"],
    "erf": ["reference/triton-language/"],
    "torch.compile": ["guides/compile-and-export/", "guides/should-you-write-a-kernel/"],
    "FlexAttention": ["guides/should-you-write-a-kernel/"],
    "CUTLASS": ["guides/should-you-write-a-kernel/"],
    "layernom": ["kernels/classics/layernorm/", "kernels/fast/layernorm/"],  # a letter is missing
    "layernorm": ["kernels/classics/layernorm/"],
    "flash attention": [
        "learn/attention/",
        "kernels/attention/flash_attention/",
        "kernels/attention/causal_attention/",
    ],
    "matrix multiplication": ["learn/tiles_and_pointers/", "kernels/tutorials/matmul_blocked/"],
    # machines
    "AMD": ["guides/cards/", "faq/", "compatibility/"],
    "RTX 4090": ["guides/cards/", "compatibility/"],
    "DDP": ["faq/"],
    "multi-GPU": ["faq/"],
    "CUDA graphs": ["guides/what-a-call-costs/", "faq/"],
    "autotune cache": ["guides/autotuning/"],
    "interpreter": ["guides/debugging/", "guides/glossary/"],
    # this site
    "how do I install it": ["getting-started/"],
    "write my own kernel": ["learn/own_operation/", "learn/your_own_kernel/", "guides/should-you-write-a-kernel/"],
    "custom autograd function": ["guides/from-pytorch/", "learn/own_operation/"],
    "citation": ["faq/"],
    "license": ["faq/"],
}


#: Counts what the search's worker is asked and what it answers: 2 and 3 are the theme's numbers for them. What finds
#: nothing is asked again, before its answer counts.
COUNTED = """(() => {
    window.searched = { asked: 0, answered: 0, last: "" }
    const post = Worker.prototype.postMessage, heard = new Set()
    Worker.prototype.postMessage = function (message) {
        if (!heard.has(this))
            heard.add(this) && this.addEventListener("message", ({ data }) => searched.answered += data.type === 3)
        if (message.type === 2) searched.asked++, searched.last = message.data
        post.call(this, message)
    }
})()"""


@pytest.fixture(scope="module")
def search(browser, address):
    """What the site's search finds, in the order in which it shows it: of each page the place that counts most.

    It waits for the answer to its own question: that to the one before may come late.
    """
    browser.open(urljoin(address, "guides/numerics/"))
    browser.run(COUNTED)
    browser.run("document.querySelector('.md-search__input').focus()")
    browser.wait("document.querySelector('.md-search-result__meta').textContent.trim() !== 'Initializing search'")

    def found(words: str) -> list[str]:
        typed = "(() => { const box = document.querySelector('.md-search__input'); box.value = %s;"
        typed += " box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})) })()"
        items = "[...document.querySelectorAll('.md-search-result__item')]"
        for text, asked in ("", "!searched.last"), (words, "searched.last"):
            browser.run(typed % json.dumps(text))
            browser.wait(f"{asked} && searched.asked === searched.answered")
            browser.run("new Promise(shown => requestAnimationFrame(() => requestAnimationFrame(shown)))")
        browser.wait(f"{items}.length")
        best = "[...item.querySelectorAll('a')].map(a => a.href).find(link => link.includes('#'))"
        links = browser.run(f"{items}.map(item => {best} ?? item.querySelector('a').href)")
        root = urlsplit(address).path
        parts = [urlsplit(link) for link in links]
        return [f"{part.path.removeprefix(root)}#{part.fragment}" for part in parts]

    return found


@pytest.mark.parametrize(
    "words", [pytest.param(each, marks=[pytest.mark.site_check] * (n % 3 > 0)) for n, each in enumerate(SEARCHES)]
)
def test_a_search_leads_to_the_explanation(search, words):
    found = [link.partition("#")[0] for link in search(words)[:3]]
    assert set(found) & set(SEARCHES[words]), found


@pytest.mark.parametrize(
    "step, numbers", [(4, True), *(pytest.param(1, each, marks=pytest.mark.site_check) for each in (True, False))]
)
def test_a_message_is_found_when_it_is_pasted(search, step, numbers):
    """With its names; with and without its numbers."""
    missed = []
    for entry in errors.entries()[::step]:
        pasted = entry.says if numbers else re.sub(r"\d+", "", entry.says)
        first, *_ = search(pasted)
        if first != f"{ERRORS}#{error_page.anchor(entry)}":
            missed.append((pasted, first))
    assert missed == []


@pytest.mark.parametrize("word", ["no", "log", "int", "sum"])
def test_a_short_word_counts_whole(search, site, word):
    """What is found first has the word itself, not only others that begin like it."""
    texts = json.loads((site / "search/search_index.json").read_text("utf-8"))["docs"]
    for link in search(word)[:5]:
        text = "".join(f"{each['title']} {each['text']} " for each in texts if each["location"] == link.rstrip("#"))
        assert re.search(rf"\b{word}\b", text, re.I), link


def test_the_bar_says_where_the_reader_is(browser, address):
    browser.open(urljoin(address, PAGE))
    current = "document.querySelector('.k-sections > summary').textContent"
    assert browser.run(current) == "Sections"
    # Without notes the first heading comes close to the bar; both are still below the window.
    browser.run("localStorage.setItem('academy.notes', 'hidden')")
    browser.open(urljoin(address, PAGE))
    assert browser.run(current) == "Sections"
    browser.run("localStorage.clear()")
    browser.open(urljoin(address, PAGE))
    assert browser.run("getComputedStyle(document.querySelector('.md-top')).display") == "none"
    browser.run("document.querySelector('.k-sections > summary').focus()")
    browser.press("Enter")
    names = browser.run("[...document.querySelectorAll('.k-sections nav a')].map(a => a.textContent)")
    assert names[:2] == ["Reference", "Forward: three passes over a row"]
    browser.press("Tab")
    browser.press("Tab")
    browser.press("Enter")
    browser.wait(f"{current} === 'Forward: three passes over a row'")
    assert not browser.run("document.querySelector('.k-sections').open")
    progress = "+getComputedStyle(document.querySelector('.k-bar')).getPropertyValue('--k-progress')"
    before = browser.run(progress)
    # Rows get their height when they come into sight, so that the end moves away at first.
    to_end = "scrollTo({ top: document.body.scrollHeight, behavior: 'instant' })"
    browser.wait(f"{to_end}, {current} === 'A run small enough to watch' && {progress} > {before}")
    assert 0 < before < 0.5 and browser.run(progress) > 0.9


def test_what_is_not_the_kernel_is_folded(browser, address):
    browser.open(urljoin(address, PAGE))
    titles = browser.run("[...document.querySelectorAll('.k-fold > summary')].map(s => s.textContent.split(',')[0])")
    assert titles == ["Imports", "Launcher", "Launcher", "Example"]
    number = browser.run("document.querySelector('#layernorm_backward .k-l').id")
    browser.fresh(urljoin(address, f"{PAGE}#{number}"))
    browser.wait("document.querySelector('#layernorm_backward > details').open")
    assert 40 < browser.run(f"document.getElementById('{number}').getBoundingClientRect().top") < 900


def test_the_kernel_alone(browser, address):
    browser.open(urljoin(address, PAGE))
    shown = (
        "[...document.querySelectorAll('.k-row')].filter(row => row.offsetHeight).map(row => row.id).filter(Boolean)"
    )
    browser.run("document.querySelector('[data-k-toggle=kernels]').click()")
    kernels = ["layernorm_forward_kernel", "layernorm_backward_kernel", "layernorm_backward_columns_kernel"]
    assert browser.run(shown) == kernels
    headings = "[...document.querySelectorAll('.k-heading')].filter(row => row.offsetHeight).length"
    assert browser.run(headings) == 3
    browser.run("document.querySelector('[data-k-toggle=kernels]').click()")
    assert "layernorm_forward" in browser.run(shown)


def test_the_kernel_alone_stays_in_sight(browser, address):
    switch = "document.querySelector('[data-k-toggle=kernels]').click()"
    browser.open(urljoin(address, PAGE))
    browser.run("scrollTo({ top: 40, behavior: 'instant' })")
    bar = "document.querySelector('.k-bar').getBoundingClientRect().top"
    before = browser.run(bar)
    browser.run(switch)
    assert browser.run(bar) == pytest.approx(before, abs=1) and before > 200, "the bar, before it is reached"
    browser.fresh(urljoin(address, PAGE))
    browser.run("document.querySelector('#layernorm_reference').scrollIntoView()")
    browser.run(switch)
    first = "document.querySelector('#layernorm_forward_kernel .k-l').getBoundingClientRect().top"
    assert 50 < browser.run(first) < 400, "the reference is gone, and the first kernel in its place"


def test_long_lines_can_wrap(browser, address):
    browser.open(urljoin(address, PAGE), width=390, height=844)
    cut = "[...document.querySelectorAll('.k-code code')].filter(c => c.scrollWidth > c.clientWidth + 1).length"
    assert browser.run(cut) > 0
    browser.wait("document.querySelector('.cut-right') !== null")
    browser.run("document.querySelector('[data-k-toggle=wrap]').click()")
    assert browser.run(cut) == 0
    browser.run("document.querySelector('[data-k-toggle=wrap]').click()")


@pytest.mark.parametrize(
    "page", ["getting-started/", pytest.param("learn/first_kernel/", marks=pytest.mark.site_check)]
)
def test_code_that_is_cut_has_a_soft_edge(browser, address, page):
    browser.open(urljoin(address, page), width=390, height=844)
    code = "[...document.querySelectorAll('.highlight code')].filter(c => c.checkVisibility())"
    browser.run(LAID_OUT)
    browser.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 100)))")
    cut = f"{code}.filter(c => c.scrollWidth > c.clientWidth + 1)"
    assert browser.run(f"{cut}.length") > 0
    assert browser.run(f"{cut}.every(c => getComputedStyle(c).maskImage.includes('gradient'))")


def test_what_was_checked_covers_neither_formula_nor_neighbour(browser, address):
    browser.open(urljoin(address, "derivations/layernorm/"), width=390, height=844)
    boxes = """[...document.querySelectorAll('.eq')].filter(eq => eq.querySelector('.eq-check')).slice(0, 6).map(eq => {
      eq.scrollIntoView({ block: 'center' })
      const part = name => eq.querySelector(name).getBoundingClientRect(), before = part('.katex-html').left
      eq.querySelector('.eq-check').open = true
      const formula = part('.katex-html'), box = part('.eq-check > p')
      eq.querySelector('.eq-check').open = false
      return [formula.left - before, box.top - formula.bottom, box.left, innerWidth - box.right]
    })"""
    for moved, below, left, right in browser.run(boxes):
        assert moved == 0 and below >= -1 and left >= 0 and right >= 0
    sizes = """[...document.querySelectorAll('.eq-check > summary')]
        .filter(word => word.checkVisibility({ contentVisibilityAuto: true }))
        .map(word => word.getBoundingClientRect()).map(({ width, height }) => Math.min(width, height))"""
    assert min(browser.run(sizes)) >= 44, "a finger hits it"
    browser.open(urljoin(address, "derivations/layernorm/"), width=1440)
    assert min(browser.run(sizes)) >= 24


#: What stands in the row that the readout is at.
SHOWN = """[...document.querySelectorAll('.bench-at')]"""
PLOTTED = ["benchmarks/flash_attention/", "benchmarks/gemm_splitK/", "benchmarks/matmul_autotuned/", "benchmarks/"]


@pytest.mark.parametrize("page", PLOTTED)
def test_plots_fit_a_phone_and_tell_their_values(browser, address, page):
    browser.open(urljoin(address, page), width=390, height=844)
    points = "[...document.querySelectorAll('.bench-point')].map(p => p.getBoundingClientRect()).filter(b => b.width)"
    assert browser.run(f"{points}.length") > 10
    assert browser.run(f"{points}.every(b => b.left >= 0 && b.right <= innerWidth)")
    assert browser.run("[...document.querySelectorAll('.bench-plot')].every(p => p.scrollWidth <= p.clientWidth)")
    outside = """[...document.querySelectorAll('.bench text')].filter(text => {
      const box = text.getBoundingClientRect(), plot = text.closest('svg').getBoundingClientRect()
      return box.width && (box.left < plot.left - 1 || box.right > plot.right + 1)
    }).map(text => text.textContent)"""
    assert browser.run(outside) == [], "names of rows, ticks and values"
    overlapping = """[...document.querySelectorAll('.bench-narrow')].flatMap(svg => {
      const boxes = [...svg.querySelectorAll('text')].map(text => [text, text.getBoundingClientRect()])
      const beside = (a, b) => a.right < b.left + 1 || b.right < a.left + 1
      const meet = (a, b) => !beside(a, b) && a.top < b.bottom - 3 && b.top < a.bottom - 3
      return boxes.filter(([, a], i) => a.width && boxes.some(([, b], j) => j > i && meet(a, b)))
    }).map(([text]) => text.textContent)"""
    assert browser.run(overlapping) == []
    empty = """[...document.querySelectorAll('figure.bench')].flatMap(figure => [...figure.querySelectorAll('button')]
      .filter(entry => !figure.querySelector(`svg [data-series="${entry.dataset.series}"] :is(use, path)`)))
      .map(entry => entry.textContent)"""
    assert browser.run(empty) == [], "entries of a legend without a mark"
    assert browser.run("[...document.querySelectorAll('.bench-legend button')].every(b => b.offsetHeight >= 44)")

    # The keyboard goes from row to row; a tap shows the row under the finger, and it stays when the finger is lifted.
    tip = "document.querySelector('.bench-tip')?.innerText"
    browser.run("document.querySelector('.bench-plot').focus()")
    browser.press("ArrowRight")
    first = browser.run(tip)
    browser.press("ArrowRight")
    assert browser.run(tip) != first and browser.run(tip).count("\n") == browser.run(f"{SHOWN}.length")
    tap = """[...document.querySelectorAll('.bench-point')].filter(p => p.getBoundingClientRect().width).at(-1)"""
    browser.run(f"({tap}).scrollIntoView({{block: 'center'}})")
    x, y = browser.run(f"(b => [b.x + b.width / 2, b.y + b.height / 2])(({tap}).getBoundingClientRect())")
    browser.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    browser.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert "\n" in browser.wait(tip) and browser.run("document.querySelectorAll('.bench-tip').length") == 1
    last = "[...document.querySelectorAll('.bench-tip')].at(-1).getBoundingClientRect()"
    assert browser.run(f"{last}.left >= 0 && {last}.right <= innerWidth")

    # An entry of the legend shows its series alone, in the plot and in the readout.
    alone = """(legend => {
      const plot = legend.nextElementSibling
      legend.children[1].click()
      plot.blur()
      const dim = [...plot.querySelectorAll('.bench-dim')].map(each => each.dataset.series)
      return [legend.children[1].dataset.series, [...new Set(dim)].join(), legend.children.length]
    })(document.querySelector('.bench-legend'))"""
    series, dimmed, count = browser.run(alone)
    assert series not in dimmed and len(dimmed.split(",")) == count - 1
    browser.run("document.querySelector('.bench-plot').focus()")
    browser.press("ArrowRight")
    assert browser.run(tip).count("\n") == 1


@pytest.mark.parametrize(
    "page, width",
    [
        ("derivations/attention/", 1440),
        *(
            pytest.param(page, width, marks=pytest.mark.site_check)
            for page, width in [("derivations/attention/", 390)]
            + [(page, width) for page in (PAGE, "guides/debugging/") for width in (390, 1440)]
        ),
    ],
)
def test_the_scrollbar_does_not_jump(browser, address, page, width):
    browser.forget()
    browser.open(urljoin(address, page), width=width)
    height = "document.documentElement.scrollHeight"
    estimated = browser.run(height)
    browser.run(
        "document.head.insertAdjacentHTML('beforeend', '<style>* { content-visibility: visible !important }</style>')"
    )
    assert browser.run(height) == pytest.approx(estimated, rel=0.08)


def test_the_cards_of_home_leave_no_hole(browser, address):
    for width in (390, 1100):
        browser.open(address, width=width)
        for cards, count in ((".tracks", 3), (".offers:not(.tracks)", 6)):
            found = f"[...document.querySelectorAll('{cards} > ul > li')]"
            tops = browser.run(f"{found}.map(card => card.offsetTop)")
            rows = [tops.count(top) for top in dict.fromkeys(tops)]
            assert len(set(rows)) == 1 and sum(rows) == count, (width, cards, rows)
