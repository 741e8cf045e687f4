"""What the site says about speed is what the files say."""

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

pytest.importorskip("mkdocs", reason="pages are built where mkdocs is installed")

from academy.book import facts
from academy.results import figures, overview, pages, plots, store
from tests.bench import fake
from tests.kernels.harness import ROOT


def entry(ours=1.0, eager=2.0, **others):
    times = {"lesson": ours, "eager": eager, **others}
    timed = {n: dict(ms=ms, low_ms=ms, high_ms=ms, repeats=10, peak_bytes=3 << 20) for n, ms in times.items()}
    return dict(bytes=10**9, operations=10**6, copy_ms=0.9, limit_ms=0.9, providers=timed)


def case(shape=(4, 8), variant="", source="abc", notes=None, **passes):
    return dict(
        variant=variant,
        shape=list(shape),
        dtype="bfloat16",
        date="2026-01-02",
        versions={"torch": "2.11.0", "triton": "3.6.0"},
        sources={"lesson": source},
        timing="events",
        copy_tb_s=4.25,
        matrix_tflop_s=715.0,
        passes=passes or {"forward": entry(), "backward": entry(eager=0.5, **{"torch.compile": 0.8})},
        notes=notes or {},
    )


@pytest.fixture
def root(tmp_path):
    return fake.repository(tmp_path)


def put(root, *cases, device="NVIDIA H200", **more):
    record = dict(operation="double", device=device, cases=list(cases))
    store.write(root / "benchmarks" / "results" / store.slug(device) / "double.json", {**record, **more})


def text(pieces):
    return re.sub(r"<svg.*?</svg>", "", "\n".join(pieces), flags=re.S)


# ---------------------------------------------------------------- numbers in prose


MATRIX = dict(entry(), bytes=10**6, operations=10**11)
SEVERAL = [case(), case(variant="tanh", forward=entry(ours=0.07)), case((64, 64), forward=MATRIX)]
ONE_PASS = {"rungs": [{"name": "one pass", "what": "less", "forward_ms": 0.25}]}
#: What is committed, by device, other files of it, and what a key gives then; None where it is wrong.
QUOTED = [
    ({"NVIDIA H200": SEVERAL}, {}, {
        "double/4x8/forward/ms": "1 ms",
        "double/4x8/forward/share": "90 %",
        "double/4x8/forward/rate": "1 TB/s",
        "double/4x8/forward/memory": "3 MiB",
        "double/4x8/forward/speedup": "2.00x",
        "double/4x8/forward/best_peer": "eager",
        "double/4x8/forward/eager.ms": "2 ms",
        "double/4x8/forward/eager.share": "45 %",
        "double/4x8/backward/torch.compile.speedup": "0.80x",
        "double/4x8/backward/speedup": "0.50x",
        "double/4x8@bfloat16/forward/ms": "1 ms",
        "double:tanh/4x8/forward/ms": "70 µs",
        "double/64x64/forward/rate": "100 TFLOP/s",
        "device/copy": "4.25 TB/s",
        "device/matrix": "715 TFLOP/s",
        "double/4x9/forward/ms": None,
        "double/4x8@float32/forward/ms": None,
        "double/4x8/sideways/ms": None,
        "double/4x8/forward/speed": None,
        "double/4x8/forward/liger-kernel.ms": None,
        "double:none/4x8/forward/ms": None,
        "double/4x8/forward": None,
        "triple/4x8/forward/ms": None,
        "device/colour": None,
    }),
    ({"NVIDIA H200": [case(forward=entry(fast=0.5))]}, {}, {  # ours is the fast file, where there is one
        "double/4x8/forward/ms": "0.5 ms",
        "double/4x8/forward/lesson.ms": "1 ms",
        "double/4x8/forward/speedup": "4.00x",
        "double/4x8/forward/best_peer": "eager",
    }),
    ({}, {}, dict.fromkeys(["double/4x8/forward/ms", "device/copy", "measuring/median"], "not measured yet")),
    ({}, {"ladder/double": ONE_PASS, "experiments/measuring": {"values": {"median": {"value": 7.25, "unit": "µs"}}}}, {
        "double/ladder/one pass/forward_ms": "0.25 ms",
        "double/ladder/two passes/forward_ms": None,
        "measuring/median": "7.25 µs",
        "measuring/mode": None,
    }),
    ({"NVIDIA A100": [case(forward=entry(ours=5.0))]}, {}, {"double/4x8/forward/ms": "5 ms"}),
    ({"NVIDIA A100": [case(forward=entry(ours=5.0))], "NVIDIA H200": [case()]}, {}, {"double/4x8/forward/ms": "1 ms"}),
]  # fmt: skip


