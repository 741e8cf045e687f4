"""Autotuned kernels: every configuration is judged, and the call that tunes, without a GPU as with one."""

import pytest

from academy.judge.session import File, Session

#: Adds rows up, with atomics, or halves in place. Each case changes it.
SOURCE = """
import torch, triton, triton.language as tl

SIZES = {"n": (5, 300)}

def prune(configs, named_args, **kwargs):
    return [each for each in configs if each.kwargs["BLOCK"] != 128]

def zero(nargs, reset_only=False):
    nargs["out_ptr"].zero_()

@HEURISTICS_ABOVE
@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8, CONFIG)], key=["n"], TUNE
)
@HEURISTICS_BELOW
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, FACTOR: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    BODY

def function(x):
    if x.requires_grad:
        raise ValueError("forward only")
    x = x.contiguous()
    BUFFER
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), LAUNCH)
    return out

def function_reference(x):
    return REFERENCE

INPUTS = {"x": "n"}
"""
USUAL = {
    "HEURISTICS_ABOVE": "",
    "HEURISTICS_BELOW": 'triton.heuristics({"FACTOR": lambda args: 2 + (args["BLOCK"] == 7)})',
    "CONFIG": "",
    "TUNE": "",
    "BODY": "tl.store(out_ptr + offs, x * FACTOR, mask=offs < n)",
    "BUFFER": "out = torch.empty_like(x)",
    "LAUNCH": "",
    "REFERENCE": "x * 2",
}
SUM = {
    "BODY": "tl.atomic_add(out_ptr, tl.sum(x.to(tl.float32)) * FACTOR)",
    "BUFFER": "out = torch.zeros((), device=x.device)",
    "REFERENCE": "x.float().sum() * 2",
}
IN_PLACE = {"BODY": "tl.store(out_ptr + offs, x * FACTOR, mask=offs < n)", "BUFFER": "out = x = x.clone()"}
WRONG = {"BODY": "tl.store(out_ptr + offs, x * (FACTOR if BLOCK == 64 else 3), mask=offs < n)"}
ABOVE = {"HEURISTICS_ABOVE": 'triton.heuristics({"FACTOR": lambda args: 2})', "HEURISTICS_BELOW": ""}
#: Changes -> what the judge says; "" where it is right.
CASES = {
    "as it is": ({}, ""),
    "heuristics above": (ABOVE, ""),
    "no heuristics": ({"HEURISTICS_BELOW": "", "LAUNCH": "FACTOR=2"}, ""),
    "wrong in the second": (WRONG, "kernel with BLOCK=128, num_warps=8, num_stages=3: out[0] is"),
    "wrong in the second, heuristics above": ({**WRONG, **ABOVE}, "kernel with BLOCK=128, num_warps=8"),
    "wrong in one that is pruned": ({**WRONG, "TUNE": 'prune_configs_by={"early_config_prune": prune}'}, ""),
    "no such block in the second": (
        {"BODY": 'tl.static_assert(BLOCK < 100, "small")\n    tl.store(out_ptr + offs, x * FACTOR, mask=offs < n)'},
        "BLOCK=128",
    ),
    "in place": (IN_PLACE, "every run changes x_ptr and out_ptr again: name it in restore_value"),
    "in place, restored": ({**IN_PLACE, "TUNE": 'restore_value=["out_ptr"]'}, ""),
    "a sum": (SUM, "every run changes out_ptr again: name it in restore_value or reset_to_zero"),
    "a sum that is reset": ({**SUM, "TUNE": 'reset_to_zero=["out_ptr"]'}, ""),
    "a sum, and a hook of the tuner": ({**SUM, "TUNE": "pre_hook=zero"}, ""),
    "a sum, and a hook of one configuration": ({**SUM, "CONFIG": "pre_hook=zero"}, "every run changes out_ptr again"),
    "a sum into what only tuning resets": (
        {**SUM, "TUNE": 'reset_to_zero=["out_ptr"]', "BUFFER": "out = torch.ones((), device=x.device)"},
        "kernel with BLOCK=128, num_warps=8, num_stages=3: out is",
    ),
    "timed by a graph": ({"TUNE": "use_cuda_graph=True"}, ""),
}


def edited(changes):
    source = SOURCE
    for name, text in {**USUAL, **changes}.items():
        source = source.replace(name, text)
    return source.replace("@\n", "")


@pytest.mark.parametrize("changes, message", CASES.values(), ids=CASES)
def test_every_configuration(changes, message, tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(edited(changes))
    report = Session(File(path, here=True), ["configurations"], 0).run()
    assert not report.broken and report.judged[0].outcomes
    said = [f"{each.trial.name} {each.message}" for each in report.wrong]
    assert any(message in each for each in said) if message else not said, str(report)


def test_a_kernel_that_is_not_tuned_has_none(tmp_path):
    path = tmp_path / "kernel.py"
    one = edited({}).replace(', triton.Config({"BLOCK": 128}, num_warps=8, )', "")
    path.write_text(one)
    report = Session(File(path, here=True), ["configurations", "repeats"], 0).run()
    assert report.right and "configurations" not in {each.trial.group for each in report.judged[0].outcomes}
