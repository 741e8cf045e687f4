"""Kernels compiled without a card: what is reported of them, and errors in words."""

import json
import os
import re
from typing import NamedTuple

import pytest
import torch
import triton
import triton.language as tl

from academy import compiler
from academy.book import layout
from academy.compiler import command, launches, machine_code
from academy.compiler.cards import CARDS
from academy.compiler.overtaken import overtaken
from academy.exercises import loop_limit
from tests import python

pytestmark = pytest.mark.skipif(not compiler.available(), reason="Triton's compiler isn't installed")

IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n\n"
SCALE = """
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(y_ptr + offs, x * factor, mask=offs < n)


def scale(x, factor):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), factor, BLOCK=1024, num_warps=4)
    return y
"""
PRODUCT = """
@triton.autotune([triton.Config({"BLOCK": block}, num_stages=stages) for block, stages in CONFIGS], key=["n"])
@triton.jit
def square_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tile = offs[:, None] * n + offs[None, :]
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, n, BLOCK):
        acc += tl.dot(tl.load(x_ptr + tile + k), tl.load(x_ptr + tile + k * n))
    tl.store(y_ptr + tile, acc)
"""


@pytest.fixture
def file(tmp_path):
    """Writes a file outside of the project."""

    def write(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(IMPORTS + text)
        return path

    return write


def seen_in_the_interpreter(path, call):
    module = loop_limit.Rounds().load(path)
    with launches.noted() as seen:
        call(module)
    return seen


@pytest.mark.interpreted
def test_a_launch_of_the_interpreter_is_compiled_as_that_of_a_card(file):
    path = file(SCALE)
    both = seen_in_the_interpreter(path, lambda m: (m.scale(torch.ones(4096), 2.0), m.scale(torch.ones(99)[1:], 1.5)))
    assert [launch["kernel"] for launch in both] == ["scale_kernel"] * 2
    path.unlink()  # the text is all that is needed
    aligned, odd = compiler.compile_source(IMPORTS + SCALE, both).kernels
    assert aligned.signature == dict(x_ptr="*fp32", y_ptr="*fp32", n="i32", factor="fp32", BLOCK="constexpr")
    assert aligned.sass["global load, 16 bytes"] == aligned.sass["global store, 16 bytes"] == 2
    assert odd.sass["global load, 4 bytes"] == 8
    assert 0 < aligned.registers <= 64 and aligned.stack == 0 and aligned.fits and not aligned.problems


@triton.jit
def many_kernel(pair, dtype: tl.constexpr, function: tl.constexpr, none, flag, text: tl.constexpr, sizes: tl.constexpr):
    pass


def helper(x):
    return x


def test_every_kind_of_argument_survives_json():
    x = torch.ones(8, dtype=torch.bfloat16)
    arguments = ((x, (8, 1)), tl.float8e4nv, helper, None, True, "relu", (1, 2))
    launch = json.loads(json.dumps(launches.described(many_kernel, arguments, dict(num_warps=8, maxnreg=None))))
    assert launch["options"] == {"num_warps": 8}
    found = launches.arguments(launch, globals())
    assert found["pair"][0].dtype == torch.bfloat16 and found["pair"][1] == (8, 1)
    assert list(found.values())[1:] == [tl.float8e4nv, helper, None, True, "relu", (1, 2)]


def test_a_script_that_asks_for_a_card(file):
    """Tensors on "cuda" without one, all configurations of an autotuned kernel. One of them doesn't fit: the tuner
    would drop it, whereas a launch with these sizes fails."""
    configs = "CONFIGS = [(32, 2), (128, 4)]\n"
    run = 'x = torch.ones(256, 256, device="cuda")\nassert x.is_cuda and x.device.type == "cuda"\n'
    run += "square_kernel[(1,)](x, torch.empty_like(x), 256)\n"
    run += "square_kernel.fn[(1,)](x, torch.empty_like(x), 256, BLOCK=128, num_stages=4, num_warps=8)\n"
    run += "assert torch.cuda.get_device_capability() == (8, 9)\nraise SystemExit(3)\n"
    report = compiler.compile_file(file(configs + PRODUCT + run), 89, all_configs=True)
    small, large, chosen = report.kernels
    assert report.stopped is None and small.constants == {"BLOCK": 32} and large.options["num_stages"] == 4
    assert small.fits and small.sass["mma"] and small.sass["cp.async"] and small.sass["ldmatrix"]
    buffers = 3 * 2 * 128 * 128 * 4  # three for each of two tiles of float32
    assert large.shared == chosen.shared == buffers and not large.fits
    assert large.problems == () and "The tuner passes over it" in large.notes[0]
    (problem,) = report.problems
    assert f"{buffers:,}" in problem.message and f"{CARDS[89].shared:,}" in problem.message and problem.line == 9


def test_errors_have_the_line_of_the_file(file, capsys):
    text = """
@triton.jit
def helper(x):
    return x[0]

@triton.jit
def a_kernel(x_ptr):
    tl.store(x_ptr, helper(tl.zeros((16,), tl.float32)))

@triton.jit
def b_kernel(x_ptr, n):
    best = []
    for i in range(n):
        best.append(tl.load(x_ptr + i))

@triton.jit
def c_kernel(x_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tile = tl.load(x_ptr + offs[:, None] * BLOCK + offs[None, :])
    tl.store(x_ptr + offs[:, None] * BLOCK + offs[None, :], tl.dot(tile, tile))

@triton.jit
def never_kernel(x_ptr):
    pass

def EXAMPLE():
    x = torch.ones(64)
    a_kernel[(1,)](x)
    b_kernel[(1,)](x, 3)
    c_kernel[(1,)](x, BLOCK=4)
    assert x.sum() == 0, "no kernel has run"
    a_kernel[(1,)](x, 3, 4)
"""
    path = file(text)
    assert command.main([str(path)]) == 1
    printed = capsys.readouterr().out
    assert f"{path}:8:1: the compiler says: unsupported tensor index" in printed
    assert f"{path}:18:1: a kernel's lists can't change" in printed
    assert re.search("tl.dot needs tiles of at least (8|16) along K", printed)  # 8 from Triton 3.8 on
    assert "Compiled with BLOCK = 32 instead" in printed
    assert "not launched, so not compiled: never_kernel" in printed
    stops = path.read_text().split("assert x.sum()")[0].count("\n") + 1
    assert f"{path}:{stops}: AssertionError: no kernel has run" in printed
    assert path.name + ":24" not in printed  # the note is no problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "launches no kernel. Give it a function EXAMPLE()"),
        ("raise KeyboardInterrupt\n", "stops before it launches a kernel: line 5: KeyboardInterrupt\n"),
        (None, "no such file"),
    ],
)
def test_wrong_use_is_named(file, capsys, text, said):
    assert command.main([str(file(text)) if text else "/nowhere.py"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "use", [lambda arch: compiler.compile_source("", [], arch), lambda arch: compiler.compile_code("", arch)]
)
def test_an_unknown_card_is_named(use):
    with pytest.raises(ValueError, match="arch must be one of 80, 86, 89, 90, 100, 120, got 75"):
        use(75)


@pytest.mark.parametrize(
    ("text", "said"), [("import nothing_of_that_name\n", "nothing_of_that_name"), ("def f(:\n", ":1:")]
)
def test_a_text_that_cannot_be_imported_is_a_problem(text, said):
    (problem,) = compiler.problems(text, [])
    assert said in str(problem)


def test_instructions_are_counted_by_kind_and_width():
    sass = """
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/              @!P0 LDG.E.U16 R4, desc[UR4][R2.64] ;
        /*0030*/               @P1 STG.E desc[UR4][R2.64], R4 ;
        /*0040*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
        /*0050*/                   UTMALDG.2D [UR8], [UR4] ;
        /*0060*/                   STL.128 [R1], R4 ;
    """
    assert machine_code.sass_counts(sass) == {
        "TMA load": 1, "global load, 16 bytes": 1, "global load, 2 bytes": 1, "global store, 4 bytes": 1,
        "local store": 1, "wgmma": 1,
    }  # fmt: skip
    ptx = "\t@%p1 ld.global.L1::evict_last.v4.b32 {%r1}, [%rd1];\n\twgmma.mma_async.sync.aligned.m64n128k16 x;\n"
    ptx += "\tcp.async.bulk.tensor.2d.shared::cta.global [x];\n\tst.global.b16 [%rd1], {%rs1};\n"
    assert machine_code.ptx_counts(ptx) == {
        "TMA": 1, "global load, 16 bytes": 1, "global store, 2 bytes": 1, "wgmma": 1,
    }  # fmt: skip


def test_lines_of_python():
    """What they launch on "cuda" is compiled; what they raise is told."""
    code = """
import torch
from annotated_examples.tutorials import vector_add
x = torch.empty(4096, device="cuda")
vector_add.vector_add(x, x)
"""
    (kernel,) = compiler.compile_code(code).kernels
    assert kernel.name == "vector_add_kernel" and kernel.ptx["global load, 16 bytes"] > 0 and kernel.fits
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiler.compile_code("1 / 0")


LOADED = """
        /*0010*/                   R2UR UR30, R0 ;
        /*0020*/                   UMOV UR31, 0xc0000010 ;
"""
USED = """
        /*0030*/                   ULDC.64 UR4, c[0x0][0x208] ;
        /*0040*/                   UIADD3 UR38, UP0, UR30, 0x20, URZ ;
        /*0050*/                   UIADD3.X UR39, UR31, URZ, URZ, UP0, !UPT ;
        /*0060*/                   @!P0 LDG.E R5, desc[UR4][R8.64+0x10] ;
        /*0070*/                   HGMMA.64x16x16.F32 R24, R36, gdesc[UR36].tnspB, R24 ;
"""


def test_a_register_that_nothing_has_written_is_noticed():
    """The left tile of this product is in registers, so the first of the two descriptors at UR36 isn't read."""
    assert machine_code.never_written(LOADED + USED) == []
    lost = machine_code.never_written(USED)
    assert lost == ["UR30 in UIADD3 UR38, UP0, UR30, 0x20, URZ", "UR31 in UIADD3.X UR39, UR31, URZ, URZ, UP0, !UPT"]
    both = USED.replace("R24, R36, gdesc", "R24, gdesc")
    assert [found[:4] for found in machine_code.never_written(LOADED + both)] == ["UR36", "UR37"]


TWO_USES = """
@triton.jit
def sums_kernel(a_ptr, b_ptr, o_ptr, sums_ptr, K, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, 64), tl.arange(0, BLOCK)
    product, sums = tl.zeros((64, 64), tl.float32), tl.zeros((64,), tl.float32)
    for k in tl.range(0, K, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * K + k + columns[None, :])
        b = tl.load(b_ptr + rows[:, None] * K + k + columns[None, :])
        product += tl.dot(a, tl.trans(b))
        sums += tl.sum(b.to(tl.float32), axis=1)
    tl.store(o_ptr + rows[:, None] * 64 + rows[None, :], product)
    tl.store(sums_ptr + rows, sums)

def EXAMPLE():
    a, b = torch.zeros(2, 64, 256, dtype=torch.float16)
    for stages in (1, 2, 4):
        sums_kernel[(1,)](a, b, torch.zeros(64, 64), torch.zeros(64), 256, BLOCK=64, num_warps=4, num_stages=stages)
"""


def test_a_tile_that_is_overtaken_is_a_problem(file):
    """Triton copies a later tile over one that a product may still read, if it is used otherwise as well. On an H200 a
    kernel like this one gave other bits from call to call, and sums that were off by hundredths with four stages; on an
    H100 one was wrong by a thousandth."""
    one, *more = compiler.compile_file(file(TWO_USES), 90).kernels
    assert one.sass["wgmma"] and not one.problems
    for each in more:
        (problem,) = each.problems
        assert "sums_kernel may compute nonsense, now and then: Triton gives b a place too few" in problem.message


OVERTAKEN = """
  %b = ttg.local_alloc : () -> !ttg.memdesc<1x64x64xf16, #shared, #smem, mutable>
  %b_1 = ttg.memdesc_index %b[%c0] : !ttg.memdesc<1x64x64xf16> -> !ttg.memdesc<64x64xf16>
  %0 = ttg.async_copy_global_to_local %p, %b_1 mask %m : tensor<64x64x!tt.ptr<f16>> -> <64x64xf16>
  %o:2 = scf.for %k = %c0 to %K step %c64 iter_args(%acc = %zero, %t = %0) -> (tensor<64x64xf32>, !ttg.async.token) {
    %b_2 = ttg.memdesc_trans %b_1 {order = array<i32: 1, 0>} : !ttg.memdesc<64x64xf16> -> !ttg.memdesc<64x64xf16>
    %c = ttng.warp_group_dot %a, %b_2, %acc {isAsync = true} : !ttg.memdesc<64x64xf16> -> tensor<64x64xf32>
    %w:3 = ttng.warp_group_dot_wait %c, %a, %b_2 {pendings = 1 : i32} : tensor<64x64xf32>
    %1 = ttg.async_copy_global_to_local %q, %b_1 mask %m : tensor<64x64x!tt.ptr<f16>> -> <64x64xf16>
    scf.yield %w#0, %1 : tensor<64x64xf32>, !ttg.async.token
  }
  %z = ttng.warp_group_dot_wait %o#0 {pendings = 0 : i32} : tensor<64x64xf32>
"""


COMING_ROUND = """
  %b = ttg.local_alloc : () -> !ttg.memdesc<2x64x64xf16, #shared, #smem, mutable>
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %before = arith.constant -1 : i32
  %two = arith.constant 2 : i32
  %o:3 = scf.for %k = %c0 to %K step %c64 iter_args(%acc = %z, %i = %one, %j = %before) -> (tensor<64x64xf32>) {
    %1 = arith.addi %j, %one : i32
    %2 = arith.cmpi sge, %1, %two : i32
    %3 = arith.select %2, %zero, %1 : i32
    %b_2 = ttg.memdesc_index %b[%3] : !ttg.memdesc<2x64x64xf16> -> !ttg.memdesc<64x64xf16>
    %c = ttng.warp_group_dot %a, %b_2, %acc {isAsync = true} : !ttg.memdesc<64x64xf16> -> tensor<64x64xf32>
    %w:3 = ttng.warp_group_dot_wait %c, %a, %b_2 {pendings = 1 : i32} : tensor<64x64xf32>
    %4 = arith.addi %i, %one : i32
    %5 = arith.cmpi sge, %4, %two : i32
    %6 = arith.select %5, %zero, %4 : i32
    %b_3 = ttg.memdesc_index %b[%6] : !ttg.memdesc<2x64x64xf16> -> !ttg.memdesc<64x64xf16>
    %7 = ttg.async_copy_global_to_local %q, %b_3 mask %m : tensor<64x64x!tt.ptr<f16>> -> <64x64xf16>
    scf.yield %w#0, %6, %3 : tensor<64x64xf32>, i32, i32
  }
"""


def test_when_a_tile_is_overtaken():
    """Not where it has two places, or the product has been waited for. A copy before the product overtakes that of the
    last round."""
    dot, wait, copy = OVERTAKEN.splitlines()[6:9]
    assert overtaken(OVERTAKEN) == ["b"]
    assert overtaken(OVERTAKEN.replace("<1x64", "<2x64")) == []
    assert overtaken(OVERTAKEN.replace("pendings = 1", "pendings = 0")) == []
    earlier = OVERTAKEN.replace(copy + "\n", "").replace(dot, copy + "\n" + dot)
    assert overtaken(earlier) == ["b"] and overtaken(earlier.replace("pendings = 1", "pendings = 0")) == []


def test_places_that_come_round():
    """Three stages copy two tiles ahead: of two places the product's own, of three another."""
    assert overtaken(COMING_ROUND) == ["b"]
    assert overtaken(COMING_ROUND.replace("%two = arith.constant 2", "%two = arith.constant 3")) == []
    assert overtaken(COMING_ROUND.replace("pendings = 1", "pendings = 0")) == []


THREE_PRODUCTS = """
@triton.jit
def chain_kernel(a_ptr, v_ptr, o_ptr, WIDTH: tl.constexpr):
    rows, columns = tl.arange(0, 64), tl.arange(0, WIDTH)
    a = tl.load(a_ptr + rows[:, None] * 64 + rows[None, :])
    v = tl.load(v_ptr + rows[:, None] * WIDTH + columns[None, :])
    twice = tl.dot(tl.dot(a, a, input_precision="tf32"), a, input_precision="tf32")
    tl.store(o_ptr + rows[:, None] * WIDTH + columns[None, :], tl.dot(twice.to(tl.float16), (v * 2.0).to(tl.float16)))

def EXAMPLE():
    for width in (64, 32):
        v = torch.zeros(64, width, dtype=torch.float16)
        chain_kernel[(1,)](torch.zeros(64, 64), v, torch.zeros(64, width), WIDTH=width, num_warps=4)
"""


def test_what_the_assembler_gets_wrong_is_a_problem(file):
    """ptxas 12.8, which Triton 3.6 and 3.7 bring along, loses the address of a narrow tile that was computed. On an
    H200 such kernels gave errors of 45 %, or read where nothing is; by ptxas 13.1 they were right."""
    from triton import knobs

    wide, narrow = compiler.compile_file(file(THREE_PRODUCTS), 90).kernels
    assert wide.sass["wgmma"] and narrow.sass["wgmma"] and not wide.problems
    if knobs.nvidia.ptxas.version.startswith("12.8"):
        (problem,) = narrow.problems
        assert "ptxas, lost the instruction that sets UR" in problem.message
    else:
        assert not narrow.problems


def test_a_grid_that_a_gpu_does_not_take_is_named(file):
    """Also where the same kernel was launched before with fewer programs."""
    launches = "".join(
        f"    scale_kernel[{grid}](x, x, 5, 2.0, BLOCK=16)\n" for grid in ("(1,)", "lambda at: (1, at['n'] << 14)")
    )
    report = compiler.compile_file(file(f"{SCALE}\ndef EXAMPLE():\n    x = torch.ones(5)\n{launches}"))
    (problem,) = report.problems
    assert problem.line == 7
    assert problem.message.startswith(
        "scale_kernel: 81,920 programs on axis 1 of the grid, and a GPU takes at most 65,535"
    )


class Choice(NamedTuple):
    wide: bool
    order: int


def test_a_launch_keeps_the_names_of_a_tuple():
    """A kernel asks for them. Across a process goes what JSON can hold."""

    def kernel(CHOICE, PAIR):
        pass

    said = json.loads(json.dumps(launches.described(kernel, (Choice(True, 2), (1, 2)), {})))
    made = launches.arguments(said, {})
    assert made == {"CHOICE": Choice(True, 2), "PAIR": (1, 2)} and made["CHOICE"].wide


def test_backward_kernels_of_attention_round_scores_as_the_forward_kernel_does(file, tmp_path):
    """Else a weight isn't the one that was used: the exponent may be off by half a unit of the score, 4 at 10⁸.

    A product that goes straight into the subtraction is compiled into one fma, and not rounded.
    """
    path = file("""
from annotated_examples.attention.causal_attention import causal_attention
from annotated_examples.attention.flash_attention import flash_attention

q, k, v = (torch.ones(1, 1, 37, 64, requires_grad=True) for _ in range(3))
causal_attention(q, k, v).sum().backward()
flash_attention(q, k, v).sum().backward()
""")
    path.write_text(f"# {tmp_path}: what was compiled before isn't compiled again\n{path.read_text()}")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    python.run(["-m", "academy.cli", "compile", path], layout.ROOT, environment, check=True)
    kernels = {path.stem: path.read_text() for path in tmp_path.glob("cache/*/*.ptx")}
    assert len(kernels) == 6
    for name, text in kernels.items():
        made = {found[2]: found[1] for found in re.finditer(r"([a-z]\S+)\s+(%\w+), ", text)}
        exponents = re.findall(r"mul\S+\s+%\w+, (%\w+), 0f3FB8AA3B;", text)  # times log2(e)
        assert exponents and {made[exponent] for exponent in exponents} == {"sub.f32"}, name
