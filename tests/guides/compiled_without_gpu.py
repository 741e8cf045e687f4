"""Run by test_compiled_claims.py, in a process of its own: what the pages say about compiled code, counted in it.

Compiles for an H200 without one. Prints JSON.
"""

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "0"
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra import libdevice

from academy.compiler import catching
from academy.compiler.cards import card as card_of
from annotated_examples.common.attention import OPEN, Options
from annotated_examples.fast import cumsum, decode, flash_attention, mx_matmul, softmax
from annotated_examples.gemlite import gemm
from annotated_examples.ladders.softmax import rung_5_backwards as rung_5
from annotated_examples.moe import router
from annotated_examples.recurrences.linear_recurrence import join

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


def compiled(kernel, signature, constants, capability=90, aligned=True, **options):
    """A kernel for a card, an H200 by default. signature: types, as in `*fp32 *fp32 i32`, of its other arguments.

    aligned: whether pointers are multiples of 16, as those of PyTorch's memory are. Registers differ much without.
    """
    names = [name for name in kernel.arg_names if name not in constants]
    types = dict(zip(names, signature.split())) | dict.fromkeys(constants, "constexpr")
    known = [[["tt.divisibility", 16]] if aligned and types[name][0] == "*" else [] for name in kernel.arg_names]
    attributes = {(place,): facts for place, facts in enumerate(known) if facts}
    source = ASTSource(kernel, {name: types[name] for name in kernel.arg_names}, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


class Kept(catching.Catcher):
    """Keeps what is compiled."""

    def _looked_at(self, compiled):
        return super()._looked_at(compiled) | dict(compiled=compiled)


@triton.jit
def gathered_rows_kernel(x_ptr, rows_ptr, out_ptr, M):
    descriptor = tl.make_tensor_descriptor(x_ptr, [M, 1024], [1024, 1], [1, 64])
    rows = tl.arange(0, 32)
    x = descriptor.gather(tl.load(rows_ptr + rows), 0)
    tl.store(out_ptr + rows[:, None] * 64 + tl.arange(0, 64)[None, :], x)


def gathers(capability):
    """Whether the TMA unit of a card gathers rows."""
    try:
        kernel = compiled(gathered_rows_kernel, "*bf16 *i32 *bf16 i32", {}, capability)
    except Exception as error:
        assert "gather4" in str(error)
        return False
    return "gather4" in kernel.asm["ptx"]


def launched(function, *inputs, **options):
    """The kernels that a call launches, compiled. inputs: (dtype, sizes), or a value."""
    with Kept(card_of(90), detail=False).catching() as kept:
        made = (torch.empty(x[1], dtype=x[0], device="cuda") if type(x) is tuple else x for x in inputs)
        function(*made, **options)
    return {entry["kernel"]: entry["compiled"] for entry in kept.found}


def from_the_loop_on(ptx):
    """Labels are numbered otherwise in each release of Triton: the first one that is jumped back to."""
    return re.search(r"(\$L__BB0_\d+):(.*\sbra\S*\s+\1;.*)", ptx, re.S)[2]


def copies_and_waits(ptx):
    """Of a pipelined loop: how many copies stand before each commit in its body, and what it waits for."""
    names = re.findall(r"cp\.async\.(c[ag]|commit_group|wait_group\s+\d+)", from_the_loop_on(ptx))
    counts, number = [], 0
    for name in names:
        number += name in ("ca", "cg")
        if name == "commit_group":
            counts, number = [*counts, number], 0
    return counts, [int(name.split()[1]) for name in names if "wait" in name]


def shortest_loop(kernel):
    """The names of the instructions of the shortest loop with products on tensor cores."""
    code = re.findall(r"/\*([0-9a-f]{4})\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_]*)(.*?);", machine_code(kernel, "-sass"))
    loops = []
    for place, name, operands in code:
        if name == "BRA" and (target := re.search(r"0x([0-9a-f]+)", operands)) and target[1].zfill(4) < place:
            loops.append([name for at, name, _ in code if target[1].zfill(4) <= at <= place])
    return min((loop for loop in loops if not {"HMMA", "HGMMA"}.isdisjoint(loop)), key=len)


@triton.jit
def scan_kernel(a_ptr, x_ptr, y_ptr, REVERSE: tl.constexpr):
    tile = tl.arange(0, 64)[:, None] * 32 + tl.arange(0, 32)[None, :]
    a, x = tl.load(a_ptr + tile).to(tl.float32), tl.load(x_ptr + tile).to(tl.float32)
    a, x = tl.associative_scan((a, x), 0, join, reverse=REVERSE)
    tl.store(y_ptr + tile, a + x)


@triton.jit
def atomic_kernel(x_ptr, out_ptr, APART: tl.constexpr):
    lanes = tl.arange(0, 256)
    tl.atomic_add(out_ptr + APART * lanes, tl.load(x_ptr + lanes), sem="relaxed")


def takes_a_loop(card, dtype, apart):
    """Whether adding to elements that are so far apart compares and swaps until nobody interferes."""
    kernel = compiled(atomic_kernel, f"*{dtype} *{dtype}", {"APART": apart}, card, num_warps=1)
    return "ATOMG.E.CAS" in machine_code(kernel, "-sass")


OPERATIONS = "x * y + z", "tl.fma", "tl.dot", "tl.exp", "tl.log", "tl.erf"


@triton.jit
def operation_kernel(x_ptr, out_ptr, OPERATION: tl.constexpr):
    lanes = tl.arange(0, 128)
    x = tl.load(x_ptr + lanes)
    y = tl.load(x_ptr + 128 + lanes)
    if OPERATION == "x * y + z":
        x = x * y + x
    if OPERATION == "tl.fma":
        x = tl.fma(x, y, x)
    if OPERATION == "tl.exp":
        x = tl.exp(x)
    if OPERATION == "tl.log":
        x = tl.log(x)
    if OPERATION == "tl.erf":
        x = tl.erf(x)
    tl.store(out_ptr + lanes, x)
    if OPERATION == "tl.dot":
        tile = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
        tl.store(out_ptr + tile, tl.dot(tl.load(x_ptr + tile), tl.load(x_ptr + tile), input_precision="ieee"))


def arithmetic(kernel):
    """Instructions of float32 in PTX, how they round left out -> how many."""
    found = re.findall(r"^\s*(fma|mul|add|sub)\.(?:rn\.)?(?:ftz\.)?f32", kernel.asm["ptx"], re.M)
    return {name: found.count(name) for name in sorted(set(found))}


def printed(path, part):
    """The part of a file of snippets that a page shows, as a module."""
    text = (ROOT / path).read_text("utf-8").split(f"[start:{part}]\n")[1].split(f"# --8<-- [end:{part}]")[0]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{part}.py"  # Triton reads a kernel's text from its file
        file.write_text("import triton\nimport triton.language as tl\n\n\n" + text, "utf-8")
        spec = importlib.util.spec_from_file_location(part, file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def machine_code(kernel, option):
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(kernel.asm["cubin"])
        return subprocess.run([CUOBJDUMP, option, file.name], capture_output=True, text=True, check=True).stdout


def registers(kernel):
    return int(re.search(r"REG:(\d+)", machine_code(kernel, "-res-usage"))[1])


def instructions(kernel):
    """How many the machine code has, without the padding behind its end."""
    names = re.findall(r"/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_]*)", machine_code(kernel, "-sass"))
    return names[: names.index("BRA")] if "BRA" in names else names


def in_flight(kernel, only=""):
    """The most loads from memory whose results nothing has used yet, anywhere in the machine code, in its order."""
    pending: list = []
    most = 0
    code = machine_code(kernel, "-sass")
    for name, operands in re.findall(r"/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*) (.*?);", code):
        used = [int(number) for number in re.findall(r"\bR(\d+)", operands)]
        pending = [each for each in pending if each.isdisjoint(used)]
        if name.startswith("LDG.") and only in name:
            first, many = used[0], {"128": 4, ".64": 2}.get(name[-3:], 1)
            pending.append(set(range(first, first + many)))
        most = max(most, len(pending))
    return most


def longest_chain(ptx):
    """How many float32 additions follow one another, at most, along a path through the code."""
    depth: dict = {}
    for operation, result, arguments in re.findall(r"(add|shfl)\.\S+\s+(%[rf]\d+)(?:\|%p\d+)?, (.*?);", ptx):
        before = max((depth.get(name, 0) for name in re.findall(r"%[rf]\d+", arguments)), default=0)
        depth[result] = before + (operation == "add")
    return max(depth.values())


@triton.jit
def sum_kernel(x_ptr, out_ptr, N: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, N))))


