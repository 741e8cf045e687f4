"""Run by test_launch.py, in a process of its own: launchers that are replayed against the same that are not.

A stand-in compiles nothing: for each set of arguments that Triton's own binder tells apart it returns another
`CompiledKernel`, whose driver writes down what it gets. Random calls of launchers, most of them near relations of
earlier ones, are made until they are replayed, and once more with nothing remembered. The kernels, grids and arguments
must be the same; an address is told by the tensor it belongs to. Prints in JSON what was wrong, as it is and with
mutants.
"""

import functools
import gc
import inspect
import json
import math
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
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.jit import create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from academy.runtime import device

device.DEVICE = torch.device("cpu")  # before anybody takes it from there

from academy.runtime import checks, launch, replay
from academy.judge import public
from annotated_examples.classics import swiglu
from annotated_examples.common import gated as gated_units
from annotated_examples.common import norms
from annotated_examples.fast import cross_entropy, decode, flash_attention, layernorm, softmax

BACKEND = CUDABackend(GPUTarget("cuda", 90, 32))
BINDERS: dict = {}
VARIANTS: dict = {}
#: A program that isn't moved about begins at 4 MiB, and its memory behind it.
LEAST_ADDRESS = 2**23
SEEN: list = []
MADE: list = []


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


class Noted(TorchDispatchMode):
    """Notes all memory that operations make. No call is replayed inside of a mode."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        made = result if isinstance(result, tuple | list) else (result,)
        MADE.extend(each for each in made if isinstance(each, torch.Tensor))
        return result


def noted(make):
    """What a replayed call makes memory with, which notes it."""

    def made(*arguments, **named):
        result = make(*arguments, **named)
        MADE.extend(result if isinstance(result, tuple | list) else (result,))
        return result

    return made


def noting(named):
    """In place of `_Recorder.named`."""

    def name(self, value):
        makes = isinstance(value, torch._ops.OpOverload) or value is torch.empty_strided
        return named(self, noted(value) if makes else value)

    return name


def told(value, tensors, new):
    """An address as (which tensor, where in it), new memory being numbered as it comes; all else as it is."""
    if isinstance(value, tuple | list):
        return tuple(told(each, tensors, new) for each in value)
    if type(value) is int and value > LEAST_ADDRESS:
        for name, tensor in tensors:
            begin = tensor.untyped_storage().data_ptr()
            if begin <= value < begin + tensor.untyped_storage().nbytes():
                return name or new.setdefault(begin, f"new {len(new)}"), value - begin
        return new.setdefault(value, f"new {len(new)}"), 0  # made by what isn't replayed
    return repr(value)


def seen(call, tensors):
    """What the driver got from a call."""
    SEEN.clear(), MADE.clear()
    result = call()
    named, new = [*tensors, *((None, tensor) for tensor in MADE)], {}
    return [*((number, told(got, named, new)) for number, got in SEEN), ("result", returned(result, named, new))]


def returned(value, tensors, new):
    """A result as the driver's arguments are told, with what its tensors look like."""
    if isinstance(value, tuple | list):
        return type(value).__name__, *(returned(each, tensors, new) for each in value)
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return told(value.data_ptr(), tensors, new), value.dtype, tuple(value.shape), value.stride(), value.requires_grad


def expected(call, tensors):
    """The same, launched by Triton, nothing being remembered."""
    launch.COMPILED = launch.REMEMBERS = False
    try:
        with Noted():
            return seen(call, tensors)
    finally:
        launch.COMPILED = launch.REMEMBERS = True


