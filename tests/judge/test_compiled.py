"""What the interpreter runs and no card compiles is found by the judge, and what one card lacks is a remark."""

import pytest

from academy.runtime import device
from academy import compiler
from academy.judge.session import File, Session

pytestmark = pytest.mark.skipif(not device.INTERPRET or not compiler.available(), reason="compiled without a card")

HELPER = """
import triton
import triton.language as tl


@triton.jit
def scaled(x):
    return {result}
"""
KERNEL = """
import torch
import triton
import triton.language as tl

from helper import scaled

INPUTS = {"x": "rows cols"}
DTYPES = ("float32", "float16")


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + offs, mask=offs < n)
    y = scaled(x)
    tl.store(out_ptr + row * n + offs, y, mask=offs < n)


def twice(x):
    if x.requires_grad:
        raise ValueError("forward only")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    kernel[(len(x),)](x.contiguous(), out, x.shape[1], BLOCK=triton.next_power_of_2(max(x.shape[1], 1)))
    return out


def twice_reference(x):
    return 2 * x
"""


OWN = KERNEL[KERNEL.index("@triton.jit") : KERNEL.index("def twice(")]


def judged(tmp_path, monkeypatch, edit=("", ""), result="x * 2", helper=HELPER):
    (tmp_path / "helper.py").write_text(helper.format(result=result))
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL.replace(*edit))
    monkeypatch.syspath_prepend(tmp_path)
    report = Session(File(path), ["compiles"], 0).run()
    assert not report.broken, report.broken
    return report.judged[0].outcomes, path.read_text().split("\n")


@pytest.mark.parametrize(("edit", "code", "message"), [
    (("    y = scaled(x)", "    y = 0\n    for _ in range(2):\n        y = y + x"), "for _ in", "Loop-carried"),
], ids=["two dtypes in a loop"])  # fmt: skip
def test_what_does_not_compile_is_named(tmp_path, monkeypatch, edit, code, message):
    outcomes, lines = judged(tmp_path, monkeypatch, edit)
    wrong = [each for each in outcomes if each.bad]
    assert wrong and all(each.message.startswith("it doesn't compile: ") for each in wrong)
    assert code in lines[wrong[0].line - 1], wrong[0]
    assert message in f"{wrong[0].trial} {wrong[0].message}"


def test_a_kernel_of_a_helper_beside_the_file_is_compiled_though_the_file_has_one_of_its_name(tmp_path, monkeypatch):
    broken = OWN.replace("    x = tl", "    tl.nothing()\n    x = tl")
    launched = (
        KERNEL.replace(OWN, broken)
        .replace("kernel[(len", "helper.kernel[(len")
        .replace("from helper", "import helper\nfrom helper")
    )
    outcomes, _ = judged(tmp_path, monkeypatch, (KERNEL, launched), helper=HELPER + OWN)
    assert {each.state for each in outcomes} == {"right"}, outcomes


def test_what_one_card_lacks_is_a_remark(tmp_path, monkeypatch):
    outcomes, _ = judged(tmp_path, monkeypatch, result="(x.to(tl.float8e4nv).to(tl.float32) * 2).to(x.dtype)")
    assert {each.state for each in outcomes} == {"remark"}
    assert "it doesn't compile for sm_80 (A100, A30): " in outcomes[0].message


def test_without_a_compiler_it_is_not_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(compiler, "available", lambda: False)
    outcomes, _ = judged(tmp_path, monkeypatch)
    assert [(each.state, each.message) for each in outcomes] == [
        ("skipped", "Triton's compiler isn't installed here")
    ] * 2
