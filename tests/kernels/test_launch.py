"""academy/runtime/launch: a remembered launch runs the kernel that Triton would run, with the same arguments.

Without a GPU the key is compared with Triton's own specialisation, a stand-in being where the driver is. On a GPU
random sequences of launches are compared with plain ones: results, and which compiled kernel ran.
"""

from __future__ import annotations

import random
import threading

import pytest
import torch

from academy.runtime import device, launch
from annotated_examples.fast import (
    cross_entropy,
    decode,
    flash_attention,
    layernorm,
    matmul,
    scaled_matmul,
    softmax,
)
from tests.kernels import harness

import triton  # isort: skip
import triton.language as tl  # isort: skip

gpu = pytest.mark.gpu


def test_the_key_is_never_coarser_than_triton():
    """Random calls, each also bound by Triton; see the script. Mutants of the key have to be noticed."""
    found = harness.without_gpu("launch_without_gpu.py")
    assert found["right"] == [] and found["remembered"] > 1000
    assert found["descriptors"] == [], "a tensor map that Triton would make in another way"
    missed = [name for name, wrong in found["mutants"].items() if not wrong]
    assert not missed, f"no sequence noticed {missed}"


def test_a_replayed_call_makes_the_same_launches():
    """Random calls of launchers, each made again with nothing remembered; see the script."""
    found = harness.without_gpu("replayed_without_gpu.py")
    for form in (False, True):
        assert found[f"right {form}"] == []
        assert all(count > 10 for count in found[f"replays {form}"].values()), found[f"replays {form}"]
    walk = found["walk"]
    assert walk["wrong"] == [] and walk["replays"] > 130 and walk["frames"] > 20
    assert found["frames"] == []
    # Indices that no kernel has written: nothing is computed here.
    untried = {call: why for call, why in walk["untried"].items() if "adamw_" not in call}  # it asks for addresses
    assert all("moe" in call and "IndexError" in why for call, why in untried.items()), untried
    assert found["kept alive"] == [], "a record holds tensors of its first call"
    missed = [name for name, wrong in found["mutants"].items() if not wrong]
    assert not missed, f"no call noticed {missed}"


def test_interpreted_launches_are_plain():
    assert launch.REMEMBERS is False or not device.INTERPRET


