"""What a function may give: codes of eight and four bits, truth values, integers, a dict, a dataclass, nothing."""

import pytest

from academy.judge.session import File, Session

SOURCE = """
import dataclasses, typing
import torch, triton, triton.language as tl

@dataclasses.dataclass
class Both:
    first: torch.Tensor
    second: torch.Tensor

class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: torch.Tensor

@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    BODY

def function(x):
    if x.requires_grad:
        raise ValueError("forward only")
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=DTYPE, device=x.device)
    if out.numel():
        kernel[(triton.cdiv(out.numel(), 64),)](x, out, out.numel(), BLOCK=64)
    return GIVES

def function_reference(x):
    out = REFERENCE
    return GIVES

INPUTS = {"x": "LOOKS"}
"""
LOAD = "x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)\n    tl.store(out_ptr + offs, {}, mask=mask)"
USUAL = {"BODY": LOAD.format("x * 2"), "DTYPE": "x.dtype", "GIVES": "out", "REFERENCE": "x * 2", "LOOKS": "rows cols"}
CODES = {
    "BODY": LOAD.format("tl.clamp(x, -400.0, 400.0).to(tl.float8e4nv)"),
    "DTYPE": "torch.float8_e4m3fn",
    "REFERENCE": "x.float().clamp(-400, 400).to(torch.float8_e4m3fn)",
}
WIDE = {
    "BODY": LOAD.format("tl.clamp(x, -400.0, 400.0).to(tl.float8e5)"),
    "DTYPE": "torch.float8_e5m2",
    "REFERENCE": "x.float().clamp(-400, 400).to(torch.float8_e5m2)",
}
TRUNCATED = {**WIDE, "BODY": LOAD.format('tl.clamp(x, -400.0, 400.0).to(tl.float8e5, fp_downcast_rounding="rtz")')}
READ = {"BODY": LOAD.format("x * 2"), "DTYPE": "torch.float32", "REFERENCE": "x.float() * 2"}
PACKED = {
    "BODY": "low = tl.load(x_ptr + 2 * offs, mask=mask, other=0)\n"
    "    high = tl.load(x_ptr + 2 * offs + 1, mask=mask, other=0)\n"
    "    tl.store(out_ptr + offs, (low & 15) | (high << 4), mask=mask)",
    "DTYPE": "torch.uint8",
    "REFERENCE": "(x[..., ::2] & 15) | (x[..., 1::2] << 4)",
    "LOOKS": "rows 2*cols: uint8 below 16",
}
HALF = {"out = torch.empty(x.shape": "out = torch.empty((x.shape[0], x.shape[1] // 2)"}
MASK = {"BODY": LOAD.format("x > 0"), "DTYPE": "torch.bool", "REFERENCE": "x > 0"}
#: Changes -> what the judge says; "" where it is right.
CASES = {
    "codes": (CODES, ""),
    "wide codes": (WIDE, ""),
    "truncated codes": (TRUNCATED, "out["),
    "codes of something else": ({**CODES, "BODY": LOAD.format("(x * 1.01).to(tl.float8e4nv)")}, "out["),
    "codes as input": ({**READ, "LOOKS": "rows cols: float8_e5m2"}, ""),
    "codes as input, misread": (
        {**READ, "LOOKS": "rows cols: float8_e5m2", "REFERENCE": "x.float() * 2.5"}, "out[0, 0] is",
    ),
    "packed": ({**PACKED, **HALF}, ""),
    "packed the other way round": (
        {**PACKED, **HALF, "BODY": PACKED["BODY"].replace("(low & 15) | (high << 4)", "(high & 15) | (low << 4)")},
        "out[0, 0] is",
    ),
    "truth": (MASK, ""),
    "truth, 0 among it": ({**MASK, "BODY": LOAD.format("x >= 0")}, "should be False"),
    "a dict": ({"GIVES": '{"y": out, "more": (out, [out])}'}, ""),
    "a dict, wrong": (
        {"GIVES": '{"y": x, "more": (x, out)}', "REFERENCE": "x * 3"}, "out['more'][1][0, 0] is",
    ),
    "a dataclass": ({"GIVES": "Both(out, out)"}, ""),
    "a dataclass, wrong": ({"GIVES": "Both(x, out)", "REFERENCE": "x * 3"}, "out.second[0, 0] is"),
    "a named tuple": ({"GIVES": "Pair(out, out)"}, ""),
    "nothing beside it": ({"GIVES": "(out, None)"}, ""),
    "a number beside it": ({"GIVES": "(out, len(out))"}, ""),
}  # fmt: skip


@pytest.mark.parametrize("changes, message", CASES.values(), ids=CASES)
def test_what_is_given(changes, message, tmp_path):
    source = SOURCE
    for name, text in {**USUAL, **changes}.items():
        source = source.replace(name, text)
    path = tmp_path / "kernel.py"
    path.write_text(source)
    groups = ["layouts", "values"] if message else ["layouts", "values", "repeats"]
    report = Session(File(path, here=True), groups, 0).run()
    assert not report.broken, report.broken
    assert message in str(report) if message else report.right, str(report)
