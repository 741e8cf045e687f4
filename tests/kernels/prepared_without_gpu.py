"""Run by test_launch.py, in a process of its own: fast functions with their prepared launches against unprepared ones.

A stand-in compiles nothing: for each set of arguments that Triton's own binder tells apart it returns another
`CompiledKernel`, whose driver writes down what it gets. Random calls of the fast functions, most of them near relations
of earlier ones, are made twice: as they are, and with nothing remembered but plain launches. The kernels, grids and
arguments must be the same; an address is told by the tensor it belongs to. Prints in JSON what was wrong, as it is and
with mutants.
"""

import gc
import json
import os
import random
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "0"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.jit import create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from academy.runtime import call_cache, checks, device, launch
from annotated_examples.common import norms
from annotated_examples.fast import cross_entropy, decode, flash_attention, layernorm

BACKEND = CUDABackend(GPUTarget("cuda", 90, 32))
BINDERS: dict = {}
VARIANTS: dict = {}
SEEN: list = []
MADE: list = []
COPIES: list = []


def typed(value):
    return tuple(map(typed, value)) if isinstance(value, tuple) else (str(value), type(value).__name__)


def compiled_for(kernel, arguments, named):
    """What Triton compiles for these arguments."""
    if kernel not in BINDERS:
        BINDERS[kernel] = create_function_from_signature(kernel.signature, kernel.params, BACKEND)
    _, specialization, options = BINDERS[kernel](*arguments, **named)
    key = kernel.__name__ + repr([typed(each) for each in specialization]) + repr(options)
    if key not in VARIANTS:
        number, signature, forms = len(VARIANTS), {}, []
        for place, value in enumerate(arguments):
            signature[str(place)] = "*bf16"
            if isinstance(value, TensorDescriptor):
                shape = list(value.block_shape)
                signature[str(place)] = f"tensordesc<bf16[{','.join(map(str, shape))}]>"
                forms.append(dict(swizzle=3, elem_size=2, elem_type=10, block_size=shape, fp4_padded=False))
        runner = SimpleNamespace(
            launch=lambda *got: SEEN.append((number, got)), global_scratch_size=0, profile_scratch_size=0,
            launch_cooperative_grid=False, launch_pdl=False, arg_annotations="parts", kernel_signature=b"types",
        )  # fmt: skip
        if forms:
            runner.launch = driver.wrap_handle_tensordesc(runner.launch, signature, forms)
        compiled = object.__new__(triton.compiler.CompiledKernel)
        compiled._run, compiled.function, compiled.packed_metadata = runner, number, (4, 1, 0)
        VARIANTS[key] = compiled
    return VARIANTS[key]


def filled(address, *form):
    """In place of the driver's function that makes a tensor map."""
    return "map", address, *(tuple(each) if isinstance(each, list) else each for each in form)


def noted(make):
    """`torch.empty` or its like, which notes what it makes."""

    def made(*arguments, **named):
        result = make(*arguments, **named)
        if not result.is_meta:
            MADE.append(result)
        return result

    return made


def kept(copy):
    """`contiguous` or its like; what it makes lives on, so that no new tensor gets its memory."""

    def made(*arguments, **named):
        COPIES.append(copy(*arguments, **named))
        return COPIES[-1]

    return made


def told(value, tensors):
    """An address as (which tensor, where in it); all else as it is."""
    if isinstance(value, tuple | list):
        return tuple(told(each, tensors) for each in value)
    if type(value) is int and value > 2**24:
        for name, tensor in tensors:
            begin = tensor.untyped_storage().data_ptr()
            if begin <= value < begin + tensor.untyped_storage().nbytes():
                return name, value - begin
        return "a copy, or a large number"
    return repr(value)


def seen(call, tensors, warm=0):
    """What the driver got from a call."""
    for _ in range(1 + warm):
        SEEN.clear(), MADE.clear(), COPIES.clear()
        call()
    named = [*tensors, *((f"new {number}", tensor) for number, tensor in enumerate(MADE))]
    return [(number, told(got, named)) for number, got in SEEN]


def expected(call, tensors):
    """The same, but nothing is remembered except plain launches."""
    prepared, launches = call_cache.Prepared.__call__, launch.Launch.__call__
    launch.COMPILED, call_cache.Prepared.__call__, launch.Launch.__call__ = False, plain, launch_anew
    try:
        return seen(call, tensors)
    finally:
        launch.COMPILED, call_cache.Prepared.__call__, launch.Launch.__call__ = True, prepared, launches


