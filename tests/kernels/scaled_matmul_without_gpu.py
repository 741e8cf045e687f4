"""What the compiler makes of products of codes for Hopper, without a GPU: how many of its instructions multiply codes,
and how many add float32 numbers. And what `academy.runtime.launch` describes tiles with, for both kinds of kernels."""

import json
import os
import re
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"], os.environ["CUDA_VISIBLE_DEVICES"] = "0", ""
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon import language as gl

from academy.runtime import launch
from annotated_examples.fp8 import scaled_matmul as lesson
from annotated_examples.gluon import scaled_matmul as below

TYPES = {"a_tensor": ("*fp8e4nv", "i32", "i32"), "scale_a_tensor": ("*fp32", "i32", "i32"), "c_ptr": "*bf16"}
TYPES |= {"b_tensor": TYPES["a_tensor"], "scale_b_tensor": TYPES["scale_a_tensor"]}
TYPES |= dict.fromkeys(("scale_a_ptr", "scale_b_ptr"), "*fp32")
TILES = dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, GROUP_M=8, bias_ptr=None)


def instructions(kernel, **constants) -> tuple[int, int]:
    constants |= TILES
    signature = {name: "constexpr" if name in constants else TYPES.get(name, "i32") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, constexprs=constants)
    text = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=dict(num_warps=4)).asm["ptx"]
    products = re.findall(r"wgmma\.mma_async\S*\.e4m3\.e4m3", text)
    return len(products), len(re.findall(r"\b(?:add|fma)\.(?:rn\.)?(?:ftz\.)?f32\b", text))


found = {
    "row, fast": instructions(lesson.scaled_matmul_kernel, IMPRECISE=None),
    "row": instructions(lesson.scaled_matmul_kernel, IMPRECISE=64),
    "block": instructions(lesson.block_scaled_matmul_kernel),
}
codes = below.tiles_of(torch.zeros(64, 128).to(torch.float8_e5m2), 64, 128)
of_gluon, plain = (
    launch._descriptor(below.promoted_kernel, codes),
    launch._descriptor(lesson.scaled_matmul_kernel, codes),
)
layout = gl.NVMMASharedLayout.get_default_for([64, 128], gl.float8e5)
descriptors = [of_gluon.layout == layout, of_gluon.block_shape == plain.block_shape, hasattr(plain, "layout")]
print(json.dumps(dict(instructions=found, descriptors=descriptors)))