@triton.jit
def multiply_add_kernel(x_ptr, y_ptr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    x, y = tl.load(x_ptr + offsets), tl.load(y_ptr + offsets)
    tl.store(y_ptr + offsets, x * y + x)


@triton.jit
def product_kernel(x_ptr, y_ptr, z_ptr, PRECISION: tl.constexpr):
    i, k = tl.arange(0, 64), tl.arange(0, 32)
    x, y = tl.load(x_ptr + i[:, None] * 32 + k[None, :]), tl.load(y_ptr + k[:, None] * 64 + i[None, :])
    tl.store(z_ptr + i[:, None] * 64 + i[None, :], tl.dot(x, y, input_precision=PRECISION))


@triton.jit
def steps_kernel(x_ptr, y_ptr, z_ptr, K, SPLIT: tl.constexpr):
    i, k = tl.arange(0, 64), tl.arange(0, 64)
    acc = tl.zeros((64, 64), tl.float32)
    for k0 in tl.range(0, K, 64, warp_specialize=SPLIT):
        x = tl.load(x_ptr + i[:, None] * 4096 + k0 + k[None, :])
        y = tl.load(y_ptr + (k0 + k[:, None]) * 64 + i[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(z_ptr + i[:, None] * 64 + i[None, :], acc)


@triton.jit
def row_kernel(x_ptr, out_ptr, N, STAGES: tl.constexpr):
    acc = tl.zeros((1024,), tl.float32)
    for start in tl.range(0, N, 1024, num_stages=STAGES):
        acc += tl.load(x_ptr + start + tl.arange(0, 1024))
    tl.store(out_ptr, tl.sum(acc))


@triton.jit
def one_word_kernel(out_ptr, seed, N: tl.constexpr, WORK: tl.constexpr):
    offsets = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out_ptr + offsets, tl.randint(seed, offsets) if WORK else offsets)


@triton.jit
def four_words_kernel(out_ptr, seed, N: tl.constexpr, WORK: tl.constexpr):
    offsets = tl.program_id(0) * N + tl.arange(0, N)
    if WORK:
        a, b, c, d = tl.randint4x(seed, offsets)
        tl.store(out_ptr + offsets, a ^ b ^ c ^ d)
    else:
        tl.store(out_ptr + offsets, offsets)


@triton.jit
def function_kernel(x_ptr, y_ptr, N: tl.constexpr, WHICH: tl.constexpr):
    offsets = tl.arange(0, N)
    x = tl.load(x_ptr + offsets)
    if WHICH == "log":
        x = tl.log(x)
    elif WHICH == "exp":
        x = tl.exp(x)
    elif WHICH == "exp2":
        x = tl.exp2(x)
    elif WHICH == "libdevice.exp":
        x = libdevice.exp(x)
    elif WHICH == "quotient":
        x = 3.0 / x
    elif WHICH == "fast_dividef":
        x = libdevice.fast_dividef(3.0, x)
    tl.store(y_ptr + offsets, x)


def of_each_element(which):
    """How many instructions a function of an element takes: what 16 more elements a thread add, over 16."""
    sizes = [
        len(instructions(compiled(function_kernel, "*fp32 *fp32", {"N": N, "WHICH": name})))
        for name in (which, "")
        for N in (4096, 2048)
    ]
    return (sizes[0] - sizes[1] - sizes[2] + sizes[3]) / 16


STEPS = "*bf16 *bf16 *fp32 i32"
SPLITS = ((80, 4), (90, 4), (90, 8), (100, 4), (120, 4))


def split(card, warps):
    """What becomes of a loop over tiles that are loaded through pointers."""
    try:
        kernel = compiled(steps_kernel, STEPS, {"SPLIT": True}, card, num_warps=warps)
    except RuntimeError:
        return "fails"
    return "split" if "ttg.warp_specialize" in kernel.asm["ttgir"] else "ignored"


@triton.jit
def masked_kernel(x_ptr, y_ptr, n):
    offs = tl.arange(0, 128)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n))