def plain(self, *tensors):
    if not self.empty:
        self.launch(*self.arguments(*tensors))


def launch_anew(self, *tensors, again=launch.Launch.__call__):
    """Twice: the first launch is Triton's, and the driver is not asked."""
    launch._CALLS.clear(), launch._KINDS.clear()
    launch.Launch.__call__ = again
    self(*tensors), self(*tensors)
    launch.Launch.__call__ = launch_anew


def memory(*shape, dtype=torch.bfloat16):
    return torch.randn(shape).to(dtype)


KV = memory(1, 2, 2, 66, 64)
HEADS = [
    memory(1, 2, 64, 64),
    KV[:, 0, :, :64],
    KV[:, 1, :, :64],
    KV[:, 0, :, 2:],
    memory(64, 2, 1, 64).permute(2, 1, 0, 3),
]
HEADS += [memory(1, 64, 2, 64).transpose(1, 2), memory(1, 2, 65, 64)[:, :, 1:], memory(1, 2, 64, 65)[..., 1:]]
ROWS = [
    memory(6, 64),
    memory(6, 64),
    memory(7, 64)[1:],
    memory(6, 65)[:, 1:],
    memory(12, 64)[::2],
    memory(6, 128)[:, :64],
]
ROWS += [
    memory(1, 64).expand(6, 64),
    memory(64, 6).T,
    memory(5, 48),
    memory(5, 64),
    memory(6, 64, dtype=torch.float32),
    memory(40, 8500),
]
VECTORS = [memory(64), memory(64), memory(128)[::2], memory(65)[1:], memory(64, dtype=torch.float32), memory(48), None]
VECTORS += [memory(8500), torch.nn.Parameter(memory(64))]
CACHES = [memory(2, 32, 1, 64), memory(2, 32, 1, 64), memory(2, 40, 1, 64)[:, 8:], memory(2, 1, 32, 64).transpose(1, 2)]
QUERIES = [memory(2, 4, 64), memory(2, 5, 64)[:, 1:], memory(4, 2, 64).transpose(0, 1), memory(2, 4, 65)[..., 1:]]
LENGTHS = [torch.tensor([32, 7], dtype=torch.int32), torch.tensor([[3, 1], [5, 1]], dtype=torch.int32)[:, 0]]
TABLES = [None, torch.zeros(2, 3, dtype=torch.int32), torch.zeros(2, 6, dtype=torch.int32)[:, ::2]]
SINKS = [None, None, memory(4), memory(8)[::2]]
LABELS = [torch.randint(6, (n,))[:6] for n in (6, 7, 5)] + [torch.randint(6, (12,))[::2], torch.randint(6, (6,)).int()]
UPSTREAM = [torch.ones(()), torch.ones(4)[1]]
COUNTS = [None, None, torch.tensor(4), torch.tensor([1, 4])[1], 4, 4.0, 5]

#: What each function is called with: a list of choices for each argument.
CALLS = {
    "attention": [HEADS, HEADS, HEADS, [True, False], [None, 0.5, 1], [None, 3, (2, 1)], [0.0, 5.0], [None, memory(2)]],
    "decode": [QUERIES, CACHES, CACHES, LENGTHS, TABLES, [None, 0.3, 1], [0.0, 3.0], SINKS, [None, 2, 4]],
    "cross entropy": [ROWS, LABELS, COUNTS, [0.0, 2.0], [-100, 0], [True, False]],
    "gradient": [UPSTREAM, ROWS[:2], [True, False]],
    "layernorm": [ROWS, VECTORS, VECTORS, [1e-5, 1, 0.0], [True, False]],
    "layernorm backward": [
        ROWS, ROWS, VECTORS, VECTORS, [torch.randn(6), torch.randn(8)[2:], torch.randn(5), torch.randn(40)],
        [True, False], [True, False], [True, False], [None, 1, 3],
    ],
    "whole layernorm": [
        ROWS, VECTORS, VECTORS, [1e-5, 1.0], [None, *ROWS, memory(1, 1).expand(6, 64)], [True, False], [True, False]
    ],
    "whole cross entropy": [
        [*ROWS, memory(6, 64, dtype=torch.float16), memory(1100, 40)],
        [*LABELS, torch.randint(40, (1100,)), torch.randint(40, (2200,))[::2]],
        COUNTS, [0.0, 2.0], [-100, 0], [True, False], [True, False], [1.0, 2.0],
    ],
    "attention backward": [
        [*HEADS, None, HEADS[0][:, :, :1].expand(1, 2, 64, 64)], [None, memory(1, 2, 64, dtype=torch.float32)],
        HEADS, HEADS, [True, False], [None, 2], [True, False],
    ],
}  # fmt: skip


