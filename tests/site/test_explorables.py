"""Explorables: what they count is what the kernels and the guides count, and a reader can work them.

The modules run in QuickJS, as they do for the stills; one browser test works them as a reader does.
"""

import re
import sys
from pathlib import Path
from urllib.parse import urljoin

import pytest

from academy.site import pictures

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs/figures"


@pytest.fixture(scope="module")
def scripts():
    """docs/figures' scripts, by name, leaving nothing there that the site would publish."""
    import importlib

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FIGURES))
        patch.setattr(sys, "dont_write_bytecode", True)
        yield importlib.import_module


@pytest.fixture(scope="module")
def run(scripts):
    """What a module shows: run(name, facts, **values) gives model, panels and words."""
    moving = scripts("moving")
    return lambda name, facts=None, /, **values: moving.run(name, values, facts or {})


def keys() -> list[str]:
    return [
        f"{path.stem}/{name}"
        for path in sorted(FIGURES.glob("*.py"))
        for name in re.findall(
            r"^@picture\ndef (\w+)\(.*\):\n(?:    .*\n|\n)*?    return moving\(", path.read_text("utf-8"), re.M
        )
    ]


def values_of(control: dict) -> list:
    """Both ends of a control, or all that it offers."""
    return list(
        control["choices"] or control["stops"] or ([0, 1] if control["ticks"] else [control["low"], control["high"]])
    )


def test_each_module_has_its_picture():
    modules = {path.stem for path in (ROOT / pictures.MODULES).glob("*.js")} - {"drawing", "explore"}
    assert modules == {pictures.found(ROOT, key)["moves"] for key in keys()}


@pytest.mark.parametrize("key", keys())
def test_the_ends_of_every_control_are_drawn(key, run):
    drawn = pictures.found(ROOT, key)
    assert drawn["question"].endswith("?") and drawn["hint"].rstrip()[-1] in ".?"
    assert drawn["state"] in drawn["alt"] and drawn["question"] in drawn["alt"]
    start = {control["name"]: control["value"] for control in drawn["controls"]}
    heights = {re.findall(r'<svg viewBox="0 0 360 ([\d.]+)"', "".join(drawn["panels"]))[0]}
    for control in drawn["controls"]:
        for value in values_of(control):
            found = run(drawn["moves"], drawn["facts"], **start | {control["name"]: value})
            shown = "".join(found["panels"]) + found["words"]
            assert not re.search(r"NaN|undefined|Infinity|\[object", shown), (control["name"], value)
            assert found["words"].endswith((".", "?")) and re.search(r"\d", found["words"])
            heights.add(re.findall(r'<svg viewBox="0 0 360 ([\d.]+)"', found["panels"][0])[0])
    assert len(heights) == 1, "a picture that grows moves the page"


# ---------------------------------------------------------------- what they count


def test_l2_order_counts_what_the_kernel_orders(run):
    from academy.site import l2_picture
    from annotated_examples.tutorials.matmul_grouped import program_order

    for group in range(1, 10):
        order = program_order(9, 9, group)
        loads = l2_picture.count(order, 9, 9)
        found = run("l2_order", {"blocks": 9}, group=group)["model"]
        assert [tuple(tile) for tile in found["tiles"]] == list(order)
        assert (found["left"], found["right"]) == (loads.left, loads.right)


def test_occupancy_is_the_guides(run, scripts):
    guide = scripts("card").guide("busy")
    for warps, registers, shared in ((4, 64, 32), (4, 104, 32), (16, 104, 227), (16, 255, 0), (1, 16, 0), (32, 40, 7)):
        found = run("occupancy", warps=warps, registers=registers, shared=shared)["model"]
        assert found["limits"] == guide.limits(warps, registers, shared * 1024)
        assert (found["fit"], found["tightest"]) == guide.programs_per_sm(warps, registers, shared * 1024)


def test_the_roofline_bounds_as_the_formula_does(run, scripts):
    hardware = scripts("hardware")
    facts = hardware.roofline().facts
    for operations, moved, bound in ((137439, 100, "arithmetic"), (500, 250, "memory")):
        intensity, expected, least = hardware.limit(operations, moved)
        found = run("roofline", facts, operations=operations, moved=moved)["model"]
        assert found["bound"] == expected == bound
        assert [found["intensity"], found["least"]] == pytest.approx([intensity, least])


def test_coalescing_touches_the_guides_sectors(run, scripts):
    guide = scripts("card").guide()
    for stride in (1, 2, 3, 7, 8, 31, 32):
        for size in (1, 2, 4):
            found = run("coalescing", stride=stride, size=size)["model"]
            assert found["sectors"] == guide.sectors(stride, size)
            assert found["useful"] == pytest.approx(guide.useful(stride, size))


# ---------------------------------------------------------------- a reader's hands


class Worked:
    """An explorable on a page, worked by keyboard."""

    def __init__(self, browser, url: str, name: str):
        self.browser, self.figure = browser, f"document.querySelector('figure[data-moves={name}]')"
        browser.errors.clear()
        browser.requests.clear()
        browser.open(url)
        browser.run(f"{self.figure}.scrollIntoView()")
        browser.wait(f"{self.figure}.explorable")

    def press(self, field: str, *keys: str):
        self.browser.run(f"{self.figure}.querySelector('[name={field}]').focus()")
        for key in keys:
            self.browser.press(key)

    def state(self) -> str:
        assert self.browser.errors == []
        return self.browser.run(f"{self.figure}.querySelector('.state').textContent")


def test_explorables_are_worked_by_keyboard(browser, address, run):
    worked = Worked(browser, urljoin(address, "guides/how-a-gpu-runs-triton/"), "coalescing")
    assert not any(url.endswith("explore/roofline.js") for url in browser.requests), "a page loads its own modules only"
    still = pictures.found(ROOT, "hardware/coalescing")
    assert worked.state() == still["state"], "the first thing drawn is the still"
    worked.press("stride", "ArrowLeft", "ArrowLeft")
    worked.press("size", "ArrowUp")
    assert worked.state() == run("coalescing", stride=6, size=2)["words"]

    worked = Worked(browser, urljoin(address, "guides/measuring/"), "roofline")
    worked.press("moved", "Control+a", "0")
    assert worked.state() == "Bytes that must move, millions: a number from 1 to 100,000, please."
    paled = f"Number(getComputedStyle({worked.figure}.querySelector('.panels')).opacity) < 0.5"
    assert browser.run(paled), "the old answer doesn't stand beside the refusal"
    worked.press("moved", "Control+a", "2", "0", "0")
    assert not browser.run(paled)
    facts = pictures.found(ROOT, "hardware/roofline")["facts"]
    assert worked.state() == run("roofline", facts, operations=1074, moved=200)["words"]
