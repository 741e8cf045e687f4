"""The work around a kernel: checking, timing, profiling, wrapping, replacing."""

import re

from academy.results import figures

import card
from draw import Control, Panel, Picture, bars, picture
from moving import moving


def _texts(pattern: str) -> list[str]:
    return [path.read_text("utf-8") for path in sorted(card.ROOT.glob(pattern))]


def _flow(panel: Panel, steps, top: float = 26, high: float = 44, gap: float = 26) -> None:
    """Boxes from top to bottom, an arrow between each two. A step: kind, words, what stands beside the arrow to it."""
    for place, (kind, words, why) in enumerate(steps):
        y = top + place * (high + gap)
        panel.box(20, y, 320, high, kind, words)
        if place:
            panel.arrow(60, y - gap + 2, 60, y - 2)
            panel.text(74, y - 8, why, "small")
    panel.height = top + len(steps) * (high + gap) - gap + 4


@picture
def timeline():
    found = {
        name: value["value"] for name, value in figures.first(card.ROOT, "experiments/measuring")["values"].items()
    }
    returned, done = found["returned"] / 1000, found["done"]
    panel = Panel(210, "One call: who is busy when")
    at = lambda ms: 56 + 290 * ms / done  # noqa: E731
    panel.text(0, 58, "Python", "small")
    panel.box(56, 40, at(returned) - 56, 28, "a")
    panel.text(at(returned) + 6, 58, f"returns after {found['returned']:g} µs", "small")
    panel.text(0, 108, "GPU", "small")
    panel.box(60, 90, at(done) - 60, 28, "b", "kernels run")
    panel.arrow(at(done), 158, at(done), 122)
    panel.text(350, 174, f"done after {done:g} ms", "small", "end")
    panel.arrow(at(returned), 196, at(returned), 72)
    panel.text(at(returned) + 8, 200, "a clock that stops here has timed nothing", "small")
    return Picture(
        "A launch puts work into a queue and returns. Wait for the GPU, or time with events that the GPU itself records.",
        f"Two lanes. Python returns after {found['returned']:g} microseconds; the GPU is busy until {done:g} milliseconds.",
        [panel],
    )


@picture
def loads():
    content = figures.first(card.ROOT, "ladder/swiglu")
    wanted = ("eager", "2-byte loads", "8-byte loads", "16-byte loads")
    rows = [
        (rung["name"], rung["forward_ms"], figures.milliseconds(rung["forward_ms"]))
        for rung in content["rungs"]
        if rung["name"] in wanted
    ]
    panel = Panel(190, f"SwiGLU, {content['shape'][0]} x {content['shape'][1]}, forward")
    bars(panel, 40, rows, ["off", "a", "b", "b"])
    return Picture(
        "All versions move the same bytes. What changes is how many bytes one instruction asks for.",
        "Bars of time: " + "; ".join(f"{name} {words}" for name, _, words in rows) + ".",
        [panel],
    )


@picture
def fusion():
    content = figures.first(card.ROOT, "ladder/softmax")
    times = {rung["name"]: f"{rung['forward_ms']:.3g}" for rung in content["rungs"] if rung.get("forward_ms")}
    rows, width = content["shape"]
    joined = ("x − maximum joins maximum", "exp joins x − maximum", "sum joins exp", "divide joins sum")
    return moving(
        "fusion",
        "What does it save to put operations into one kernel, and where does it stop saving?",
        "Press an operation to join it to the one before, or drag it over the others. Then take longer rows, or fewer warps, until registers spill.",
        "Softmax of rows in bfloat16. An arrow to the left of a kernel (green) is a read of the whole matrix, one to its right a "
        "write. A model: a kernel that goes on behind a reduction holds its row in registers as float32; what doesn't fit beside "
        "32 others is written out and read again, 8 bytes a value, and all bytes move at copy speed.",
        (
            *(Control(f"join{place}", label, 0, ticks=True) for place, label in enumerate(joined, 1)),
            Control("width", "Length of a row", width, stops=(1024, 4096, 16384, width, 65536, 128256)),
            Control("warps", "num_warps", 8, stops=(2, 4, 8, 16, 32)),
        ),
        {
            "itemsize": 2,
            "rows": rows,
            "copy": card.measured("device/copy") * 1e12,
            "measured": {"width": width, "apart": times["elementwise"], "together": times["one trip"]},
        },
    )


#: Parts of a decoder layer and what follows the last one: the word in the module's table, the name in the capstone's profile.
LAYER = (
    ("two norms, with the residual", "RMSNorm", "add_norm"),
    ("projections", "", "linear"),
    ("turn q and k", "rotary", "rotate"),
    ("attention", "attention", "attend"),
    ("gated unit", "gate", "gate"),
    ("last projection and loss", "last", "loss"),
)