def test_an_unknown_version_is_named(monkeypatch):
    """In the head of `academy bench`: Triton's own launch takes longer, and the reader should know why."""
    monkeypatch.setattr(launch, "INTERPRET", False)
    monkeypatch.setattr(launch, "REMEMBERS", False)
    monkeypatch.setattr(launch.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(launch.torch.version, "hip", None)
    monkeypatch.setattr(launch.triton, "__version__", "9.9.9")
    assert "9.9.9" in launch.describe() and launch.VERIFIED[0] in launch.describe()
    monkeypatch.setattr(launch, "REMEMBERS", True)
    assert launch.describe() == "remembered"


@triton.jit
def scaled_kernel(
    x_ptr, y_ptr, out_ptr, n, stride, scale, BLOCK: tl.constexpr, NEGATE: tl.constexpr
):  # fmt: skip
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs * stride, mask=mask, other=0.0).to(tl.float32) * scale
    if y_ptr is not None:
        x += tl.load(y_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    if NEGATE:
        x = -x
    tl.store(out_ptr + offs, x, mask=mask)


DTYPES = torch.float32, torch.float16, torch.bfloat16


def random_calls(choose: random.Random, count: int):
    """Arguments of launches of `scaled_kernel`, put together from few enough pieces that most kinds come again."""

    def some(number, make):
        return [make() for _ in range(number)]

    tensors = some(4, lambda: (choose.choice(DTYPES), choose.choice([0, 1, 8, 16])))
    others = [None, *some(3, lambda: (choose.choice(DTYPES), choose.choice([0, 0, 3, 8]), choose.random() < 0.3))]
    sizes = some(4, lambda: (choose.choice([1, 16, 17, 200, 256]), choose.choice([1, 2, 16, 17])))
    scales = some(3, lambda: choose.choice([1, 2, 1.0, 0.5, 16, True]))
    flags = [True, False]
    for _ in range(count):
        (dtype, begin), other, (n, stride) = choose.choice(tensors), choose.choice(others), choose.choice(sizes)
        x, y = torch.randn(begin + n * stride, device=device.DEVICE).to(dtype)[begin:], None
        if other is not None:
            y = torch.randn(other[1] + n, device=device.DEVICE).to(other[0])[other[1] :]
            y = torch.nn.Parameter(y) if other[2] else y
        constants = dict(BLOCK=128, NEGATE=choose.choice(flags), num_warps=choose.choice([1, 4]))
        grid = choose.choice([(-(-n // 128),), lambda a: (-(-a["n"] // a["BLOCK"]),)])
        yield grid, x, y, (n, stride, choose.choice(scales)), constants


def compare(choose: random.Random, count: int) -> int:
    """How many of `count` random launches were remembered; each has to be what a plain one is."""
    remembered = 0
    for grid, x, y, numbers, constants in random_calls(choose, count):
        out, expected = (torch.full((numbers[0],), 7.0, device=x.device, dtype=x.dtype) for _ in range(2))
        before = len(launch._CALLS)
        ran = launch.launch(scaled_kernel, grid, (x, y, out), numbers, **constants)
        remembered += len(launch._CALLS) == before
        plain = scaled_kernel[grid](x, y, expected, *numbers, **constants)
        assert ran is plain, (numbers, constants)
        assert torch.equal(out, expected), (numbers, constants)
    return remembered


@gpu
@pytest.mark.parametrize("seed", range(3))
def test_random_launches(seed):
    launch.forget()
    assert launch.REMEMBERS == (triton.__version__ in launch.VERIFIED)
    remembered = compare(random.Random(seed), 400)
    assert remembered > 50 if launch.REMEMBERS else remembered == 400


@triton.jit
def tuples_kernel(x, other, out, N, scale, BLOCK: tl.constexpr):
    x_ptr, stride_xm, stride_xn = x
    other_ptr, other_strides = other
    out_ptr, stride_om, stride_on = out
    m, n = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    value = tl.load(x_ptr + m * stride_xm + n * stride_xn, mask=n < N, other=0.0).to(tl.float32) * scale
    if other_ptr is not None:
        stride_m, stride_n = other_strides
        value += tl.load(other_ptr + m * stride_m + n * stride_n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + m * stride_om + n * stride_on, value, mask=n < N)


def some_matrix(choose, M, N):
    matrix = torch.randn(M, choose.choice([N, N + 1, N + 16]), device=device.DEVICE).to(choose.choice(DTYPES))[:, -N:]
    kind = choose.choice(["rows", "columns", "every other"])
    if kind == "columns":
        return matrix.T.contiguous().T
    return matrix.repeat_interleave(2, dim=1)[:, ::2] if kind == "every other" else matrix


def compare_tuples(choose: random.Random, count: int) -> int:
    """As `compare`, for tensors that arrive as tuples, plain and nested."""
    remembered, matrices = 0, [some_matrix(choose, 3, N) for N in (1, 16, 17) for _ in range(2)]
    for _ in range(count):
        x = choose.choice(matrices)
        N, fitting = x.shape[1], [m for m in matrices if m.shape == x.shape]
        other = choose.choice([(None, (0, 1)), (None, None), *((m, m.stride()) for m in fitting)])
        out = torch.full_like(choose.choice(fitting), 7.0)
        expected = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=out.device)
        numbers = N, choose.choice([1, 2.5])
        tensors = (x, *x.stride()), other
        before = len(launch._CALLS)
        ran = launch.launch(tuples_kernel, (3,), (*tensors, (out, *out.stride())), numbers, BLOCK=32)
        remembered += len(launch._CALLS) == before
        plain = tuples_kernel[(3,)](*tensors, (expected, *expected.stride()), *numbers, BLOCK=32)
        assert ran is plain and torch.equal(out, expected), (x.stride(), numbers)
    return remembered


def test_launches_with_tuples_interpreted_too():
    compare_tuples(random.Random(0), 4)


@gpu
@pytest.mark.parametrize("seed", range(3))
def test_random_launches_with_tuples(seed):
    launch.forget()
    remembered = compare_tuples(random.Random(seed), 300)
    assert remembered > 100 if launch.REMEMBERS else remembered == 300


@gpu
def test_a_kept_launch_is_the_same_launch():
    launch.forget()
    kept = launch.Launch(scaled_kernel, (1,), (64, 1, 2.0), BLOCK=64, NEGATE=True)
    for dtype in (*DTYPES, *DTYPES):
        x = torch.randn(80, device="cuda").to(dtype)
        for begin in (0, 1, 8, 0):
            out, expected = torch.empty(64, device="cuda"), torch.empty(64, device="cuda")
            ran = kept(x[begin:], None, out)
            plain = scaled_kernel[(1,)](x[begin:], None, expected, 64, 1, 2.0, BLOCK=64, NEGATE=True)
            assert ran is plain and torch.equal(out, expected)


def on_two_streams(work, seeds):
    """`work`, in two threads at the same time, each with a stream of its own."""
    failed = []

    def one(seed):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                work(random.Random(seed))
                torch.cuda.current_stream().synchronize()
        except BaseException as error:
            failed.append(error)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=one, args=(seed,)) for seed in seeds]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failed


@gpu
def test_random_launches_of_two_threads_on_two_streams():
    launch.forget()
    on_two_streams(lambda choose: compare(choose, 150), (10, 11))


@gpu
def test_each_launch_goes_to_the_current_stream():
    """The second stream waits for an event of the first; a launch on the wrong one would read too early."""
    x, out = torch.ones(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    numbers, constants = (x.numel(), 1, 2.0), dict(BLOCK=1024, NEGATE=False)
    for repeat in range(20):
        stream = streams[repeat % 2]
        stream.wait_stream(streams[1 - repeat % 2])
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000)
            launch.launch(scaled_kernel, (1024,), (x, None, out), numbers, **constants)
            x, out = out, x
    torch.cuda.synchronize()
    assert torch.equal(x, torch.full_like(x, 2.0**20))


def remembered_call(x):
    out, numbers = torch.zeros_like(x), (x.numel(), 1, 3.0)
    return lambda: (launch.launch(scaled_kernel, (128,), (x, None, out), numbers, BLOCK=128, NEGATE=False), out)[1]


def prepared_call(x):
    labels = torch.randint(256, (64,), device="cuda")
    return lambda: cross_entropy.cross_entropy_loss(layernorm.layernorm(x), labels)


@gpu
@pytest.mark.parametrize("made", [remembered_call, prepared_call])
def test_a_launch_in_a_cuda_graph(made):
    x = torch.randn(64, 256, device="cuda")
    run = made(x)
    run(), run(), run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    x.copy_(torch.randn(64, 256, device="cuda"))
    graph.replay()
    assert torch.equal(captured.clone(), run())


@gpu
def test_prepared_launches_of_two_threads_on_two_streams():
    shared = [torch.randn(n, 256, device="cuda") for n in (3, 64, 65)]

    def work(choose):
        for _ in range(300):
            x = choose.choice(shared)
            got, expected = layernorm.layernorm(x), torch.nn.functional.layer_norm(x, (256,))
            torch.cuda.current_stream().synchronize()
            assert torch.allclose(got, expected, atol=1e-4), tuple(x.shape)

    on_two_streams(work, (1, 2))


def test_a_call_is_repeated_where_only_the_context_was_missing(monkeypatch):
    """A thread's first call may be one that needs a context, which it doesn't make. No other error is tried again."""
    answers, asked = [RuntimeError("[CUDA]: invalid device context"), 5, RuntimeError("out of memory"), 6], []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: asked.append(len(answers)))

    def call():
        answer = answers.pop(0)
        if isinstance(answer, RuntimeError):
            raise answer
        return answer

    assert launch.with_context(call) == 5
    with pytest.raises(RuntimeError, match="out of memory"):
        launch.with_context(call)
    assert launch.with_context(call) == 6
    assert asked == [1 + 2]


@gpu
@pytest.mark.parametrize("remembered", [True, False])
def test_a_thread_that_has_done_nothing_yet_makes_tensor_maps(remembered, monkeypatch):
    """A backward pass has a thread of its own, and its first call may be a kernel with descriptors."""
    monkeypatch.setattr(launch, "REMEMBERS", remembered)
    first, second = ([torch.randn(1, 4, 256, 64, device="cuda").half() for _ in range(3)] for _ in range(2))
    expected = flash_attention.flash_attention(*second)
    flash_attention.flash_attention(*first)
    torch.cuda.synchronize()
    second, got = [x.clone() for x in second], []
    thread = threading.Thread(target=lambda: got.append(flash_attention.flash_attention(*second)))
    thread.start()
    thread.join()
    assert torch.equal(got[0], expected)


@gpu
def test_hooks_see_every_launch():
    seen, x = [], torch.randn(64, device="cuda")
    run = lambda: launch.launch(scaled_kernel, (1,), (x, None, x), (64, 1, 1.0), BLOCK=64, NEGATE=True)  # noqa: E731
    run(), run()
    hook = lambda metadata: seen.append(metadata.get()["name"])  # noqa: E731
    triton.knobs.runtime.launch_enter_hook.add(hook)
    try:
        run(), run()
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(hook)
    assert seen == ["scaled_kernel"] * 2
    seen.clear(), layernorm.layernorm(x[None]), layernorm.layernorm(x[None])
    triton.knobs.runtime.launch_enter_hook.add(hook)
    try:
        layernorm.layernorm(x[None])
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(hook)
    assert seen == ["layernorm_forward_kernel"]
    count = []
    scaled_kernel.pre_run_hooks.append(lambda *_, **__: count.append(1))
    try:
        run(), run()
    finally:
        scaled_kernel.pre_run_hooks.clear()
    assert count == [1, 1]


@gpu
def test_what_triton_refuses_is_refused():
    x, out = torch.randn(64, device="cuda"), torch.zeros(64, device="cuda")
    for _ in range(2):
        launch.launch(scaled_kernel, (1,), (x, None, out), (64, 1, 1.0), BLOCK=64, NEGATE=True)
        with pytest.raises(ValueError, match="cpu tensor"):
            launch.launch(scaled_kernel, (1,), (x.cpu(), None, out), (64, 1, 1.0), BLOCK=64, NEGATE=True)
        with pytest.raises(TypeError, match="missing"):
            launch.launch(scaled_kernel, (1,), (x, None, out), (64, 1, 1.0), BLOCK=64)


@gpu
def test_a_second_call_asks_triton_for_nothing(monkeypatch):
    x, weight = torch.randn(64, 256, device="cuda", requires_grad=True), torch.randn(256, device="cuda")
    a, heads = torch.randn(64, 64, device="cuda").half(), torch.randn(1, 2, 64, 64, device="cuda").half()
    labels, lengths = torch.zeros(64, dtype=torch.int64, device="cuda"), torch.ones(1, dtype=torch.int32, device="cuda")
    codes, scale = torch.ones(128, 64, device="cuda").to(torch.float8_e4m3fn), torch.ones((), device="cuda")

    def calls():
        if device.has("gluon", 0):  # its promoted product is a Gluon kernel
            scaled_matmul.scaled_matmul(codes, codes.t(), scale, scale, recipe="tensor")
        layernorm.layernorm(x, weight).sum().backward()
        cross_entropy.cross_entropy_loss(x, labels).backward()
        flash_attention.flash_attention(heads, heads, heads)
        decode.decode_attention(heads[:, :, 0], heads.transpose(1, 2), heads.transpose(1, 2), lengths)
        softmax.softmax(x.detach())
        matmul.matmul(a, a)

    calls(), calls(), calls()
    asked, run = [], triton.JITFunction.run
    monkeypatch.setattr(triton.JITFunction, "run", lambda self, *a, **k: (asked.append(self), run(self, *a, **k))[1])
    calls()
    assert bool(asked) == (not launch.REMEMBERS)


@gpu
def test_many_kinds_are_forgotten_in_time(monkeypatch):
    launch.forget()
    monkeypatch.setattr(launch, "MOST", 5)
    x = torch.randn(64, device="cuda")
    for n in range(1, 20):
        launch.launch(scaled_kernel, (1,), (x, None, x), (n, 1, 1.0), BLOCK=64, NEGATE=False)
    assert len(launch._CALLS) <= 5
