"""What the compiler makes of some functions of the language, without a GPU: printed as a dict."""

import os
import re

os.environ["TRITON_INTERPRET"] = "0"

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def unary_kernel(x_ptr, y_ptr, OPERATION: tl.constexpr):
    lanes = tl.arange(0, 128)
    x = tl.load(x_ptr + lanes)
    if OPERATION == "tl.exp":
        tl.store(y_ptr + lanes, tl.exp(x))
    if OPERATION == "tl.erf":
        tl.store(y_ptr + lanes, tl.erf(x))
    if OPERATION == "tl.sqrt":
        tl.store(y_ptr + lanes, tl.sqrt(x))
    if OPERATION == "tl.rsqrt":
        tl.store(y_ptr + lanes, tl.rsqrt(x))
    if OPERATION == "tl.log":
        tl.store(y_ptr + lanes, tl.log(x))
    if OPERATION == "tl.log2":
        tl.store(y_ptr + lanes, tl.log2(x))


@triton.jit
def add_kernel(x_ptr, y_ptr):
    lanes = tl.arange(0, 128)
    tl.atomic_add(y_ptr + lanes, tl.load(x_ptr + lanes))


@triton.jit
def dot_kernel(x_ptr, y_ptr, PRECISION: tl.constexpr):
    tile = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
    x = tl.load(x_ptr + tile)
    tl.store(y_ptr + tile, tl.dot(x, x, input_precision=PRECISION))


@triton.jit
def fp8_kernel(x_ptr, y_ptr, IMPRECISE: tl.constexpr):
    tile = tl.arange(0, 128)[:, None] * 128 + tl.arange(0, 128)[None, :]
    x = tl.load(x_ptr + tile).to(tl.float8e4nv)
    y = tl.load(y_ptr + tile).to(tl.float8e4nv)
    if IMPRECISE is None:
        acc = tl.dot(x, y)
    else:
        acc = tl.dot(x, y, max_num_imprecise_acc=IMPRECISE)
    tl.store(y_ptr + tile, acc)


def ptx(kernel, dtype, arch=80, **constants):
    signature = {"x_ptr": f"*{dtype}", "y_ptr": f"*{dtype}", **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(kernel, signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32)).asm["ptx"]


found: dict = {}
for operation in ("tl.exp", "tl.erf"):
    try:
        ptx(unary_kernel, "fp16", OPERATION=operation)
    except triton.CompilationError as error:
        found[operation] = "fp16 refused" if "Expected dtype" in f"{error}{error.__cause__}" else str(error)
for operation in ("tl.sqrt", "tl.rsqrt"):
    text = ptx(unary_kernel, "fp32", OPERATION=operation)
    found[operation] = "approx" if f"{operation[3:]}.approx" in text else text
for operation in ("tl.exp", "tl.log", "tl.log2"):
    text = ptx(unary_kernel, "fp32", OPERATION=operation)
    found[f"{operation}, in PTX"] = "one instruction" if re.search(r"(ex2|lg2)\.approx", text) else "a polynomial"
for arch, wanted in ((80, "cas"), (90, "add.noftz.bf16")):
    atomics = re.findall(r"atom\.\S+", ptx(add_kernel, "bf16", arch))
    found[f"atomic bf16 {arch}"] = wanted if atomics and all(wanted in each for each in atomics) else atomics
for precision in ("tf32", "tf32x3", "ieee"):
    found[precision] = len(re.findall(r"mma\.sync", ptx(dot_kernel, "fp32", PRECISION=precision)))
for imprecise in (None, 32, 0):
    text = ptx(fp8_kernel, "fp32", 90, IMPRECISE=imprecise)
    added = re.search(r"add\.(?:rn\.)?(?:ftz\.)?f32|fma\.rn\.(?:ftz\.)?f32", text) is not None
    found[f"fp8, {imprecise}"] = (bool(re.search(r"wgmma\S*\.e4m3\.e4m3", text)), added)
for arch in (80, 86, 89, 90, 100, 120):
    text = ptx(dot_kernel, "fp16", arch, PRECISION="tf32")
    found[arch] = next(
        name for name in ("wgmma", "tcgen05.mma", "mma.sync") if f"{name}." in text or f"{name}_" in text
    )
print(found)