@pytest.mark.parametrize(("cases", "others", "expected"), QUOTED)
def test_measured(cases, others, expected, root):
    for device, some in cases.items():
        put(root, *some, device=device)
    for name, content in others.items():
        store.write(root / f"benchmarks/results/nvidia-h200/{name}.json", content)
    assert {key: figures.measured(key, root) for key in expected} == expected


def test_every_number_quoted_in_the_repository_exists():
    texts = [*ROOT.glob("backprop_math/*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/learn/*.py")]
    wrong = [
        (path.name, key)
        for path in [*ROOT.glob("annotated_examples/**/*.py"), *texts]
        for key in re.findall(r"\[\[bench:[\s#]*([^\]]+?) *\]\]", path.read_text("utf-8"))
        if figures.measured(key, ROOT) is None
    ]
    assert not wrong


#: A time or a rate with its unit.
SPEED = re.compile(r"\d[\d.,]*\s?(?:(?:[mµn]|milli|micro)s|[TG]B/s|[TG]FLOP/s)\b")


def test_no_speed_is_typed_by_hand():
    """In notes, derivations and chapters a measured speed is drawn from its JSON."""
    assert SPEED.findall("0.267 ms, 4.2\u00a0TB/s, 40 µs") and not SPEED.findall("3 must, 5 msgs, [[bench: a/2x3/ms]]")
    files = [*ROOT.glob("annotated_examples/**/*.py"), *ROOT.glob("backprop_math/*.md"), *ROOT.glob("docs/learn/*.*")]
    found = [(path.name, speed) for path in files for speed in SPEED.findall(path.read_text("utf-8"))]
    assert not found


# ---------------------------------------------------------------- an operation's page