def run(kernel, *arguments, grid, warmup, **named):
    """In place of Triton's."""
    compiled = compiled_for(kernel, arguments, named)
    bound = dict(zip(kernel.arg_names, arguments)) | named
    grid = grid(bound) if callable(grid) else grid
    values = [None if p.is_constexpr else plain(bound[p.name]) for p in kernel.params]
    x, y, z = (*grid, 1, 1)[:3]
    runner, none = compiled.run, (None,) * 5
    values = [part for value in values for part in (apart(value) if hasattr(value, "block_shape") else [value])]
    launcher = inspect.getclosurevars(runner.launch).nonlocals.get("launcher", runner.launch)
    if launch.ONE_LAUNCHER:
        signature = runner.arg_annotations, runner.kernel_signature
        last = *none[:3], None, None, *signature, tuple(values)
        launcher(x, y, z, 5, compiled.function, False, False, compiled.packed_metadata, *last)
    else:
        first = x, y, z, 5, compiled.function, False, False, None, None, compiled.packed_metadata
        launcher(*first, None, None, None, *values)
    return compiled


def apart(descriptor):
    """What the driver gets for a descriptor: the tensor map, sizes and strides."""
    block, shape, strides = (tuple(getattr(descriptor, name)) for name in ("block_shape", "shape", "strides"))
    kind = driver.TMA_DTYPE_DEVICE_TO_HOST[10]
    return ("map", descriptor.base.data_ptr(), 3, 2, kind, block, shape, strides, 0), *shape, *strides


def plain(value):
    """As the driver gets it."""
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    return value.data_ptr() if isinstance(value, torch.Tensor) else value


def memory(*shape, dtype=torch.bfloat16):
    """Aligned as the memory of a GPU is."""
    size = math.prod(shape)
    room = torch.empty(size + 256, dtype=dtype)
    begin = -room.data_ptr() % 256 // room.element_size()
    return room[begin : begin + size].view(shape).copy_(torch.randn(shape))


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
ROWS += [ROWS[0].view(6, 64), ROWS[0][:]]
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
    "attention": [
        HEADS, HEADS, HEADS, [True, False], [None, 0.5, 0.25, 1], [None, 3, (2, 1)], [0.0, 5.0], [None, memory(2)]
    ],
    "decode": [QUERIES, CACHES, CACHES, LENGTHS, TABLES, [None, 0.3, 0.7, 1], [0.0, 3.0], SINKS, [None, 2, 4]],
    "cross entropy": [ROWS, LABELS, COUNTS, [0.0, 2.0], [-100, 0], [True, False]],
    "gradient": [UPSTREAM, ROWS[:2], [True, False]],
    "layernorm": [ROWS, VECTORS, VECTORS, [1e-5, 1, 0.0], [True, False]],
    "layernorm backward": [
        ROWS, ROWS, VECTORS, VECTORS, [torch.randn(6), torch.randn(8)[2:], torch.randn(5), torch.randn(40)],
        [True, False], [True, False], [True, False], [None, 1, 3],
    ],
    "attention backward": [
        [*HEADS, None, HEADS[0][:, :, :1].expand(1, 2, 64, 64)], [None, memory(1, 2, 64, dtype=torch.float32)],
        HEADS, HEADS, [True, False], [None, 2], [True, False],
    ],
    "softmax": [ROWS],
    "swiglu": [[*ROWS[:2], *ROWS[6:8], *ROWS[-2:]]] * 2,
}  # fmt: skip


def attention(q, k, v, causal, scale, window, softcap, sinks):
    return flash_attention.flash_attention(
        q, k, v, causal=causal, scale=scale, window=window, softcap=softcap, sinks=sinks
    )


def decoded(q, k_cache, v_cache, lengths, table, scale, softcap, sinks, num_splits):
    options = dict(scale=scale, softcap=softcap, sinks=sinks, num_splits=num_splits)
    return decode.decode_attention(q, k_cache, v_cache, lengths, block_table=table, **options)


@functools.cache
def results_of(shape):
    """What attention has saved: an argument, and the same in each call."""
    return torch.zeros(shape[:3]), memory(*shape)


def attention_back(do, dlse, q, k, causal, sides, deterministic):
    window = None if sides is None else (sides, sides)
    options = flash_attention.contract(q, k, k, causal, None, window, 0.0, None, True)
    lse, o = results_of(q.shape)
    tensors = q, k, k, None, None, None, o, lse
    return BACKWARD(do, dlse, *tensors, options, deterministic=deterministic)


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


