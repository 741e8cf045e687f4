"""Run in a process of its own: compile the Gluon lessons for a Hopper GPU that isn't there. Prints JSON.

Argument: "all" for every configuration and dtype. With another release of Triton, unpacked into a folder:

    pip download --no-deps --dest wheels triton==3.6.0 && unzip -q -d triton-3.6.0 wheels/triton-3.6.0*.whl
    PYTHONPATH=triton-3.6.0 python tests/gluon/compiled.py all
"""

import json
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"], os.environ["CUDA_VISIBLE_DEVICES"] = "0", ""
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from academy.runtime import device
from academy.compiler import catching
from academy.compiler.cards import card
from annotated_examples.gluon import (
    flash_attention,
    flash_attention_backward,
    layernorm_backward,
    matmul,
    sparse_mla,
    tile_copy,
)  # fmt: skip

#: What one can ask of `matmul_forward`: the default first.
MATMULS = [
    {}, dict(STAGES=3, HALVES=1), dict(BLOCK_N=128, STAGES=5, HALVES=1), dict(GROUP_M=4),
    dict(PINGPONG=True, BLOCK_N=128, STAGES=5, HALVES=1), dict(PINGPONG=True, BLOCK_N=128, STAGES=6, HALVES=2),
    dict(PINGPONG=True, BLOCK_M=64, STAGES=4, HALVES=1), dict(PINGPONG=True, BLOCK_M=64, STAGES=4, HALVES=2),
]  # fmt: skip
TILES = [{}, dict(BLOCK_N=256, STAGES=3), dict(BLOCK_M=64, num_warps=4)]
BACKWARDS = [{}, dict(STAGES=2), dict(BLOCK_M=64), dict(HEADS=1)]
ATTENTIONS = [{}, dict(BLOCK_N=64, STAGES=3), dict(BLOCK_N=64, STAGES=4), dict(HEADS=1)]


def main() -> None:
    every = "all" in sys.argv
    catcher = catching.Catcher(card(90), detail=every)
    with catcher.catching():
        for dtype in (torch.bfloat16, torch.float16, torch.float32) if every else (torch.bfloat16,):
            x = torch.empty(512, 1024, dtype=dtype, device=device.DEVICE)
            tile_copy.copy_lanes(x)
            tile_copy.copy_tile(x)
            tile_copy.copy_forward(x)
            if dtype == torch.float32:
                continue
            row, numbers = torch.empty(16384, dtype=dtype, device=device.DEVICE), x[:, 0].float().contiguous()
            for columns in (16384, 9216) if every else (16384,):
                rows = torch.empty(512, columns, dtype=dtype, device=device.DEVICE)
                layernorm_backward.layernorm_backward(rows, rows, row[:columns], row[:columns], numbers, numbers)
            for right in (x.T, torch.empty(1024, 512, dtype=dtype, device=device.DEVICE)) if every else (x.T,):
                for options in MATMULS if every else (MATMULS[0], MATMULS[4]):
                    matmul.matmul_forward(x, right, **options)
                for options in TILES if every else TILES[:1]:
                    matmul.matmul_tile(x, right, **options)
            for R, E in ((512, 64), (128, 32)) if every else ((512, 64),):
                latents = torch.empty(512, R + E, dtype=dtype, device=device.DEVICE)
                lists = torch.empty(4, 128, dtype=torch.int32, device=device.DEVICE)
                for sinks in (None, latents[:128, 0]) if every else (None,):
                    sparse_mla.sparse_attention_forward(latents.view(4, 128, R + E), latents, lists, sinks, R, 0.1)
            for D, causal in ((64, True), (64, False), (128, True), (128, False)) if every else ((128, True),):
                q = torch.empty(2, 4, 512, D, dtype=dtype, device=device.DEVICE)
                asked = flash_attention.contract(q, q, q, causal, None, None, 0.0, None, True)
                for options in ATTENTIONS if every else ATTENTIONS[:1]:
                    flash_attention.attention_forward(q, q, q, None, None, None, asked, **options)
                saved = q, q, q, None, None, None, q, q[..., 0].float(), asked
                for options in BACKWARDS if every else BACKWARDS[:1]:
                    flash_attention_backward.attention_backward(q, None, *saved, **options)
    print(json.dumps(catcher.found))


main()
