"""What files ask of a GPU is answered where there is none, to them and to nobody else, and the report says so."""

import pytest
import torch

from academy.runtime import device

if not device.INTERPRET:
    pytest.skip("with a GPU nothing stands in", allow_module_level=True)

from academy.runtime import checks
from academy.compiler import stand_in
from academy.judge.mutants import import_source
from academy.judge.session import File, Session
from annotated_examples.tutorials import vector_add
from tests.judge.test_faults import KERNELS

FILE = """
import torch, triton, triton.language as tl
import triton.testing
{before}

@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) * 2, mask=offs < n)

def double(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    {line}
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out

def double_reference(x):
    return x * 2
"""

#: A line before the launch, what the report says of it.
LINES = {
    "assert x.is_cuda and not x.is_cpu and x.get_device() == 0": "x.is_cuda",
    "assert x.device.type == 'cuda' and out.device == x.device and x.device.index == 0": "",
    "out = torch.empty(x.shape, dtype=x.dtype, device='cuda')": 'device="cuda"',
    "out = torch.empty(x.shape, dtype=x.dtype, device=torch.device('cuda', 0))": 'device="cuda"',
    "out = torch.zeros(x.shape, dtype=x.dtype, device=torch.cuda.current_device())": "torch.cuda.current_device",
    "out = torch.zeros(x.shape, dtype=x.dtype, device=x.device)": "",
    "out = torch.empty(x.shape, dtype=x.dtype).cuda()": "x.cuda()",
    "out = torch.empty(x.shape, dtype=x.dtype, pin_memory=True).to('cuda:0', non_blocking=True)": 'device="cuda"',
    "out = torch.empty_like(x, device='cuda').to(device='cuda').to(0)": 'device="cuda"',
    "assert torch.cuda.is_available() and torch.cuda.device_count()": "torch.cuda.is_available",
    "assert torch.cuda.get_device_capability(x.device)[0] >= 8": "torch.cuda.get_device_capability",
    "assert torch.cuda.get_device_properties(x.device).multi_processor_count": "torch.cuda.get_device_properties",
    "assert 'H100' in torch.cuda.get_device_name()": "torch.cuda.get_device_name",
    "torch.cuda.set_device(x.device); torch.cuda.synchronize()": "torch.cuda.synchronize",
    "stream = torch.cuda.current_stream().cuda_stream": "torch.cuda.current_stream",
    "torch.cuda.stream(torch.cuda.Stream()).__enter__()": "torch.cuda.Stream",
    "torch.cuda.Event(enable_timing=True).record()": "torch.cuda.Event",
    "torch.cuda.device(x.device).__enter__()": "torch.cuda.device",
    "torch.cuda.device_of(x).__enter__()": "torch.cuda.device_of",
    "torch.rand(3, generator=torch.Generator(device='cuda').manual_seed(1), device='cuda')": "torch.Generator",
    "assert isinstance(torch.default_generator, torch.Generator)": "",
    "torch.nn.Linear(2, 2, device='cuda')(torch.ones(1, 2, device='cuda'))": 'device="cuda"',
    "assert triton.runtime.driver.active.get_current_target().backend == 'cuda'": "triton.runtime.driver.active",
    "triton.runtime.driver.active.utils.get_device_properties(0)['multiprocessor_count']": "driver.active",
    "assert triton.testing.do_bench(lambda: x + 1) > 0": "triton.testing.do_bench",
}
#: The same, as the file is imported.
BEFORE = {
    "DEVICE = triton.runtime.driver.active.get_active_torch_device()": "triton.runtime.driver.active",
    "DEVICE = 'cuda' if torch.cuda.is_available() else 1 / 0": "torch.cuda.is_available",
    "WORKSPACE = torch.zeros(8, device='cuda')": 'device="cuda"',
    "torch.cuda.manual_seed(0)": "torch.cuda.manual_seed",
    "SMS = torch.cuda.get_device_properties('cuda').multi_processor_count": "torch.cuda.get_device_properties",
}


def doubled(before="", line="pass"):
    """What a file's function gives, and what was stood in for."""
    with stand_in.for_files():
        module = import_source(FILE.format(before=before, line=line), "asks")
        return module.double(torch.arange(100.0)), stand_in.used()


@pytest.mark.parametrize("line, told", [*LINES.items()], ids=str)
def test_what_a_launcher_asks(line, told):
    out, said = doubled(line=line)
    assert torch.equal(out, torch.arange(100.0) * 2) and out.device.type == "cpu"
    assert told in said and bool(told) == bool(said)


@pytest.mark.parametrize("before, told", [*BEFORE.items()], ids=str)
def test_what_a_file_asks_as_it_is_imported(before, told):
    assert told in doubled(before=before)[1]


def test_in_a_backward_pass():
    source = (
        FILE
        + """
class Double(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x):
        return double(x)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, g):
        assert g.is_cuda
        return double(g)
"""
    )
    with stand_in.for_files():
        module = import_source(source.format(before="", line="assert x.is_cuda"), "asks_backward")
        x = torch.ones(5, requires_grad=True)
        module.Double.apply(x).sum().backward()
        (again,) = torch.autograd.grad(module.Double.apply(x).sum(), x)
    assert x.grad.tolist() == again.tolist() == [2.0] * 5


def test_this_project_sees_the_machine_as_it_is():
    x = torch.arange(5.0)
    with stand_in.for_files():
        checks.tensors(x=x)
        assert torch.equal(vector_add.vector_add(x, x), x + x)
        assert not stand_in.used() and device.DEVICE.type == "cpu"
    assert not x.is_cuda and not torch.cuda.is_available()


def test_the_report_says_it_once(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(FILE.format(before="", line="assert x.is_cuda"))
    report = Session(File(path), ["sizes"], 0).run()
    assert report.right and "stand-in: x.is_cuda" in report.as_json()["stand_ins"]
    assert not Session(File(KERNELS / "rows.py"), ["repeats"], 0).run().stand_ins
