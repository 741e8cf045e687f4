"""Run by test_launch.py, in a process of its own: the key of `academy.runtime.launch` against Triton's specialisation.

A stand-in compiles nothing: for each set of arguments that Triton's own binder tells apart it returns another
`CompiledKernel`, whose driver writes down what it gets. Random calls go through `launch`; the kernel that it used and
the arguments that the driver got have to be Triton's, in the form of Triton 3.6 and in that of later versions. Prints
in JSON what was wrong, as it is and with mutants of the key.
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

from academy.runtime import launch


@triton.jit
def kernel(x_ptr, y_ptr, rows, n, stride, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr, FLAG: tl.constexpr):
    pass


BIND = create_function_from_signature(kernel.signature, kernel.params, CUDABackend(GPUTarget("cuda", 90, 32)))
VARIANTS: dict = {}
SEEN: list = []


def typed(value):
    return tuple(map(typed, value)) if isinstance(value, tuple) else (str(value), type(value).__name__)


def variant(arguments, named):
    """What Triton compiles for these arguments. Types are told apart that equal each other, as 1 and True."""
    _, specialization, options = BIND(*arguments, **named)
    key = repr([typed(each) for each in specialization]) + repr(options)
    if key not in VARIANTS:
        compiled = object.__new__(triton.compiler.CompiledKernel)
        runner = SimpleNamespace(
            launch=lambda *got: SEEN.append(got), global_scratch_size=0, profile_scratch_size=0,
            launch_cooperative_grid=False, launch_pdl=False, arg_annotations="parts", kernel_signature=b"types",
        )  # fmt: skip
        compiled._run, compiled.function, compiled.packed_metadata = runner, len(VARIANTS), (4, 1, 0)
        VARIANTS[key] = compiled
    return VARIANTS[key]


X = [torch.empty(64, dtype=dtype)[begin:] for dtype in (torch.float32, torch.bfloat16) for begin in (0, 1, 8)]
SIZES = [0, 1, 2, 15, 16, 32, 2**31 - 16, 2**31, 2**31 + 16, 2**63, -16, -1, True]


#: What stands beside a tensor in a tuple, which may hold another tuple.
BESIDE = [(16, 1), (17, 1), (32, 16), (16, True), (16, 1.0), (2**31, 1), (16, None), ((1, 16), 1), (1, (16, 1))]
BESIDE += [(X[0], 16), (None, 16), *((16, tl.constexpr(value)) for value in (1, 2, True))]


def random_call(choose, recent):
    """One of the last calls with a part of another one, so that calls come again and again, and near relations too."""
    if recent and choose.random() < 0.9:
        first, second = choose.choice(recent[-20:]), list(choose.choice(recent))
        second = [first[place] if choose.random() < 0.8 else part for place, part in enumerate(second)]
        recent.append(tuple(second))
        return recent[-1]
    rows = choose.choice([None, X[0], X[0], X[1], X[3]]), *choose.choice(BESIDE)
    tensors = choose.choice(X[:4]), choose.choice([None, X[0]]), rows
    numbers = choose.choice(SIZES), choose.choice([1, 16]), choose.choice([1, 1.0, 0.5]), choose.choice([1, 17, True])
    constants = dict(BLOCK=16, FLAG=choose.choice([True, 1]), num_warps=choose.choice([1, 4]))
    recent.append((tensors, numbers, constants))
    return recent[-1]


def addresses(value):
    """As the driver gets it: tensors as numbers, and None in the place of what is compiled in."""
    if isinstance(value, tuple):
        return tuple(map(addresses, value))
    return None if isinstance(value, tl.constexpr) else value.data_ptr() if isinstance(value, torch.Tensor) else value


def driver_arguments(function, tensors, numbers):
    begin = (3, 2, 1, 5, function, False, False)
    arguments = (*addresses(tensors), *numbers, None, None)
    if launch.ONE_LAUNCHER:
        return *begin, (4, 1, 0), *[None] * 5, "parts", b"types", arguments
    return *begin, None, None, (4, 1, 0), None, None, None, *arguments


def wrong_calls(seed, count=4000, most=4000):
    """The calls for which another kernel ran, or the driver got other arguments, and how many were remembered. most:
    after so many wrong ones it ends."""
    launch.forget()
    choose, recent, wrong, remembered = random.Random(seed), [], [], 0
    for _ in range(count):
        tensors, numbers, constants = random_call(choose, recent)
        plain = variant((*tensors, *numbers), constants)
        SEEN.clear()
        ran = launch.launch(kernel, (3, 2), tensors, numbers, **constants)
        remembered += bool(SEEN)
        expected = driver_arguments(plain.function, tensors, numbers)
        if ran is not plain or SEEN and repr(SEEN[0]) != repr(expected):
            wrong.append(str((tensors[0].dtype, tensors[2][1:], numbers, constants)))
            if len(wrong) == most:
                break
    return wrong, remembered


def without(kind):
    """A key that leaves out everything of this kind."""

    def mutant(tensors, look=launch.look):
        seen, sizes, values = look(tensors)
        return [x for x in seen if type(x) is not kind], sizes, values

    return mutant


def one_length(tensors, look=launch.look):
    seen, sizes, values = look(tensors)
    return [x for x in seen if x is not tuple and type(x) is not int], sizes, values


def sizes_ignored(tensors, look=launch.look):
    seen, _, values = look(tensors)
    return seen, [], values


MUTANTS = {
    "addresses ignored": ("look", without(bool)),
    "dtypes ignored": ("look", without(torch.dtype)),
    "None ignored": ("look", without(type(None))),
    "types in tuples ignored": ("look", without(type)),
    "where tuples begin and end ignored": ("look", one_length),
    "numbers in tuples ignored": ("look", sizes_ignored),
    "one is like any other size": ("specialised", lambda n: (type(n), n % 16 == 0, n < 2**31)),
    "multiples of 16 ignored": ("specialised", lambda n: (type(n), n == 1, n < 2**31)),
    "64 bits ignored": ("specialised", lambda n: (type(n), n == 1, n % 16 == 0)),
}


def filled(*arguments):
    """In place of the driver's function that makes a tensor map."""
    return "map", *(tuple(each) if isinstance(each, list) else each for each in arguments)


