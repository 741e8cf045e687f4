"""Run by test_tracing.py, in a process of its own: trace a public function with torch.compile, without a GPU.

Dynamo can't trace Triton's interpreter, so the kernels are those for a GPU here. Nothing is launched: a stand-in for
the driver names an H100 as the target, CPU tensors stand in for the card's, and compiling ends with the traced graph.
Prints in JSON, for each case and for each of its shapes, "traced" or the error.
"""

import json
import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "0"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.utils._triton
import triton
from torch._dynamo.backends.common import aot_autograd
from triton.backends.compiler import GPUTarget

from academy.runtime import checks
from annotated_examples.classics import cross_entropy, geglu, layernorm, swiglu
from annotated_examples.fast import cross_entropy as fast_cross_entropy
from annotated_examples.fast import layernorm as fast_layernorm
from annotated_examples.fast import softmax as fast_softmax
from annotated_examples.tutorials import softmax


class Driver:
    """What Dynamo asks a driver for while it traces."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_current_device(self):
        return 0


class Traced(Exception):
    """Raised where the compiled program would run."""


def stop(graph, inputs):
    def run(*_):
        raise Traced

    run._boxed_call = True
    return run


def leaf(*shape, gradient):
    return torch.randn(*shape, dtype=torch.bfloat16, requires_grad=gradient)


FUNCTIONS = {
    "softmax": lambda x, other, vector: softmax.softmax(2 * x) * 3,
    "fast.softmax": lambda x, other, vector: fast_softmax.softmax(2 * x) * 3,
    "layernorm": lambda x, other, vector: layernorm.layernorm(2 * x, vector, vector + 1) * 3,
    "fast.layernorm": lambda x, other, vector: fast_layernorm.layernorm(2 * x, vector, vector + 1) * 3,
    "swiglu": lambda x, other, vector: swiglu.swiglu(2 * x, other) * 3,
    "geglu": lambda x, other, vector: geglu.geglu(2 * x, other) * 3,
    "cross_entropy": lambda x, other, vector: cross_entropy.cross_entropy_loss(2 * x, other[:, 0].long()) * 3,
    "fast.cross_entropy": lambda x, other, vector: fast_cross_entropy.cross_entropy_loss(2 * x, other[:, 0].long()) * 3,
}
SHAPES = {
    "rows": [(6, 1000), (9, 1000), (3, 1000)],
    "columns": [(6, 1000), (6, 600), (6, 601), (6, 20000), (6, 50257)],
    "both": [(6, 1000), (9, 600), (4, 601), (7, 20000), (5, 50257)],
}


def outcome(compiled, shape, gradient):
    M, N = shape
    try:
        compiled(leaf(M, N, gradient=gradient), leaf(M, N, gradient=gradient), leaf(N, gradient=gradient))
    except Traced:
        return "traced"
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return "was run"


def main(name, *cases):
    """cases: (key of SHAPES, whether inputs need a gradient, `dynamic` as for `torch.compile`)."""
    triton.runtime.driver.set_active(Driver())
    torch.utils._triton.has_triton = lambda *_: True
    checks.HERE = "is_cpu"
    backend = aot_autograd(fw_compiler=stop, bw_compiler=stop)
    results = []
    for changing, gradient, dynamic in cases:
        torch.compiler.reset()
        compiled = torch.compile(FUNCTIONS[name], fullgraph=True, backend=backend, dynamic=dynamic)
        results.append([outcome(compiled, shape, gradient) for shape in SHAPES[changing]])
    print(json.dumps(results))


main(*map(json.loads, sys.argv[1:]))
