"""Run by test_launch.py, in a process of its own: the key of `academy.launch` against Triton's specialisation.

A stand-in compiles nothing: for each set of arguments that Triton's own binder tells apart it returns another
`CompiledKernel`, whose driver writes down what it gets. Random calls go through `launch`; the kernel that it used and
the arguments that the driver got have to be Triton's. Prints in JSON what was wrong, as it is and with mutants of the
key.
"""

import json
import os
import random
import sys
from pathlib import Path
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "0"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.jit import create_function_from_signature

from academy import launch


@triton.jit
def kernel(x_ptr, y_ptr, n, stride, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr, FLAG: tl.constexpr):
    pass


BIND = create_function_from_signature(kernel.signature, kernel.params, CUDABackend(GPUTarget("cuda", 90, 32)))
VARIANTS: dict = {}
SEEN: list = []


def variant(arguments, named):
    """What Triton compiles for these arguments. Types are told apart that equal each other, as 1 and True."""
    _, specialization, options = BIND(*arguments, **named)
    key = repr([tuple(map(str, each)) + (type(each[1]).__name__,) for each in specialization]) + repr(options)
    if key not in VARIANTS:
        compiled = object.__new__(triton.compiler.CompiledKernel)
        runner = SimpleNamespace(
            launch=lambda *got: SEEN.append(got), global_scratch_size=0, profile_scratch_size=0,
            launch_cooperative_grid=False, launch_pdl=False,
        )  # fmt: skip
        compiled._run, compiled.function, compiled.packed_metadata = runner, len(VARIANTS), (4, 1, 0)
        VARIANTS[key] = compiled
    return VARIANTS[key]


X = [torch.empty(64, dtype=dtype)[begin:] for dtype in (torch.float32, torch.bfloat16) for begin in (0, 1, 8)]
SIZES = [0, 1, 2, 15, 16, 32, 2**31 - 16, 2**31, 2**31 + 16, 2**63, -16, -1, True]


def random_call(choose):
    """Out of so few pieces that the same kind of call comes again and again, and its near relations too."""
    tensors = choose.choice(X), choose.choice([None, X[0]])
    numbers = choose.choice(SIZES), choose.choice([1, 16]), choose.choice([1, 1.0, 0.5]), choose.choice([1, 17, True])
    constants = dict(BLOCK=16, FLAG=choose.choice([True, 1]), num_warps=choose.choice([1, 4]))
    return tensors, numbers, constants


def wrong_calls(seed, count=4000):
    """The calls for which another kernel ran, or the driver got other arguments, and how many were remembered."""
    launch.forget()
    choose, wrong, remembered = random.Random(seed), [], 0
    for _ in range(count):
        tensors, numbers, constants = random_call(choose)
        plain = variant((*tensors, *numbers), constants)
        SEEN.clear()
        ran = launch.launch(kernel, (3, 2), tensors, numbers, **constants)
        remembered += bool(SEEN)
        addresses = [None if x is None else x.data_ptr() for x in tensors]
        expected = (3, 2, 1, 5, plain.function, False, False, None, None, (4, 1, 0), None, None, None)
        expected += (*addresses, *numbers, None, None)
        if ran is not plain or SEEN and SEEN[0] != expected:
            wrong.append(str((tensors[0].dtype, numbers, constants)))
    return wrong, remembered


def addresses_ignored(tensors, look=launch.look):
    seen, values = look(tensors)
    return [x for x in seen if type(x) is not bool], values


def dtypes_ignored(tensors, look=launch.look):
    seen, values = look(tensors)
    return [x for x in seen if not isinstance(x, torch.dtype)], values


def none_ignored(tensors, look=launch.look):
    seen, values = look(tensors)
    return seen[:4], values


MUTANTS = {
    "addresses ignored": ("look", addresses_ignored),
    "dtypes ignored": ("look", dtypes_ignored),
    "None ignored": ("look", none_ignored),
    "one is like any other size": ("specialised", lambda n: (type(n), n % 16 == 0, n < 2**31)),
    "multiples of 16 ignored": ("specialised", lambda n: (type(n), n == 1, n < 2**31)),
    "64 bits ignored": ("specialised", lambda n: (type(n), n == 1, n % 16 == 0)),
}


def main():
    triton.JITFunction.run = lambda self, *arguments, grid, warmup, **named: variant(arguments, named)
    launch.REMEMBERS, launch._current_device, launch._current_stream = True, lambda: -1, lambda device: 5
    right, remembered = wrong_calls(0)
    results = dict(right=right, remembered=remembered, mutants={})
    for name, (attribute, mutant) in MUTANTS.items():
        original = getattr(launch, attribute)
        setattr(launch, attribute, mutant)
        results["mutants"][name] = len(wrong_calls(1)[0])
        setattr(launch, attribute, original)
    print(json.dumps(results))


main()