def attention(q, k, v, causal, scale, window, softcap, sinks):
    return flash_attention.flash_attention(
        q, k, v, causal=causal, scale=scale, window=window, softcap=softcap, sinks=sinks
    )


def decoded(q, k_cache, v_cache, lengths, table, scale, softcap, sinks, num_splits):
    options = dict(scale=scale, softcap=softcap, sinks=sinks, num_splits=num_splits)
    return decode.decode_attention(q, k_cache, v_cache, lengths, block_table=table, **options)


def attention_back(do, dlse, q, k, causal, sides, deterministic):
    window = None if sides is None else (sides, sides)
    options = flash_attention.contract(q, k, k, causal, None, window, 0.0, None, True)
    lse, o = torch.zeros(q.shape[:3]), torch.zeros_like(q)
    tensors = q, k, k, None, None, None, o, lse
    return flash_attention.attention_backward(do, dlse, *tensors, options, deterministic=deterministic)


def loss(logits, labels, n_items, softcap, ignore_index, gradient):
    cross_entropy.checked(logits, labels, softcap, 0.0, n_items, ignore_index)
    forward = cross_entropy.cross_entropy_forward if gradient else cross_entropy.cross_entropy_loss_forward
    return forward(logits, labels, n_items, softcap, 0.0, ignore_index)


def gradient_of_loss(dloss, gradient, in_place):
    scale = cross_entropy.cross_entropy_backward_ if in_place else cross_entropy.cross_entropy_backward
    return scale(dloss, gradient)


def normalised(x, weight, bias, eps, save):
    layernorm.checked(x, weight, bias, eps)
    return layernorm.layernorm_forward(x, weight, bias, eps, save=save)


def normalised_back(dy, x, weight, bias, mean, *rest):
    layernorm.checked(x, weight, bias, 1e-5)
    if dy.shape != x.shape or dy.dtype != x.dtype or mean.numel() != x.shape[0]:
        raise ValueError("no such call")
    *needs, programs = rest
    return layernorm.layernorm_backward(dy, x, weight, bias, mean, mean, needs=needs, num_programs=programs)


def whole_layernorm(x, weight, bias, eps, dy, x_needs, weight_needs):
    x, weight = x.detach().requires_grad_(x_needs), weight if weight is None else weight.detach()
    leaves = [x] * x_needs
    if weight is not None and weight_needs:
        leaves.append(weight.requires_grad_())
    with torch.enable_grad():
        y = layernorm.layernorm(x, weight, bias, eps)
        if leaves:
            y.sum().backward(inputs=leaves) if dy is None else torch.autograd.grad(y, leaves, dy)


def whole_loss(logits, labels, n_items, softcap, ignore_index, needs, in_place, factor):
    leaf = logits.detach().requires_grad_(needs)
    function = cross_entropy.cross_entropy_loss_ if in_place and not needs else cross_entropy.cross_entropy_loss
    with torch.enable_grad():
        value = function(leaf, labels, softcap, 0.0, n_items, ignore_index)
        if needs:
            torch.autograd.grad(value * factor, leaf)


FUNCTIONS = {
    "attention": attention, "decode": decoded, "cross entropy": loss, "gradient": gradient_of_loss,
    "layernorm": normalised, "layernorm backward": normalised_back, "attention backward": attention_back,
    "whole layernorm": whole_layernorm, "whole cross entropy": whole_loss,
}  # fmt: skip


def wrong_calls(seed, count, names=tuple(CALLS)):
    """The calls of which the driver got something else, and how often a prepared launch ran."""
    launch.forget()
    choose, recent, wrong, ready = random.Random(seed), {name: [] for name in CALLS}, [], 0
    for _ in range(count):
        name = choose.choice(names)
        call = [choose.choice(choices) for choices in CALLS[name]]
        if recent[name] and choose.random() < 0.9:
            call = list(choose.choice(recent[name][-6:]))
            place = choose.randrange(len(call))
            call[place] = choose.choice(CALLS[name][place])
        function = lambda call=call, name=name: FUNCTIONS[name](*call)  # noqa: E731
        tensors = [(f"argument {n}", x) for n, x in enumerate(call) if isinstance(x, torch.Tensor)]
        try:
            with torch.no_grad():
                theirs = expected(function, tensors)
                before = READY[0]
                ours = seen(function, tensors, warm=2)
                ready += READY[0] > before
        except (TypeError, ValueError, RuntimeError) as error:  # no such call
            REFUSED.add(str(error)[:60])
            continue
        recent[name].append(call)
        if ours != theirs:
            wrong.append(f"{name}: {differences(ours, theirs)}")
    return wrong, ready