def wrong_descriptors():
    """Kinds of descriptors of which the driver gets anything else than from Triton's own wrapper."""
    from triton.backends.nvidia import driver
    from triton.tools.tensor_descriptor import TensorDescriptor

    triton.runtime.driver.set_active(
        SimpleNamespace(utils=SimpleNamespace(fill_tma_descriptor=filled, fill_tma_descriptor_tiled=filled))
    )
    launch.ONE_LAUNCHER = not triton.__version__.startswith("3.6.")
    wrong = []
    for shape, tile in [((64,), (16,)), ((8, 16), (4, 16)), ((2, 3, 8, 16), (1, 1, 4, 16))]:
        x = torch.empty(shape, dtype=torch.bfloat16)
        block = ",".join(map(str, tile))
        form = dict(swizzle=3, elem_size=2, elem_type=10, block_size=list(tile), fp4_padded=False)
        signature = {"x": f"tensordesc<bf16[{block}]>", "y": "*bf16", "z": f"tensordesc<bf16[{block}]>"}
        got: list = []
        runner = SimpleNamespace(
            launch=driver.wrap_handle_tensordesc(lambda *given, got=got: got.append(given), signature, [form, form]),
            launch_cooperative_grid=False, launch_pdl=False, arg_annotations="parts", kernel_signature=b"types",
        )  # fmt: skip
        compiled = SimpleNamespace(run=runner, function=1, packed_metadata=(4, 1, 0))
        jitted = SimpleNamespace(pre_run_hooks=[], params=[None] * 3)
        tiles = launch.Tiles(x, tuple(shape), x.stride(), tile)
        native = TensorDescriptor(x, list(shape), list(x.stride()), list(tile))
        known = launch._Remembered(None, jitted, compiled, (3, 2, 1), (tiles, x, tiles), ())
        arguments = known.with_descriptors((tiles, x, tiles), launch.look((tiles, x, tiles))[2])
        if launch.ONE_LAUNCHER:
            known.driver(3, 2, 1, 5, *known.fixed, tuple(arguments))
            runner.launch(3, 2, 1, 5, *known.fixed, (native, x.data_ptr(), native))
        else:
            known.driver(3, 2, 1, 5, *known.fixed, *arguments)
            runner.launch(3, 2, 1, 5, *known.fixed, native, x.data_ptr(), native)
        ours, theirs = ((*given[:-1], *given[-1]) if launch.ONE_LAUNCHER else given for given in got)
        if ours != theirs:
            wrong.append((str(ours), str(theirs)))
    return wrong


def main():
    triton.JITFunction.run = lambda self, *arguments, grid, warmup, **named: variant(arguments, named)
    launch.REMEMBERS, launch.current_device, launch.current_stream = True, lambda: -1, lambda device: 5
    launch.ONE_LAUNCHER = False
    right, remembered = wrong_calls(0)
    launch.ONE_LAUNCHER = True
    right += wrong_calls(2)[0]
    results = dict(right=right, remembered=remembered, mutants={})
    for name, (attribute, mutant) in MUTANTS.items():
        original = getattr(launch, attribute)
        setattr(launch, attribute, mutant)
        results["mutants"][name] = len(wrong_calls(1, most=1)[0])
        setattr(launch, attribute, original)
    results["descriptors"] = wrong_descriptors()
    print(json.dumps(results))


main()
