"""A file whose kernels are partly in another one: beside it, or in its package."""

import json

import pytest

from academy.runtime import device
from academy import cli
from academy.judge.session import File, Session

KERNELS = """
import triton, triton.language as tl

@triton.jit
def scaled(x, s):
    return x * s

@triton.jit
def scale_kernel(x_ptr, out_ptr, n, s, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, scaled(tl.load(x_ptr + offs, mask=offs < n), s), mask=offs < n)
"""
FILE = """
import torch, triton, triton.language as tl
from types import FunctionType  # a class whose __globals__ are no module's
IMPORTS

@triton.jit
def own_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(out_ptr + offs, scaled(x, 2.0) + x, mask=offs < n)

def function(x):
    x = x.contiguous()
    y, out = torch.empty_like(x), torch.empty_like(x)
    if x.numel():
        grid = (triton.cdiv(x.numel(), 64),)
        beside.scale_kernel[grid](x, y, x.numel(), 2.0, BLOCK=64)
        own_kernel[grid](y, out, x.numel(), BLOCK=64)
    return out

def function_reference(x):
    return x * 6

INPUTS = {"x": "n"}

def EXAMPLE():
    function(torch.arange(5.0))
"""
PLACES = {
    "beside it": ("import beside\nfrom beside import scaled", False),
    "in its package": ("from . import beside\nfrom .beside import scaled", True),
}


@pytest.fixture(params=PLACES.values(), ids=PLACES)
def path(request, tmp_path):
    imports, package = request.param
    folder = tmp_path / f"folder_{package}"
    folder.mkdir()
    (folder / "beside.py").write_text(KERNELS)
    (folder / "kernel.py").write_text(FILE.replace("IMPORTS", imports))
    if package:
        (folder / "__init__.py").touch()
    return folder / "kernel.py"


def test_it_is_judged_and_its_own_kernels_are_changed(path):
    report = Session(File(path), ["sizes"], 4).run()
    assert report.right, str(report)
    assert "value" in {fate.fate for fate in report.mutants}  # an import that fails is no catch
    assert report.judged[0].helpers == ["beside.py"]


@pytest.mark.skipif(not device.INTERPRET, reason="only the interpreter shows it")
def test_a_fault_in_the_other_file_is_found(path):
    other = path.with_name("beside.py")
    other.write_text(KERNELS.replace("s), mask=offs < n)", "s), mask=offs < n - 1)"))
    report = Session(File(path), ["programs"], 0).run()
    assert "own_kernel reads x_ptr[4], which nobody has written" in str(report)


@pytest.mark.skipif(not device.INTERPRET, reason="only the interpreter records")
def test_its_statements_are_recorded(path, tmp_path):
    assert cli.main(["trace", str(path), "--no-compile", "--json", str(tmp_path / "r.json")]) == 0
    launches = json.loads((tmp_path / "r.json").read_text())["launches"]
    assert [launch["kernel"] for launch in launches] == ["scale_kernel", "own_kernel"]
    assert all(len(launch["programs"][0][-1]) > 2 for launch in launches), launches[0]["programs"]