def differences(ours, theirs):
    """Where two lists of launches differ."""
    if len(ours) != len(theirs):
        return f"{len(ours)} launches instead of {len(theirs)}"
    flat = [
        [(number, place, value) for number, got in launches for place, value in enumerate((*got[:-1], *got[-1]))]
        for launches in (ours, theirs)
    ]
    return [f"{mine} instead of {other}" for mine, other in zip(*flat) if mine != other]


READY = [0]
REFUSED: set = set()


def counting(ready=call_cache._Ready.__call__):
    def call(self, tensors):
        launched = ready(self, tensors)
        READY[0] += launched
        return launched

    return call


def kept_alive():
    """Tensors that are still there when nobody should need them: plans may hold none."""
    alive = []
    for name, choices in CALLS.items():
        call = [each[0].clone() if isinstance(each[0], torch.Tensor) else each[0] for each in choices]
        references = [weakref.ref(x) for x in call if isinstance(x, torch.Tensor)]
        for _ in range(3):
            FUNCTIONS[name](*call)
        del call
        SEEN.clear(), MADE.clear(), COPIES.clear()
        gc.collect()
        alive += [name for reference in references if reference() is not None]
    return alive


def with_mutants():
    whole_geometry, whole_fill = call_cache._geometry, call_cache._fill

    def no_offsets(value, places):
        return whole_fill(
            value.as_strided(value.shape, value.stride(), 0) if isinstance(value, torch.Tensor) else value, places
        )

    def without(kind):
        return lambda arguments, key: [x for x in whole_geometry(arguments, key) if type(x) is not kind]

    mutants = {
        "strides ignored": ("_geometry", without(tuple), ["attention", "layernorm"]),
        "dtypes ignored": ("_geometry", without(torch.dtype), ["layernorm"]),
        "shapes ignored": ("_geometry", without(torch.Size), ["layernorm", "layernorm backward"]),
        "addresses and flags ignored": ("_geometry", without(bool), ["layernorm", "gradient"]),
        "numbers ignored": ("_geometry", without(float), ["attention", "decode"]),
        "views begin with their tensor": ("_fill", no_offsets, ["decode", "layernorm backward"]),
    }
    found = {}
    for name, (attribute, mutant, names) in mutants.items():
        original = getattr(call_cache, attribute)
        setattr(call_cache, attribute, mutant)
        try:
            found[name] = len(wrong_calls(1, 300, names)[0])
        except Exception as error:  # a call that should have been refused, or a key that can't be
            found[name] = repr(error)
        setattr(call_cache, attribute, original)
    return found


def main():
    triton.JITFunction.run = lambda self, *arguments, grid, warmup, **named: compiled_for(self, arguments, named)
    utils = SimpleNamespace(fill_tma_descriptor=filled, fill_tma_descriptor_tiled=filled)
    triton.runtime.driver.set_active(SimpleNamespace(utils=utils))
    launch.REMEMBERS = launch.COMPILED = True
    launch.current_device, launch._current_stream = lambda: -1, lambda device: 5
    checks.HERE, checks.INTERPRET, device.INTERPRET = "is_cpu", False, False
    card = SimpleNamespace(multi_processor_count=132, shared_memory_per_block_optin=232448)
    torch.cuda.get_device_properties = lambda index: card
    cross_entropy.backward_programs = norms.backward_schedule = None
    cross_entropy.backward_programs, layernorm.backward_schedule = lambda index: 8, lambda *_: (4, 1)
    torch.empty, torch.empty_like = noted(torch.empty), noted(torch.empty_like)
    torch.zeros, torch.zeros_like = noted(torch.zeros), noted(torch.zeros_like)
    for name in ("contiguous", "clone", "new_zeros"):
        setattr(torch.Tensor, name, kept(getattr(torch.Tensor, name)))
    call_cache._Ready.__call__ = counting()
    results = {}
    for form in (False, True):
        launch.ONE_LAUNCHER = form
        wrong, ready = wrong_calls(int(form), 600)
        results[f"right {form}"], results[f"ready {form}"] = wrong[:3], ready
    results["kept alive"], results["mutants"] = kept_alive(), with_mutants()
    print(json.dumps(results))


main()