def softmax_of(x):
    return softmax.softmax_forward(x)


def gated(gate, up):
    gated_units.pair_contract(gate, up)
    return swiglu.swiglu_forward(gate, up)


BACKWARD = replay.replayed(flash_attention.attention_backward)
FUNCTIONS = {
    "attention": attention, "decode": decoded, "cross entropy": loss, "gradient": gradient_of_loss,
    "layernorm": normalised, "layernorm backward": normalised_back, "attention backward": attention_back,
    "softmax": softmax_of, "swiglu": gated,
}  # fmt: skip


def wrong_calls(seed, count, names=tuple(CALLS), most=1000):
    """The calls of which the driver got something else, and of each function how many calls were replayed whole. most:
    after so many wrong ones it ends."""
    launch.forget()
    choose, recent, wrong, replays = random.Random(seed), {name: [] for name in CALLS}, [], dict.fromkeys(names, 0)
    for _ in range(count):
        name = choose.choice(names)
        call = [choose.choice(choices) for choices in CALLS[name]]
        if recent[name] and choose.random() < 0.8:
            call = list(choose.choice(recent[name][-6:]))
            place = choose.randrange(len(call))
            call[place] = choose.choice(CALLS[name][place])
        function = lambda call=call, name=name: FUNCTIONS[name](*call)  # noqa: E731
        tensors = [(f"argument {n}", x) for n, x in enumerate(call) if isinstance(x, torch.Tensor)]
        try:
            with torch.no_grad():
                theirs = expected(function, tensors)
                function(), function()
                before = REPLAYS[0]
                ours = seen(function, tensors)
        except (TypeError, ValueError, RuntimeError) as error:  # no such call
            REFUSED.add(f"{name}: {error}"[:80])
            continue
        if REPLAYS[0] == before:
            continue
        replays[name] += 1
        recent[name].append(call)
        if different := differences(ours, theirs):
            wrong.append(f"{name}: {different}")
            if len(wrong) == most:
                break
    return wrong, replays


def differences(ours, theirs):
    """Where two lists of launches differ. Memory has a number of its own in theirs. In ours it may have been given back
    and taken again, so each of their numbers has to stand for one of ours."""
    if len(ours) != len(theirs):
        return [f"{len(ours)} launches instead of {len(theirs)}"]
    numbers: dict = {}
    return [f"{mine} instead of {other}"[:400] for mine, other in zip(ours, theirs) if not alike(mine, other, numbers)]


def alike(mine, other, numbers):
    if isinstance(mine, tuple) and isinstance(other, tuple) and len(mine) == len(other):
        if mine and all(isinstance(each[0], str) and each[0].startswith("new ") for each in (mine, other)):
            return numbers.setdefault(other[0], mine[0]) == mine[0] and mine[1:] == other[1:]
        return all(alike(*each, numbers) for each in zip(mine, other))
    return type(mine) is type(other) and mine == other


REPLAYS = [0]
REFUSED: set = set()


def counted(kind, counter):
    replay_call = kind.__call__

    def call(self, tensors, addresses):
        counter[0] += 1
        return replay_call(self, tensors, addresses)

    return call


class Weighed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, weigh):
        ctx.factor = factor
        return weigh(x, factor), x + 1

    @staticmethod
    def backward(ctx, dy, _):
        return ctx.factor * dy, None, None


def weighed(x, factor):
    return x * factor


def framed(x, factor=2.0, way="whole"):
    """Each way out of a public function."""
    if not (torch.is_grad_enabled() and x.requires_grad):
        return weighed(x, factor)
    weigh = weighed
    if way == "closure":
        weigh = lambda _, factor: x.detach() * factor  # noqa: E731
    if way == "partial":
        weigh = functools.partial(replay.replayed(weighed))
    made = Weighed.apply(x[:] if way == "view" else x, factor, weigh)
    if way == "changed":
        return -made[0]
    return {"one": made[0], "first": made[:1]}.get(way, made)


