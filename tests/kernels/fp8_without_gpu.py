"""What the compiler makes of codes of eight bits for several cards, without a GPU: the conversions in its PTX."""

import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"], os.environ["CUDA_VISIBLE_DEVICES"] = "0", ""
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.kernels.fp8_kernels import codes_kernel


def conversions(arch: int, code: str) -> list[str]:
    """Those from or to a type of 8 or 16 bits."""
    target = GPUTarget("cuda", arch, 32)
    triton.runtime.driver.set_active(SimpleNamespace(get_current_target=lambda: target))
    signature = dict(x_ptr="*fp32", q_ptr=f"*{code}", n="i32", BY_HAND="constexpr", BLOCK="constexpr")
    source = ASTSource(codes_kernel, signature, constexprs=dict(BY_HAND=False, BLOCK=256))
    text = triton.compile(source, target=target, options=dict(num_warps=4)).asm["ptx"]
    return sorted(set(re.findall(r"cvt\.\S*(?:e4m3|e5m2|f16)\S*", text)))


cards = [(80, "fp8e5"), (86, "fp8e5"), *((arch, code) for arch in (89, 90, 120) for code in ("fp8e5", "fp8e4nv"))]
print(json.dumps([[arch, code, conversions(arch, code)] for arch, code in cards]))
