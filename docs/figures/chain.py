"""One equation, followed to its case, its line in a kernel and a number beside that line; and what fails if one of them changes."""

from pathlib import Path

import card
from draw import Control, picture
from moving import moving

PAGE, CASES, KERNEL = "backprop_math/softmax.md", "operations/softmax.py", "annotated_examples/tutorials/softmax.py"
#: Each line of the chain: its file, the part that can change, and what it changes into.
EDITS = {
    "formula": (
        PAGE,
        r"y_j} - \sum_{i=1}^n \frac{\partial \mathcal{L}}{\partial y_i} y_i\right) \tag{SM-x}",
        ("-", "+"),
    ),
    "tag": (CASES, 'returns="SM", gradients={"x": "SM-x"}, rows=ROWS)\ndef softmax(', ("SM-x", "SM")),
    "kernel": (KERNEL, "dx = y * (dy - dot)", ("-", "+")),
    "number": (KERNEL, "start=0: dx = [0.012,", ("0.012", "0.021")),
}
#: What `academy check` says first of each change, and which of the three checks say something. A test makes the changes.
BREAKS = {
    "the formula's sign": ("formula", ["autograd", "case"], "'=' does not hold: largest difference 0.102"),
    "the case's tag": ("tag", ["case"], "the gradient of x of PyTorch in float64 is not what SM prints"),
    "the kernel's sign": ("kernel", ["case", "run"], "the gradient of x is not what SM-x prints: RMS error 0.744"),
    "the quoted number": ("number", ["run"], "the kernel computes [0.0119755212, 0.315419167"),
}


def changed(name: str) -> tuple[Path, str, str]:
    """The file of a line of the chain, its text now, and its text after the change."""
    file, part, (old, new) = EDITS[name]
    text = (card.ROOT / file).read_text("utf-8")
    assert text.count(part) == 1, f"{file} must have this once: {part}"
    return Path(file), text, text.replace(part, part.replace(old, new, 1))


def place(name: str) -> tuple[str, int]:
    """The file and the line that a change begins in."""
    file, text, _ = changed(name)
    return file.as_posix(), text[: text.index(EDITS[name][1])].count("\n") + 1


@picture
def equation():
    formula = "∂L/∂xⱼ = yⱼ (∂L/∂yⱼ − Σᵢ ∂L/∂yᵢ yᵢ)   (SM-x)"
    lines = {
        "formula": (formula, formula.replace("−", "+")),
        "tag": ('gradients={"x": "SM-x"}', 'gradients={"x": "SM"}'),
        "kernel": ("dx = y * (dy - dot)", "dx = y * (dy + dot)"),
        "number": ("# start=0: dx = [0.012, 0.315, …]", "# start=0: dx = [0.021, 0.315, …]"),
    }
    return moving(
        "chain",
        "What ties a printed equation to the line that computes it?",
        "Change one of the four lines, and see which check fails.",
        "The gradient of softmax. The case says which call of which kernel computes the tagged formula; the kernel's line and the "
        "number quoted beside it are held by the recorded run. Red: what was changed, and the checks that say so.",
        (Control("changed", "Change", "nothing", choices=("nothing", *BREAKS)),),
        {
            "places": {name: place(name) for name in EDITS},
            "lines": lines,
            "breaks": {
                name: {"line": line, "fails": fails, "said": said} for name, (line, fails, said) in BREAKS.items()
            },
        },
    )