def wrong_frames():
    """Of calls that autograd records, those that were replayed and shouldn't, or the other way, or give another
    result."""
    function, wrong = replay.replayed(framed), []
    for way in "whole", "one", "first", "partial", "closure", "view", "changed":
        for factor in 2.0, 3.0:
            for call in range(5):
                x = memory(6, 64, dtype=torch.float32).requires_grad_()
                before = FRAMES[0]
                got, expected = function(x, factor, way), framed(x, factor, way)
                replayed, lasts = FRAMES[0] > before, way in ("whole", "one", "first", "partial")
                got, expected = ((each if isinstance(each, tuple) else (each,)) for each in (got, expected))
                same = len(got) == len(expected) and all(map(torch.equal, got, expected)) and got[0].requires_grad
                if same:
                    got[0].sum().backward()
                if not same or not torch.equal(x.grad, torch.full_like(x, -factor if way == "changed" else factor)):
                    wrong.append(f"{way} {factor}: another result")
                if replayed != (lasts and call > 1):
                    wrong.append(f"{way} {factor}, call {call}: {'replayed' if replayed else 'not replayed'}")
                with torch.no_grad():
                    if isinstance(function(x, factor, way), tuple):
                        wrong.append(f"{way} {factor}: autograd recorded without a reason")
    return wrong


FRAMES = [0]


def walk():
    """The first call of every public function, with and without gradients: of which the launches or the results are
    others when it is replayed, how many calls were replayed, and of how many the checks were."""
    wrong, replays, frames, untried = [], 0, 0, {}
    done = set()
    for case in public.calls():
        if str(case.public) in done or case.module.startswith("distributed."):
            continue
        done.add(str(case.public))
        for gradients in (False, True)[: 1 + case.differentiable]:
            try:
                call, tensors = public_call(case, gradients)
                call()
                theirs = expected(call, tensors)
                call(), call()
                before, framed_before = REPLAYS[0], FRAMES[0]
                ours = seen(call, tensors)
            except Exception as error:
                untried[f"{case} {gradients}"] = f"{type(error).__name__}: {error}"[:200]
                continue
            replays += REPLAYS[0] > before
            frames += FRAMES[0] > framed_before
            if REPLAYS[0] == before:
                untried[f"{case} {gradients}"] = "not replayed"
            elif different := differences(ours, theirs):
                wrong.append(f"{case} {gradients}: {different}")
    return wrong, replays, frames, untried


def public_call(case, gradients):
    wrap = case.said.get("wrap", case.public.wrap)
    function, inputs = case.public.function(), case.inputs()
    function = wrap(function) if wrap else function
    inputs = {
        name: value.clone().requires_grad_(gradients and value.is_floating_point()) for name, value in inputs.items()
    }
    wanted = [value for value in inputs.values() if value.requires_grad]
    upstream = []

    def call():
        out = function(**inputs, **case.options)
        if not gradients:
            return out
        results = [each for each in (out if isinstance(out, tuple) else (out,)) if each.requires_grad]
        if not upstream:
            upstream.extend(torch.ones_like(each) for each in results)
        return torch.autograd.grad(results, wanted, upstream, allow_unused=True)

    return call, [(name, value) for name, value in inputs.items() if isinstance(value, torch.Tensor)]


def tuned(self, *arguments, **named):
    """In place of an autotuner's search: its first configuration."""
    config = self.configs[0]
    if config.pre_hook:
        config.pre_hook({**dict(zip(self.arg_names, arguments)), **named, **config.all_kwargs()})
    return self.fn.run(*arguments, **named, **config.all_kwargs())


def kept_alive():
    """Tensors that are still there when nobody should need them: plans may hold none."""
    alive = []
    gc.freeze()  # what was there before need not be looked at each time
    for name, choices in CALLS.items():
        call = [each[0].clone() if isinstance(each[0], torch.Tensor) else each[0] for each in choices]
        references = [weakref.ref(x) for x in call if isinstance(x, torch.Tensor)]
        for _ in range(3):
            FUNCTIONS[name](*call)
        del call
        SEEN.clear(), MADE.clear()
        gc.collect()
        alive += [name for reference in references if reference() is not None]
    return alive