def clears_masked_lanes(card):
    """Whether the register of a masked load without `other` is 0 before it."""
    ptx = compiled(masked_kernel, "*fp32 *fp32 i32", {}, card).asm["ptx"]
    return bool(re.search(r"mov\.[bu]32 \s*(%r\d+), 0x0;\s*@%p\d+ ld\.global\.b32 \{ \1 \}", ptx))


def main():
    running_max_kernel = printed("docs/guides/snippets/numerics.py", "registers").running_max_kernel
    result = {"additions one after another": {}, "registers of a running maximum": {}, "instructions": {}}
    for size in (4096, 65536):
        kernel = compiled(sum_kernel, "*fp32 *fp32", {"N": size}, num_warps=4)
        result["additions one after another"][size] = longest_chain(kernel.asm["ptx"])
    for dtype in ("bfloat16", "float32"):
        constants = {"N": 128 * 32 * 4, "FLOAT32": dtype == "float32"}
        kernel = compiled(running_max_kernel, "*bf16 *fp32 i32", constants, num_warps=4)
        result["registers of a running maximum"][dtype] = registers(kernel)
    result["multiply-adds"] = {}
    for dtype in ("bf16", "fp32"):  # 16 for each of 128 threads
        code = instructions(compiled(multiply_add_kernel, f"*{dtype} *{dtype}", {"N": 16 * 128}, num_warps=4))
        result["multiply-adds"][dtype] = {name: code.count(name) for name in ("HFMA2", "FFMA") if name in code}
    for kernel in (one_word_kernel, four_words_kernel):
        counts = [
            len(instructions(compiled(kernel, "*i32 i32", {"N": 128, "WORK": work}, num_warps=4)))
            for work in (True, False)
        ]
        result["instructions"][kernel.__name__] = counts[0] - counts[1]
    result["fused"] = {
        str(fused): {
            operation: arithmetic(
                compiled(operation_kernel, "*fp32 *fp32", {"OPERATION": operation}, enable_fp_fusion=fused)
            )
            for operation in OPERATIONS
        }
        for fused in (True, False)
    }
    for precision in ("ieee", "tf32"):
        code = instructions(compiled(product_kernel, "*fp32 *fp32 *fp32", {"PRECISION": precision}, num_warps=4))
        result[precision] = sorted({name for name in code if "MMA" in name or name == "FFMA"})
    # A step of the loop loads two tiles of 64 x 64 bfloat16 numbers, and keeps them in shared memory.
    result["buffers of three and four stages"] = {
        str(card): [
            compiled(steps_kernel, STEPS, {"SPLIT": False}, card, num_stages=stages).metadata.shared // 16384
            for stages in (3, 4)
        ]
        for card in (80, 89, 90, 100, 120)
    }
    result["a loop without a product is pipelined"] = {
        f"{stages} of the loop, {launched} of the launch": "cp.async"
        in compiled(row_kernel, "*fp32 *fp32 i32", {"STAGES": stages}, num_stages=launched).asm["ptx"]
        for stages, launched in ((None, 4), (3, 1))
    }
    functions = ("log", "exp", "exp2", "libdevice.exp", "quotient", "fast_dividef")
    result["of each element"] = {which: of_each_element(which) for which in functions}
    result["roundings to tf32"] = {}
    for precision in ("tf32", "tf32x3"):
        ptx = compiled(product_kernel, "*fp32 *fp32 *fp32", {"PRECISION": precision}).asm["ptx"]
        result["roundings to tf32"][precision] = ptx.count("cvt.rna.tf32")
    options = {"stride_dk": 1, "stride_e": 1, "SIGMOID": False, "RENORMALIZE": True}
    options |= {"TOP_K": 8, "BLOCK_T": 2, "BLOCK_E": 256}
    kernel = compiled(router.route_backward_kernel, "*fp32 *fp32 *i32 *fp32 i32 i32 i32 i32 fp32", options)
    result["loads in flight"] = {"route_backward": in_flight(kernel)}
    for width in (128256, 50257):
        _, block, warps = softmax.forward_tiles(width, 8, None, None, None)
        options = {"N": width, "stride_xm": width, "BLOCK_N": block, "VECTOR": 8, "ALIGN": 8}
        for rung, only in ((softmax.softmax_forward_chunked_kernel, "EL.128"), (rung_5.softmax_forward_kernel, "128")):
            kernel = compiled(rung, "*bf16 *bf16", options, num_warps=warps)
            result["loads in flight"][f"{only} {width}"] = in_flight(kernel, only)
    result["a scan"] = {}
    for reverse in (False, True):
        kernel = compiled(scan_kernel, "*bf16 *bf16 *fp32", {"REVERSE": reverse}, num_warps=2)
        code = machine_code(kernel, "-sass")
        counts = {name: len(re.findall(rf"\b{name}[. ]", code)) for name in ("SHFL", "FMUL", "FFMA")}
        result["a scan"][str(reverse)] = counts
    bf16, fp16, int32, uint8 = torch.bfloat16, torch.float16, torch.int32, torch.uint8
    cache = bf16, (1, 32768, 8, 128)
    kernel = launched(decode.decode_attention, (bf16, (1, 32, 128)), cache, cache, (int32, 1))["decode_split_kernel"]
    compared = re.findall(r"setp\.gt\.s32\s+%p\d+, %r\d+, -1;", from_the_loop_on(kernel.asm["ptx"]))
    result["keys compared with 0 in whole tiles"] = len(compared)
    matrices = (fp16, (16, 8192)), (int32, (1024, 8192)), (fp16, (64, 8192)), (fp16, (64, 8192))
    result["when A is loaded"] = []
    for order in range(4):
        kernels = launched(gemm.gemm_forward, *matrices, W_nbits=4, group_size=128, A_load_order=order)
        result["when A is loaded"].append(copies_and_waits(kernels["gemm_kernel"].asm["ptx"]))
    weights = (bf16, (256, 8192)), (uint8, (8192, 4096)), (uint8, (8192, 256))
    kernel = launched(mx_matmul.parts_forward, *weights, None, bf16)["mx_parts_kernel"]
    result["shared memory of 256 rows"] = kernel.metadata.shared
    kernel = launched(mx_matmul.parts_forward, (bf16, (1, 8192)), *weights[1:], None, bf16)["mx_parts_kernel"]
    result["decoding four bits"] = Counter(shortest_loop(kernel))
    row = bf16, (1, 1 << 26)
    result["loads in flight"]["part of a running sum"] = in_flight(
        launched(cumsum.cumsum_forward, row)["cumsum_kernel"]
    )
    heads, options = (bf16, (4, 16, 4096, 128)), Options(0.1, OPEN, OPEN, 0.0, 4096, 4096)
    kernels = launched(flash_attention.attention_forward, heads, heads, heads, None, None, None, options)
    result["attention's loop"] = Counter(shortest_loop(kernels["attention_forward_kernel"]))
    result["atomic sums in a loop"] = [
        each for each in itertools.product((80, 89, 90, 100, 120), ("fp16", "bf16"), (1, 3)) if takes_a_loop(*each)
    ]
    result["cards whose TMA unit gathers rows"] = [card for card in (90, 100, 120) if gathers(card)]
    result["warp_specialize"] = {f"{card}, {warps} warps": split(card, warps) for card, warps in SPLITS}
    result["cards on which a masked lane is 0"] = [card for card in (80, 89, 90, 100, 120) if clears_masked_lanes(card)]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