@picture
def layer():
    """What `patch` replaces, from the table in the module itself, and how long each part took before."""
    text = (card.ROOT / "annotated_examples/integrations/huggingface.py").read_text("utf-8")
    rows = dict(re.findall(r"^\| ([^|]+?) \| (`[^|]+?) \| [^|]+ \|$", text, re.M))
    values = figures.first(card.ROOT, "experiments/capstone")["values"]
    ms = {part: sum(values[f"profile/{part}/{way}"]["value"] for way in ("forward", "backward")) for *_, part in LAYER}
    panel = Panel(24 + 58 * len(LAYER), "Where the time of a step went, and what replaces it")
    words = []
    for place, (name, key, part) in enumerate(LAYER):
        y = 40 + 58 * place
        by = next((replaced.replace("`", "") for what, replaced in rows.items() if key in what), "") if key else ""
        panel.text(0, y, name, "bold small")
        panel.text(360, y, by or "as it was", "small" if by else "small dim", "end")
        panel.box(0, y + 7, 270 * ms[part] / max(ms.values()), 24, "g" if by else "off")
        panel.text(270 * ms[part] / max(ms.values()) + 8, y + 24, f"{ms[part]:.3g} ms", "small")
        words.append(f"{name} {ms[part]:.3g} ms, {f'replaced by {by}' if by else 'left as it was'}")
    return Picture(
        "Green parts are computed by this site's kernels, the others stay as transformers built them. The times are those of plain "
        "PyTorch in the capstone's model, forward and backward of all its layers together.",
        "A decoder layer from top to bottom, and the milliseconds of each part in a training step: "
        + "; ".join(words)
        + ".",
        [panel],
    )


@picture
def way():
    panel = Panel(0, "From a formula to a kernel that one can trust")
    _flow(
        panel,
        (
            ("a", "formula and derivative", ""),
            ("off", "reference in plain PyTorch, float64", "says what is right"),
            ("g", "kernel, interpreted on odd sizes", "masks, strides, NaN past the end"),
            ("g", "kernel, compiled", "the same tests on a GPU"),
            ("b", "time beside the limit", "bytes over bandwidth"),
        ),
        high=32,
    )
    return Picture(
        "Right first, then fast: each step is compared with the one above before the next begins.",
        "Five steps: formula and derivative; reference; kernel interpreted on odd sizes; kernel compiled under the same tests; "
        "time compared with the limit.",
        [panel],
    )


@picture
def cost():
    """A call of the tuned product, from the measuring guide's experiments."""
    found = figures.first(card.ROOT, "experiments/measuring")["values"]
    rows = [
        (words, found[name]["value"], f"{found[name]['value']:g} {found[name]['unit']}")
        for name, words in (("first_call", "first call: compiles"), ("later_call", "every later call"))
    ]
    panel = Panel(110, "Time of a call")
    bars(panel, 40, rows, ["a", "b"])
    return Picture(
        "The first call with new constants or new types compiles. That is why a timing loop throws its first rounds away, and "
        "why the caches matter.",
        "; ".join(f"{words}: {time}" for words, _, time in rows) + ".",
        [panel],
    )


@picture
def joined():
    """An operation as autograd sees it, with the numbers of the chapter's example: the squared ReLU."""
    x, dy = (-2, 1, 3), (1, 0.5, 1)
    y = [max(value, 0) ** 2 for value in x]
    dx = [up * 2 * max(value, 0) for up, value in zip(dy, x)]
    panel = Panel(322, "One operation, two kernels, one kept tensor")

    def row(left, top, name, values, kind):
        panel.text(left, top - 6, name, "small")
        panel.cells(left, top, 1, 3, (38, 30), lambda r, c: kind, lambda r, c: f"{values[c]:g}")

    row(20, 44, "x", x, "a")
    row(226, 44, "y", y, "g")
    panel.box(20, 104, 320, 34, "b", "forward kernel: max(x, 0)²")
    panel.arrow(77, 76, 77, 102)
    panel.arrow(283, 102, 283, 76)
    panel.box(20, 166, 114, 40, "a dashed", "saved: x")
    panel.arrow(77, 140, 77, 164)
    panel.box(20, 234, 320, 34, "p", "backward kernel: dy · 2 max(x, 0)")
    panel.arrow(77, 208, 77, 232)
    row(226, 178, "dy, upstream", dy, "g")
    panel.arrow(283, 210, 283, 232)
    row(20, 286, "dx", dx, "a")
    panel.arrow(77, 270, 77, 284)
    panel.text(150, 306, "to the operation before", "small")
    shown = {"x": x, "y": y, "dy": dy, "dx": dx}
    words = "; ".join(f"{name} is {', '.join(f'{value:g}' for value in values)}" for name, values in shown.items())
    return Picture(
        "Forward keeps x. When the upstream gradient dy arrives, the backward kernel needs nothing else.",
        f"The forward kernel makes y from x and saves x; the backward kernel makes dx from dy and the saved x. {words}.",
        [panel],
    )