def with_mutants():
    see = replay._see

    def without(*kinds):
        def seen(arguments, key, tensors):
            found: list = []
            see(arguments, found, tensors)
            key += [each for each in found if type(each) not in kinds]

        return seen

    def without_autograd(arguments, key, tensors):
        see(arguments, key, tensors)
        key[:] = [each for each in key if each is not replay._RECORDS]

    def no_offsets(self, tensor, used, address=replay._Recorder.address):
        return address(self, tensor, used).split(" ")[0]

    def only(kept):
        placed = replay._placed

        def some(addresses):
            part = (placed(addresses) or ([], []))[kept]
            return part if any(part) and part != [*range(len(part))] else None

        return some

    always = lambda *_: True  # noqa: E731
    mutants = {
        "geometry ignored": (replay.Kind, "fits", always, ["attention", "layernorm"]),
        "alignment ignored": (replay, "_placed", only(1), ["layernorm", "softmax", "decode"]),
        "whole numbers ignored": (replay, "_see", without(int), ["decode", "layernorm backward"]),
        "fractions ignored": (replay, "_see", without(float), ["attention", "decode"]),
        "flags ignored": (replay, "_see", without(bool, str), ["layernorm", "gradient"]),
        "two of the same memory": (replay, "_placed", only(0), ["swiglu"]),
        "parts begin with the whole": (replay._Recorder, "address", no_offsets, ["decode", "layernorm backward"]),
    }
    found = {}
    for name, (owner, attribute, mutant, names) in mutants.items():
        original = getattr(owner, attribute)
        setattr(owner, attribute, mutant)
        try:
            found[name] = len(wrong_calls(1, 300, names, most=1)[0])
        except Exception as error:  # a call that should have been refused, or a key that can't be
            found[name] = repr(error)
        setattr(owner, attribute, original)
    for name, attribute, mutant in (
        ("what is kept isn't looked at", "_lasting", lambda value: value),
        ("autograd ignored", "_see", without_autograd),
    ):
        original = getattr(replay, attribute)
        setattr(replay, attribute, mutant)
        found[name] = len(wrong_frames())
        setattr(replay, attribute, original)
    return found


def main():
    replay.ALIGNMENT = 64  # as the memory of a CPU is aligned
    for heads in HEADS:
        results_of(heads.shape)
    triton.JITFunction.run, triton.runtime.Autotuner.run = run, tuned
    utils = SimpleNamespace(fill_tma_descriptor=filled, fill_tma_descriptor_tiled=filled)
    triton.runtime.driver.set_active(SimpleNamespace(utils=utils))
    launch.REMEMBERS = launch.COMPILED = True
    launch.current_device, launch.current_stream = lambda: -1, lambda device: 5
    checks.HERE, checks.INTERPRET, device.INTERPRET = "is_cpu", False, False
    card = SimpleNamespace(major=9, minor=0, multi_processor_count=132, shared_memory_per_block_optin=232448)
    torch.cuda.get_device_properties = lambda index: card
    cross_entropy.backward_programs = lambda index: 8
    norms.backward_schedule = layernorm.backward_schedule = lambda *_: (4, 1)
    replay._Recorder.named = noting(replay._Recorder.named)
    replay.Frame.__call__ = counted(replay.Frame, FRAMES)
    replay.Plan.__call__ = counted(replay.Plan, REPLAYS)
    results = {}
    for form in (False, True):
        launch.ONE_LAUNCHER = form
        wrong, replays = wrong_calls(int(form), 500)
        results[f"right {form}"], results[f"replays {form}"] = wrong[:3], replays
    results["walk"] = dict(zip(("wrong", "replays", "frames", "untried"), walk()))
    results["frames"] = wrong_frames()
    results["kept alive"], results["mutants"] = kept_alive(), with_mutants()
    print(json.dumps(results))


main()