NOTES = {
    "liger-kernel": {"writes_inputs": ["x"]},
    "gemlite": {"missing": "ModuleNotFoundError: No module named 'gemlite'"},
    "rough": {"inaccurate": "out: RMS error 1"},
    "lesson": {"failed": "out: `wrong`"},
}
SQUARES = [case((n, n, n), forward=dict(entry(), operations=2 * n**3)) for n in range(128, 1281, 128)]
#: What is committed, by device, and what its page says, in this order.
SAID = {
    "nothing": ({}, ["Not measured yet", "academy bench --only double"]),
    "a peer ahead": ({"NVIDIA H200": [case(), case((3, 5), forward=entry(eager=0.995), backward=entry())]}, [
        "within 1 %) in both cases", 'class="bench-behind" title="eager is ahead"',
        "in 1 of 2 cases; it falls behind at 4x8 (eager takes 50 % of its time)",
    ]),
    "notes": ({"NVIDIA H200": [case(notes=NOTES), case((3, 5), notes=NOTES)]}, [
        "lesson failed: `4x8: out: wrong`", "liger-kernel overwrites its inputs (x)", "gemlite was not installed",
        "rough is outside the error rule", "and in 1 more case\n",
    ]),
    "two devices": ({"NVIDIA A100": [case(forward=entry(ours=5.0))], "NVIDIA H200": [case()]}, [
        "## NVIDIA H200", "## NVIDIA A100", "5 ms",
    ]),
    "squares": ({"NVIDIA H200": [*SQUARES, case((3, 5, 7), forward=entry())]}, [
        "TFLOP/s over the size of a square", "share of the limit",
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_what_a_page_says(name, root):
    cases, words = SAID[name]
    for device, some in cases.items():
        put(root, *some, device=device)
    page = text(pages.operation("double", root))
    assert all(each in page for each in words), [each for each in words if each not in page]
    assert name != "a peer ahead" or page.count("bench-behind") == 1
    assert name != "two devices" or page.index(words[0]) < page.index(words[1])


def test_a_name_from_a_file_cannot_become_html(root):
    put(root, case(forward=entry(**{"<b>peer": 3.0})))
    assert "<b>peer" not in "\n".join(pages.operation("double", root))


def test_a_page_has_all_that_was_measured(root):
    providers = {"lesson": {"forward_us": 15.0}, "eager": {"missing": "x"}}
    host = [dict(variant="", shape=[4, 8], sources={"lesson": "abc"}, providers=providers)]
    put(root, case(), case((3, 5)), host=host)
    rungs = [{"name": "naive", "what": "row by row, `tl.load`", "forward_ms": 3.0}]
    ladder = {"date": "2026-01-01", "shape": [4, 8], "copy_forward_ms": 1.5, "rungs": rungs}
    store.write(root / "benchmarks" / "results" / "nvidia-h200" / "ladder" / "double.json", ladder)
    pieces = pages.operation("double", root)
    page = text(pieces)
    for words in ("NVIDIA H200 on 2026-01-02", "torch 2.11.0", "## Forward", "## Backward", "## Memory", "3 MiB"):
        assert words in page
    for words in (
        "1 ms, 90 %, 1 TB/s",
        "2 ms, 45 %",
        "15 µs",
        "not installed",
        "row by row, <code>tl.load</code>",
        "3 ms, 50 %",
        "## The ladder",
        "## Measure it yourself",
    ):
        assert words in page
    assert sum("<svg" in piece for piece in pieces if isinstance(piece, pages.Html)) == 4


def test_times_that_not_every_rung_has_are_drawn_apart(root):
    put(root, case())
    rungs = [
        {"name": "naive", "what": "", "1_row_ms": 3.0, "64_rows_ms": 5.0},
        {"name": "only with many rows", "what": "", "64_rows_ms": 4.0},
    ]
    path = root / "benchmarks" / "results" / "nvidia-h200" / "ladder" / "double.json"

    def drawn() -> list[str]:
        pieces = pages.operation("double", root)
        return [
            re.sub("<[^>]+>", " ", p) for p in pieces if isinstance(p, pages.Html) and "<svg" in p and "Ladder" in p
        ]

    store.write(path, {"shape": [4, 8], "rungs": rungs})
    first, second = drawn()
    assert "Ladder, 1 row: ms at 4x8" in first and "only with many rows" not in first
    assert "Ladder, 64 rows: ms at 4x8" in second and "only with many rows" in second
    store.write(path, {"shape": [4, 8], "shape_64_rows_ms": [64, 8], "rungs": rungs})
    first, second = drawn()
    assert "Ladder, 1 row: ms at 4x8" in first and "Ladder, 64 rows: ms at 64x8" in second
    store.write(path, {"shape": [4, 8], "rungs": rungs[:1]})
    assert len(drawn()) == 1


def test_a_stale_page_says_so(root):
    put(root, case(source="old"))
    assert "Stale" in text(pages.operation("double", root))
    now = store.source_hash(root / "annotated_examples/classics/double.py", root)
    put(root, case(source=now))
    assert "Stale" not in text(pages.operation("double", root))
    host = [dict(variant="", shape=[4, 8], sources={"lesson": "old"}, providers={"lesson": {"forward_us": 15.0}})]
    put(root, case(source=now), case((3, 5), source="old"), host=host)
    page = text(pages.operation("double", root))
    assert "measured: 3x5 and host time. The others were measured with the current kernel." in page


# ---------------------------------------------------------------- plots


def plot(kind):
    series = [plots.Series("ours", [1.0, 2.0], ["1 ms", ""]), plots.Series("a < b", [2.0, None])]
    if kind == "lines":
        return plots.lines("p", "a & b", [1, 2], "size", series, "TFLOP/s")
    if kind == "bars":
        return plots.bars("p", "a & b", ["x", "y"], series, "ms")
    limit = plots.Limit(100, "copy speed, 100 %")
    return plots.dots("p", "a & b", ["x", "y"], series, "%", limit, ["rows 3", "rows 4"])


@pytest.mark.parametrize("kind", ["lines", "bars", "dots"])
def test_a_plot_follows_the_page(kind):
    text = plot(kind).svg
    tree = ElementTree.fromstring(f"<div>{text}</div>")
    wide, narrow = tree
    assert all(each.get("role") == "img" and each.get("aria-label") == "a & b" for each in tree)
    assert float(narrow.get("viewBox").split()[2]) < 300 and "display:none" in narrow.get("style")
    assert not re.findall(r"#[0-9a-f]{6}", text), "a colour that no scheme can change"
    assert "var(--bench-0)" in text and "var(--bench-1)" in text and "currentColor" in text
    words = "".join(tree.itertext())
    assert "y" in words if kind != "lines" else "size" in words, "labels must stay text"
    assert [name for name, _ in plot(kind).legend] == ["ours", "a < b"]
    series = {element.get("data-series") for element in tree.iter()} - {None}
    assert series == {"0", "1"}, "what the legend's entries show alone"
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids)) and all(i.startswith("p-") for i in ids)
    assert set(re.findall(r'href="#([^"]+)', text)) == set(ids)
    assert plot(kind).svg == text, "the same every time"
    for each in tree if kind != "bars" else ():  # whose numbers stand beside them
        told = ["".join(point.itertext()) for point in each.iter("use") if len(point)]
        assert [name.partition(",")[0] for name in sorted(told)] == ["a < b", "ours", "ours"]


def test_the_limit_is_named_and_shapes_are_in_order(root):
    assert "copy speed, 100 %" in plot("dots").svg
    assert plot("dots").rows == [["rows 3", "1 %, 1 ms", "2 %"], ["rows 4", "2 %", ""]]
    put(root, case((64, 4)), case((4, 8)), case((4, 2)))
    words = re.sub("<[^>]+>", "|", "".join(p for p in pages.operation("double", root) if "share of the limit" in p))
    assert re.findall(r"lesson, (\d+x\d+)", words)[:3] == ["4x2", "4x8", "64x4"]


def test_a_shape_is_decoded_and_values_above_the_limit_are_explained(root):
    path = root / "operations" / "double.py"
    path.write_text(path.read_text("utf-8") + 'AXES = ("rows", "columns")\n', "utf-8")
    put(root, case(forward=entry(ours=0.8), backward=entry()), case((3, 5), forward=entry(), backward=entry()))
    page = text(pages.operation("double", root))
    assert "Rows: rows x columns." in page and "rows 4, columns 8" in page and "<th>shape: rows x columns</th>" in page
    assert "The kernel reaches 90 to 112 % of copy speed" in page
    above = page.index("A value above 100 % beats copy speed")
    assert page.index("## Forward") < above < page.index("## Backward") and page.count("A value above 100 %") == 1
    assert "A value above 100 % beats copy speed" in text(overview.summary(root))


def test_every_benchmark_names_the_axes_of_its_shapes():
    for path in [*facts.measured(ROOT), *(ROOT / "benchmarks/ladders").glob("*.py")]:
        axes = facts.axes(path)
        results = figures.results(ROOT, path.stem if path.parent.name == "operations" else f"ladders/{path.stem}")
        shapes = [case["shape"] for _, record in results for case in record["cases"]]
        assert axes and all(len(shape) == len(axes) for shape in shapes), path.name


def test_no_mark_hides_another_and_no_label_leaves_the_plot():
    """Text is measured as if each character were as wide as a digit of the site's font is in bold."""
    names = ["a", "b", "c", "d"]
    values = [[100.0, 100.0, 50.0], [100.5, 30.0, None], [99.5, 100.0, 51.0], [1000.0, 1.0, 50.5]]
    series = [plots.Series(name, some) for name, some in zip(names, values)]
    labels = ["4x32x8x4096x128", "a name of a rung that is so long that it takes lines", "two planes at once, unrolled"]
    shown = [
        plots.dots("dots", "", labels, series, "MiB", plots.Limit(100, "copy speed, 100 %")),
        plots.dots("few", "", ["a"], [plots.Series("a", [0.3])], "MiB"),
        plots.bars("bars", "", labels, series[:1], "ms"),
        plots.bars("logarithmic", "", labels, series[3:], "ms"),
        plots.lines("lines", "", [128, 1024, 4096], "size", series[:2], "TFLOP/s"),
        plots.lines("steep", "", [1, 2, 3], "size", series[3:], "loss", True),
        plots.lines("flat", "", [1, 2, 3], "size", [plots.Series("a", [2.0, 2.5, 3.0])], "loss", True),
    ]
    for svg in ElementTree.fromstring("<div>" + "".join(each.svg for each in shown) + "</div>"):
        width, height = map(float, svg.get("viewBox").split()[2:])
        dots = [use for use in svg.iter("use") if use.get("href").startswith("#dots")]
        marks = [(float(use.get("x")), float(use.get("y"))) for use in dots]
        near = [(a, b) for a, b in itertools.combinations(marks, 2) if math.dist(a, b) < 0.9 * 72 * plots.MARK]
        assert not near
        boxes = []
        for each in svg.iter("text"):
            x, y, size = float(each.get("x")), float(each.get("y")), float(each.get("font-size", 10))
            long = 0.58 * size * len(each.text)
            left = x - long * {"start": 0, "middle": 0.5, "end": 1}[each.get("text-anchor")]
            upright = (left, y - 0.75 * size, left + long, y + 0.2 * size)
            boxes.append((x - size, y - long / 2, x, y + long / 2) if each.get("transform") else upright)
            assert boxes[-1][0] >= 0 and boxes[-1][2] <= width and 0 <= y <= height, each.text
        for a, b in itertools.combinations(boxes, 2):
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (a, b)
        assert len(boxes) > 4, "an axis without numbers"


def test_the_overview_has_a_row_for_each_operation(root):
    put(root, case(), case((3, 5), forward=entry(ours=0.9)), case((3, 6), forward=entry(ours=1.8)))
    drawn = "".join(piece for piece in overview.summary(root) if isinstance(piece, pages.Html))
    told = re.findall(r"<title>([^<]+)</title>", drawn)
    assert "ours, double: 90 % of the limit" in told  # the middle one of 50, 90 and 100
    assert "eager, double: 45 % of the limit" in told


def test_every_colour_has_a_light_and_a_dark_version():
    css = (ROOT / "academy" / "bench" / "static" / "bench.css").read_text("utf-8")
    for index in range(len(plots.MARKS)):
        assert css.count(f"--bench-{index}:") == 2
    assert css.count("--bench-grid:") == 2


# ---------------------------------------------------------------- all operations


def test_the_summary_has_every_operation(root):
    put(root, case(), case((3, 5)))
    (root / "operations" / "triple.py").write_text("x = 1\nBENCH = {}\n", "utf-8")
    page = "\n".join(overview.summary(root))
    assert "| [double](double.md) | forward | 2 | 90 % | 2.00x (stale) |" in page
    assert "| [double](double.md) | backward | 2 | 90 % | 0.50x (stale) |" in page
    assert "Not measured yet: `triple`." in page
    assert re.search(r"Measured on \d{4}-\d\d-\d\d with torch \S+, triton \S+\. `make bench`", page)


def test_an_empty_summary(root):
    assert "No results are committed." in "\n".join(overview.summary(root))


def test_a_pass_that_only_a_later_variant_has(tmp_path):
    """The plot of memory takes the first variant that was measured in the pass that it shows."""
    entry = dict(bytes=8, providers={"lesson": dict(ms=1.0, peak_bytes=1 << 20)})
    common = dict(shape=[128], dtype="bfloat16")
    cases = [common | dict(variant="", passes=dict(forward=entry))]
    cases.append(common | dict(variant="relu", passes=dict(backward=entry)))
    assert "Peak memory, backward, relu<" in str(pages.memory_plot(dict(cases=cases), "x"))


def test_a_variant_named_like_its_pass_is_not_named_twice():
    assert pages.pass_name("backward", "backward") == pages.pass_name("backward", "") == "Backward"
    assert pages.pass_name("forward", "leaky_relu") == "Forward, leaky_relu"


def test_wall_time_and_where_only_the_launch_is_behind(root):
    """Ours: kernel ahead of both peers, called from Python behind one of them at one shape."""

    def walls(**times):
        timed = entry(1.0, 2.0)
        for name, ms in times.items():
            timed["providers"][name]["wall_ms"] = ms
        return timed

    put(root, case(forward=walls(lesson=4.0, eager=3.0)), case((9, 9), forward=walls(lesson=1.0, eager=2.0)))
    page = text(pages.operation("double", root))
    assert "a peer is ahead at 4x8 (eager takes 75 % of its time) although its kernels are not." in page
    assert "9x9 (eager" not in page
    assert "wall time of a plain call" in page
    put(root, case())
    assert "wall time" not in text(pages.operation("double", root))
