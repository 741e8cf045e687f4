"""Sentences of pages and notes about numbers that nobody quotes from a run: each is computed here."""

import functools
import inspect
import json
import math
import os
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import triton

from academy.runtime.device import DEVICE
from academy.book import layout
from academy.results.figures import passes
from annotated_examples.attention.causal_attention import causal_attention
from annotated_examples.classics.layernorm import layernorm
from annotated_examples.classics.rmsnorm import rmsnorm
from annotated_examples.fast import flash_attention
from annotated_examples.recurrences.l2_normalize import l2_normalize
from tests import python
from tests.kernels.harness import ROOT

#: What says that the time is that of the bytes. A number that says how near it comes must stand in the same paragraph.
AT_THE_LIMIT = re.compile(r"memory is the limit|(?<!shared )memory decides|the floor is the time of a copy")
MEASURED = re.compile(r"\[\[bench: [^\]]*(share|ms)\]\]")


def said(path):
    text = (ROOT / path).read_text("utf-8")
    return " ".join(re.sub(r"\n\s*# ?", "\n", text).split())


def unmeasured(text):
    """Paragraphs that say that memory is the limit, and not how near the kernel comes to it."""
    paragraphs = re.split(r"\n\s*#?\s*\n", text)
    found = [p for p in paragraphs if AT_THE_LIMIT.search(" ".join(p.split())) and not MEASURED.search(p)]
    return [p for p in found if not re.search(r"with few rows|up to about", " ".join(p.split()))]


@pytest.mark.parametrize("path", layout.kernels(ROOT), ids=lambda path: layout.module_name(ROOT, path))
def test_a_limit_that_is_claimed_stands_beside_what_is_reached(path):
    assert unmeasured(path.read_text("utf-8")) == []


def test_a_limit_without_its_number_is_noticed():
    assert unmeasured("One\n\nso memory is the\nlimit.\n\nTwo") == ["so memory is the\nlimit."]
    assert unmeasured("so memory is the limit: [[bench: a/2x2/forward/share]]") == []


#: What pages have said too sharply, and what is true.
OVERSTATED = {
    r"wait for each other\W+(once|twice|(two|three|four) times)": "a reduction over warps is several barriers",
    r"last bits (change|differ)": "atomics may add in another order, and whole numbers don't mind",
    r"[Nn]othing is rounded on the way": "float32 rounds, too: to what?",
    r"(whose order|order that|order in which [^.]+) changes": "atomics may add in another order",
    r"in the register, (often|most)|(are|is) often 0\b": "masked lanes are 0 on NVIDIA's cards so far",
}


@pytest.mark.parametrize("pattern", OVERSTATED)
def test_no_page_says_more_than_is_true(pattern):
    folders = ("annotated_examples", "backprop_math", "docs", "exercises")
    files = [path for folder in folders for end in ("py", "md") for path in (ROOT / folder).rglob(f"*.{end}")]
    found = [path.relative_to(ROOT).as_posix() for path in files if re.search(pattern, said(path))]
    assert files and not found, OVERSTATED[pattern]


def test_quotients_by_the_product_of_gates_overflow_before_they_are_nan():
    gates, x = torch.full((400,), 0.5), torch.ones(400)
    product = gates.cumprod(0)
    h = product * (x / product).cumsum(0)
    infinite, nan = (1 + int(kind(h).nonzero()[0]) for kind in (torch.isinf, torch.isnan))
    text = f"infinite from the {infinite}th token on, where the sum of the quotients leaves float32, "
    text += f"and NaN from the {nan}th on"
    assert text in said("annotated_examples/recurrences/linear_recurrence.py")


def test_how_many_codes_a_reciprocal_changes():
    torch.manual_seed(0)
    changed = {}
    for dtype in (torch.bfloat16, torch.float32):
        for code, largest in ((torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)):
            x = torch.randn(4096, 1024).to(dtype).float()
            scale = x.abs().amax(1, keepdim=True) / largest
            one, other = ((y.to(code).view(torch.uint8)) for y in (x / scale, x * (1 / scale)))
            changed[dtype, code] = (one != other).double().mean().item() * 1e6
    for (dtype, _), count in changed.items():
        assert 50 < count < 1000 if dtype == torch.bfloat16 else count < 10
    wording = "of a million bfloat16 numbers several hundred get another code"
    assert wording in said("annotated_examples/fp8/quantize.py")


def test_rows_that_norms_make_nan_or_zero():
    zeros = torch.zeros(1, 8)
    assert l2_normalize(zeros, eps=0.0).isnan().all() and (l2_normalize(zeros) == 0).all()
    for length, result in ((1.8e19, 1.0), (1.9e19, 0.0)):
        for numbers in (1, 100):  # the sum overflows where no square does
            row = torch.full((1, numbers), length / math.sqrt(numbers))
            assert l2_normalize(row).norm().item() == pytest.approx(result)
            for norm in (rmsnorm, lambda x: F.rms_norm(x, x.shape[1:])):
                assert norm(row).norm().item() == pytest.approx(result * math.sqrt(numbers))
    for path in ("recurrences/l2_normalize.py", "classics/rmsnorm.py"):
        assert r"a row longer than $1.8 \cdot 10^{19}$ becomes 0" in said(f"annotated_examples/{path}")


def test_a_row_of_huge_deviations_is_layernorms_bias():
    row, weight, bias = 1e19 * torch.tensor([[-1.0, 1.0] * 8]), torch.ones(16), torch.arange(16.0)
    for norm in (layernorm, lambda x, *parameters: F.layer_norm(x, (16,), *parameters)):
        assert torch.equal(norm(row, weight, bias), bias[None])


def test_a_rounded_result_loses_the_sign_of_a_tiny_sum():
    from annotated_examples.classics.matmul import matmul

    a = torch.full((16, 16), 2.0**-16, dtype=torch.float16)
    c = matmul(a, a, "relu")
    assert (a.double() @ a.double() > 0).all() and (c == 0).all()
    assert "Rounding makes one exception" in said("backprop_math/matmul.md")
    for path in ("tutorials/matmul_grouped.py", "common/activations.py"):
        text = said(f"annotated_examples/{path}")
        assert re.search(r"positive where \$?Z\$? is, unless it was rounded to 0", text)


def millions_of_weights():
    from annotated_examples.capstone.gpt import GPT, GPT_124M

    with torch.device("meta"):
        return round(sum(weight.numel() for weight in GPT(GPT_124M, None).parameters()) / 1e6)


def rows_of(mixer, name):
    """Of the first weight of a mixer of the large model, and how many numbers its input has."""
    from annotated_examples.capstone import options

    with torch.device("meta"):
        config = options.dataclasses.replace(options.GPT_124M, mixer=mixer)
        return tuple(getattr(options.MIXERS[mixer](config), name).shape)


def balance_of_two():
    """The balancing loss where all tokens go to the same two of eight experts."""
    from annotated_examples.moe.router import load_balancing_loss_reference

    logits = torch.tensor([[50.0, 50.0, *[0.0] * 6]] * 4)
    return round(load_balancing_loss_reference(logits, torch.tensor([[0, 1]] * 4)).item(), 3)


def lines_of_a_solution(path):
    parts = re.findall(r"# <<<\n(.*?)\n *# >>>", (ROOT / path).read_text("utf-8"), re.S)
    return sum(len(part.splitlines()) for part in parts)


@pytest.mark.parametrize(
    ("path", "wording", "compute"),
    [
        ("annotated_examples/capstone/gpt.py", "With {} million parameters", millions_of_weights),
        ("exercises/model/logits.py", "All the model's {} million weights", millions_of_weights),
        ("annotated_examples/capstone/options.py", "and {:g} where two get everything", balance_of_two),
        (
            "annotated_examples/capstone/options.py",
            "the weights are {0[0][0]} x {0[0][1]} and {0[1][0]} x {0[1][1]}",
            lambda: [rows_of("attention", name) for name in ("qkv", "out")],
        ),
        (
            "annotated_examples/capstone/options.py",
            "{0[0]} rows of the first product in place of {0[1]}",
            lambda: [rows_of("latent", "project")[0], rows_of("attention", "qkv")[0]],
        ),
        (
            "annotated_examples/capstone/options.py",
            "a gate for each of the {0[1]} channels of each of the {0[0]} heads",
            lambda: rows_of("kda", "step"),
        ),
        (
            "exercises/sampling/infinite_noise.py",
            "Once in {:.0f} million it is minus infinity",
            lambda: 2**32 / (torch.arange(2**32 - 999, 2**32).float() == 2**32).sum().item() / 1e6,
        ),
        (
            "annotated_examples/common/exponential.py",
            "half a unit in the last place of a float16 is a part in {:.0f} or more",
            lambda: 2 / (torch.finfo(torch.float16).eps / 2),
        ),
        (
            "annotated_examples/common/exponential.py",
            "the result is off by up to {:.0f} · 10⁻⁶ of itself",
            lambda: 2.0 ** (6 - 23) / 2 * math.log(2) * 1e6,
        ),
        (
            "exercises/own_operation/log_softmax.py",
            "The whole operation is {} lines of yours",
            lambda: lines_of_a_solution("exercises/own_operation/log_softmax.py"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" in value else "",
)
def test_a_number_in_a_sentence_is_what_comes_out(path, wording, compute):
    assert wording.format(compute()) in said(path)


def test_what_a_nan_does_to_triton_s_sort(tmp_path):
    """In Triton's interpreter, as released: at each place of eight numbers."""
    code = """
import torch, triton, triton.language as tl
@triton.jit
def kernel(x_ptr, y_ptr):
    offs = tl.arange(0, 8)
    tl.store(y_ptr + offs, tl.sort(tl.load(x_ptr + offs), descending=True))
for place in range(8):
    x, y = torch.tensor([3.0, 1, 7, 5, 2, 8, 6, 4]), torch.empty(8)
    x[place] = float("nan")
    kernel[(1,)](x, y)
    print(int(y.isnan().sum()), len(set(y.tolist())))
"""
    (tmp_path / "sort.py").write_text(code)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = python.run([tmp_path / "sort.py"], env=environment, timeout=100)
    assert run.returncode == 0, run.stderr[-2000:]
    found = [tuple(map(int, line.split())) for line in run.stdout.splitlines()]
    assert any(nans == 8 for nans, _ in found), "all of them NaN"
    assert any(nans == 0 and different < 8 for nans, different in found), "vanished, and a neighbour twice"


def test_do_bench_counts_clearing_into_its_estimate():
    estimate = inspect.getsource(triton.testing.do_bench).split("# compute number of warmup")[0]
    assert "clear_cache(cache)\n        fn()" in estimate
    assert "each with the clearing of step 4" in said("docs/guides/measuring.md")
    assert callable(triton.testing.do_bench_cudagraph)


def replaced_by_attention(scores):
    """Whether Inductor makes one operation of softmax(scores(q, k)) @ v."""
    from torch._inductor.compile_fx import compile_fx  # which takes seconds

    graphs = []

    def backend(graph, inputs):
        return compile_fx(graph, inputs, inner_compile=lambda graph, *_, **__: graphs.append(graph) or graph.forward)

    q, k, v = torch.randn(3, 2, 4, 8, 16)
    torch.compile(lambda q, k, v: torch.softmax(scores(q, k), -1) @ v, backend=backend)(q, k, v)
    return "scaled_dot_product" in str(graphs[0].code)


def test_what_inductor_finds_and_what_it_does_not():
    scores = lambda q, k: q @ k.transpose(-2, -1) / math.sqrt(16)  # noqa: E731
    assert replaced_by_attention(scores)
    assert not replaced_by_attention(lambda q, k: 20 * torch.tanh(scores(q, k) / 20))
    inductor = torch._inductor.config
    assert inductor.online_softmax and inductor.triton.mix_order_reduction and not inductor.auto_chunker.enable


def test_how_far_cudnn_is_ahead_and_behind():
    record = json.loads((ROOT / "benchmarks/results/nvidia-h200/flash_attention.json").read_text("utf-8"))
    cases = [case for case in record["cases"] if case["variant"] == "causal"]
    times = {tuple(case["shape"]): case["passes"]["forward"]["providers"] for case in cases}
    ours = {shape: each["fast"]["ms"] / each["cuDNN (SDPA)"]["ms"] for shape, each in times.items()}
    short = [ratio for (*_, tokens, _), ratio in ours.items() if tokens <= 2048]
    long = [ratio for (*_, tokens, _), ratio in ours.items() if tokens > 2048]
    assert min(short) > 1 and 0.20 < 1 - 1 / max(short) < 0.21 and max(long) < 1.0 and 1.12 < 1 / min(long) < 1.13
    wording = "up to 2048 tokens, by up to 21 % of the time; with more tokens it takes up to 13 % longer"
    assert wording in said("docs/guides/should-you-write-a-kernel.md")


def test_the_selection_and_not_the_launches_takes_the_routers_time():
    """With the same launches, more experts take longer, and by more than their bytes."""
    record = json.loads((ROOT / "benchmarks/results/nvidia-h200/router.json").read_text("utf-8"))
    times = {tuple(each.case["shape"]): each for each in passes(record["cases"], "forward")}
    few, many = times[8192, 64], times[8192, 256]
    assert many.ms() - few.ms() > 3 * (many.entry["limit_ms"] - few.entry["limit_ms"])


def goes_below_triton(case):
    B, H, _, tokens, _ = case["shape"]
    return B * H * tokens**2 >= flash_attention.WORTHWHILE


@pytest.mark.parametrize(
    ("operation", "pass_", "page", "taken"),
    [
        ("scaled_matmul", "forward", "fast/scaled_matmul", lambda case: True),
        ("flash_attention", "backward", "gluon/flash_attention_backward", goes_below_triton),
    ],
)
def test_where_a_fast_kernel_falls_behind(operation, pass_, page, taken):
    """Each case in which a peer is more than 5 % ahead has its time on the page."""
    record = json.loads((ROOT / f"benchmarks/results/nvidia-h200/{operation}.json").read_text("utf-8"))
    text = (ROOT / f"annotated_examples/{page}.py").read_text("utf-8")
    behind = []
    for case in filter(taken, record["cases"]):
        times = {name: each["ms"] for name, each in case["passes"][pass_]["providers"].items() if name != "lesson"}
        if times.pop("fast") > 1.05 * min(times.values()):
            behind.append(f"{operation}:{case['variant']}/{'x'.join(map(str, case['shape']))}/{pass_}/ms")
    assert behind and all(f"[[bench: {each}]]" in text for each in behind)


def test_logits_that_a_training_step_of_transformers_holds():
    utils = pytest.importorskip("transformers.loss.loss_utils")
    assert "logits = logits.float()" in inspect.getsource(utils.ForCausalLMLoss)
    numbers = 8192 * 128256
    wording = (
        f"{numbers * 2 / 1e9:.0f} GB in bfloat16, and `transformers` makes {numbers * 4 / 1e9:.0f} GB in float32 of"
    )
    for path in ("annotated_examples/integrations/huggingface.py", "docs/guides/huggingface.md"):
        assert wording in said(path) and "Both have a gradient, as large again" in said(path)


class InPlace(torch.autograd.Function):
    """Changes what it has saved, and changes it back."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sum(-1)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        x.sub_(0.3).add_(0.3)
        return dy[..., None].expand(x.shape)


def test_what_writing_to_saved_logits_does():
    x = torch.randn(4, 1000, requires_grad=True)
    logits = x * 1
    before = logits.detach().clone()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        ((logits * logits).sum() + InPlace.apply(logits).sum()).backward()
    assert 0 < (logits.detach() - before).abs().max() < 1e-6
    assert "its backward pass raises an error" in said("annotated_examples/distributed/vocab_parallel_entropy.py")


def positive_codes(bits):
    if bits == 4:
        return torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    return torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).double()


def rounded(x, codes):
    """To the nearest code; what is beyond the largest becomes the largest."""
    return codes[torch.bucketize(x.abs(), (codes[1:] + codes[:-1]) / 2)] * x.sign()


def test_how_much_rounding_to_four_and_eight_bits_loses():
    text = said("backprop_math/microscaling.md")
    for bits, least, most in ((4, 1.0, 1 / 5), (8, 2.0**-6, 1 / 17)):
        codes = positive_codes(bits)
        x = torch.linspace(least, codes[-1].item(), 1_000_001, dtype=torch.float64)
        assert ((rounded(x, codes) - x) / x).abs().max().item() == pytest.approx(most, abs=1e-4)
    assert r"$\rho$ is at most a fifth" in text and r"$\sigma$, less than a sixteenth" in text
    x = torch.randn(4096, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    largest, ratios = x.abs().amax(1, keepdim=True), {}
    for bits in (4, 8):
        codes = positive_codes(bits)
        exponent = torch.floor(torch.log2(codes[-1]))
        rules = torch.floor(torch.log2(largest)) - exponent, torch.ceil(torch.log2(largest / codes[-1]))
        first, second = ((rounded(x / 2**k, codes) * 2**k - x).square().mean().sqrt() for k in rules)
        ratios[bits] = (second / first).item()
    assert ratios[4] == pytest.approx(1, abs=0.02) and ratios[8] == pytest.approx(0.9, abs=0.02)
    assert "nearly the same in four bits, and smaller by a tenth for the second rule in `e4m3`" in text


def test_where_rows_of_4097_begin():
    aligned = sum(row * 4097 * 2 % 16 == 0 for row in range(800))
    assert aligned == 100 and "only every eighth begins at a multiple of 16" in said(
        "annotated_examples/fast/rmsnorm.py"
    )


def test_what_floats_do_to_policy_losses():
    text = said("annotated_examples/classics/policy_loss.py")
    assert torch.tensor(88.7).exp().isfinite() and torch.tensor(88.73).exp().isinf() and "e^{88.7}" in text
    d = torch.linspace(-1e-3, 1e-3, 200_001)
    true = torch.expm1(d.double()) - d.double()
    found = (d.exp() - 1 - d).double()
    assert ((found - true).abs() > 0.15 * true).double().mean() > 0.5
    assert (found < 0).double().mean().item() == pytest.approx(0.1, abs=0.02)
    assert "more than 15 % half of the time, and negative for one $d$ in ten" in text
    assert "more than 15 % half of the time" in said("exercises/operations/never_negative.py")


def test_how_far_a_bfloat16_moves():
    codes = torch.arange(0x3F00, 0x4001, dtype=torch.int16).view(torch.bfloat16).double()
    up, down = (codes[1:] - codes[:-1]) / codes[:-1], (codes[1:] - codes[:-1]) / codes[1:]
    least = min(up.min().item(), down.min().item())
    text = said("annotated_examples/optimizers/adamw.py")
    assert f"moves by at least {math.floor(least * 1e4) / 100} % of itself or not at all" in text
    shared = said("annotated_examples/common/optimizers.py")
    assert f"by less than {math.floor(least / 2 * 1e4) / 100} % of its size stays" in shared
    assert torch.optim.AdamW([torch.zeros(1)], fused=True).defaults["fused"]
    one = torch.tensor(1.0)
    near = (one - torch.nextafter(one, torch.tensor(0.0))).item() / 2
    assert f"{near * 1e8:.0f} \\cdot 10^{{-8}}" in text and round(near / 0.001 * 1e5) == 3


def test_what_latent_attention_counts():
    H, D, E, V, R = 128, 128, 64, 128, 512
    text, derivation = said("annotated_examples/attention/mla.py"), said("backprop_math/mla.md")
    kept, latent = 2 * H * (D + E + V), 2 * (R + E)
    assert f"{kept:,} bytes in bfloat16" in text and f"{latent} bytes, {kept // latent} times fewer" in text
    assert f"{2 * (D + E + V)} operations" in text and (D + E) / D == 1.5 and "keys half as large again" in text
    once, each = 2 * H * R * (D + V), (2 * H * (R + E + R), 2 * H * (D + E + V))
    assert f"costs {each[0]:,} instead of {each[1]:,}" in derivation
    assert f"from {-(-once // (each[0] - each[1]))} queries a token on it is cheaper" in derivation
    assert derivation.count(f"{once / 1e6:.1f} million") == 2, "to decompress a token, and to absorb a query and expand"


def test_a_nan_of_a_value_reaches_queries_that_do_not_see_it():
    q, k, v = (torch.randn(1, 1, 100, 32, device=DEVICE) for _ in range(3))
    v[0, 0, 50] = float("nan")
    for function in (causal_attention, functools.partial(flash_attention.flash_attention, causal=True)):
        first = int(function(q, k, v).isnan().any(-1).nonzero()[0, -1])
        assert 0 < first < 50
    assert "of a value also some that don't" in said("docs/differences-from-pytorch.md")


def test_what_a_log_sum_exp_loses_at_ten_thousand():
    at = torch.linspace(0, 12, 20_001, dtype=torch.float64)
    lost = ((10_000 + at).float().double() - (10_000 + at)).abs().max().item()
    for path in ("annotated_examples/classics/token_logprobs.py", "backprop_math/token_logprobs.md"):
        assert f"off by up to {lost:.4f}" in said(path)


def test_weights_for_one_convention_of_rope_fit_the_other_in_another_order():
    from annotated_examples.classics.rope import rope_reference

    q = torch.randn(1, 1, 5, 8)
    cos, sin = torch.rand(2, 5, 4)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    ((half, _), (pairs, _)) = (rope_reference(x, x, cos, sin, interleaved=i) for x, i in ((q[..., order], 0), (q, 1)))
    assert torch.equal(half, pairs[..., order])
    assert "unless the features of their queries and keys are put in the other order" in said(
        "annotated_examples/classics/rope.py"
    )


class Multiplied(torch.autograd.Function):
    """A product whose gradients are what a function makes of the right ones."""

    @staticmethod
    def forward(ctx, a, b, changed):
        ctx.save_for_backward(a, b)
        ctx.changed = changed
        return a * b

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        return ctx.changed(dy * b, dy * a)


def test_what_autograd_notices_of_wrong_gradients():
    a, b = (torch.tensor(values, requires_grad=True) for values in ([2.0, 3.0], [5.0, 7.0]))
    Multiplied.apply(a, b, lambda da, db: (db, da, None)).sum().backward()
    assert torch.equal(a.grad, a) and torch.equal(b.grad, b), "swapped, and nobody says so"
    for wrong in (lambda da, db: (da, db), lambda da, db: (da[:1], db, None)):
        with pytest.raises(RuntimeError, match="number of gradients|expected shape"):
            Multiplied.apply(a, b, wrong).sum().backward()
    a.grad = None
    Multiplied.apply(a, b, lambda da, db: (torch.stack([da, da]), db, None)).sum().backward()
    assert torch.equal(a.grad, 2 * b), "too large, and nobody says so"
    assert "one to which it does is summed down without a word" in said("docs/guides/from-pytorch.md")
    assert "two gradients of one shape that are swapped are not" in said("docs/guides/from-pytorch.md")


def test_a_launch_asks_whether_the_current_card_can_reach_a_tensor():
    """Not whether it lies there: the memory of a card that is its peer passes."""
    nvidia = Path(triton.__file__).with_name("backends") / "nvidia"  # the C source stands in driver.py until 3.6
    driver = next(file for file in sorted(nvidia.glob("driver.*")) if "cannot be accessed" in file.read_text("utf-8"))
    asked = driver.read_text("utf-8").split("cannot be accessed from Triton")[0].rpartition("cuPointerGetAttribute(")[2]
    assert "CU_POINTER_ATTRIBUTE_DEVICE_POINTER" in asked and "CUDA_ERROR_INVALID_VALUE" in asked
    text = said("docs/guides/from-pytorch.md")
    assert "A launch refuses memory that the GPU can't reach" in text
    assert "the first may reach the second's memory" in text


def test_two_kernels_at_the_speed_of_a_copy_are_slower_than_one():
    record = json.loads((ROOT / "benchmarks/results/nvidia-h200/swiglu.json").read_text("utf-8"))
    (forward,) = (each for each in passes(record["cases"], "forward") if each.case["shape"] == [8192, 14336])
    assert forward.share("eager") * 5 / 3 > 0.9, "five tensors read or written, where three have to be"
    assert forward.ms("eager") > 1.7 * forward.ms("torch.compile")
    assert "SwiGLU [below](#torchcompile-first)" in said("docs/guides/should-you-write-a-kernel.md")


def test_below_which_gate_an_infinite_factor_gives_nan():
    from annotated_examples.classics.swiglu import swiglu

    gates = torch.linspace(-100, -10, 1801).half().unique()
    infinite = torch.full_like(gates, math.inf)
    ours, pytorch = swiglu(gates, infinite), F.silu(gates) * infinite
    assert gates[ours.isnan()].max() == -88.75 and -20.5 < gates[pytorch.isnan()].max() < -20
    text = said("annotated_examples/classics/swiglu.py")
    assert "gates below about −20" in text and "down to gates of about −88 it is infinite" in text


def test_what_float32_leaves_of_a_gate_s_gradient_as_a_difference_of_sums():
    def gradients(gate, dtype, tokens=256, width=64):
        torch.manual_seed(0)
        q, k, v, do = (torch.randn(tokens, width, dtype=torch.float64).to(dtype) for _ in range(4))
        place = torch.arange(tokens, dtype=torch.float64)
        left = torch.tril(torch.exp(gate * (place[:, None] - place))).to(dtype)
        both = torch.tril(do @ v.T * left)
        short = ((q * (both @ k)).sum(1) - (k * (both.T @ q)).sum(1)).flip(0).cumsum(0).flip(0)
        passing = torch.tril(q @ k.T * both, -1)
        return short, torch.stack([passing[t:, :t].sum() for t in range(tokens)])

    for gate, least, most in ((-10.0, 0.003, 0.1), (-15.0, 0.3, 100.0)):
        _, exact = gradients(gate, torch.float64)
        short, pairs = ((each - exact).norm() / exact.norm() for each in gradients(gate, torch.float32))
        assert pairs < 1e-6 and least < short < most
    assert "which float32 has to one or two digits, and for gates of −15 less than its rounding" in said(
        "backprop_math/linear_attention.md"
    )


def test_how_many_sets_of_codes_a_linear_layer_takes():
    """From the table of recipes: which operand has which scales in which product."""
    table = (
        (ROOT / "annotated_examples/fp8/linear.py").read_text("utf-8").split("|---|---|---|---|\n")[1].split("\n\n")[0]
    )
    sets = {}
    for row in re.sub(r"one( scale)? each", "one, one", table).splitlines():
        recipe, *products = (cell.strip() for cell in row.strip("|").split("|"))
        scales = [cell.split(", ") for cell in products if ", " in cell]
        operands = ("x", "weight"), ("dy", "weight"), ("dy", "x")
        sets[recipe.strip('`"')] = len({pair for each in zip(operands, scales) for pair in zip(*each)})
    assert sets == {"tensor": 3, "row": 6, "row_gw_hp": 4, "block": 5}
    assert "Six operands, and three sets of codes at least" in said("backprop_math/float8_linear.md")


def test_the_error_that_the_rule_is_judged_by_is_counted_in_eps():
    from academy.judge import accuracy

    judged = json.loads((ROOT / "docs/guides/judged/since.json").read_text("utf-8"))
    message = judged["rows"]["last/shifted_variance.py"]["message"]
    found, right = map(float, re.findall(r"(?:is|be) ([\d.]+\d)", message))
    assert round(abs(found - right) / right / torch.finfo(torch.float32).eps) == 10 and accuracy.MAX_FLOOR == 8
    assert "it is off by ten eps. Our rule [allows eight]" in said("docs/guides/which-judge.md")


def test_where_the_faults_of_the_corpus_come_from():
    from benchmarks import scoreboard

    known, last = ([case for case in scoreboard.cases(each) if case.faulty] for each in ("", scoreboard.UNSEEN[-1]))
    reported = sum("#" in case.source for case in known)
    attacks = sum(case.source == "written as an attack on the judge" for case in known)
    invented = sum(case.source.startswith("own") and "#" not in case.source for case in last)
    text = said("docs/guides/which-judge.md")
    assert f"Of the {len(known)} faults that we know, {reported} follow reports in other projects" in text
    assert f"and {attacks} are attacks on our own judge" in text
    assert f"as were {invented} of the {len(last)} that were counted last" in text
    judges = json.loads((ROOT / "docs/guides/judged/scoreboard.json").read_text("utf-8"))["judges"]
    assert judges[scoreboard.OURS]["right"] == judges["KernelBench"]["right"], "each gets every right kernel"


def test_why_the_bound_of_unit_rows_is_missed():
    text = (ROOT / "tests/corpus/last/unit_rows.py").read_text("utf-8")
    assert '"eps": (1e-12, 0.5)' in text
    assert "its bound is an option, 10⁻¹² or ½." in said("docs/guides/which-judge.md")


def test_in_what_the_gradient_of_a_key_is_summed(monkeypatch):
    from annotated_examples.attention import indexer_loss

    seen = []
    monkeypatch.setattr(indexer_loss, "add_rows", lambda rows, lists, dk: seen.append((rows.dtype, dk.dtype)))
    q, k = torch.ones(1, 1, 2), torch.ones(2, 2, requires_grad=True)
    lists, target = torch.tensor([[0, 1]], dtype=torch.int32), torch.full((1, 2), 0.5)
    indexer_loss.indexer_loss(q, k, torch.ones(1, 1), lists, target).backward()
    assert seen == [(torch.float32, torch.float64)]
    assert "the gradient of a key is summed in float64" in said("annotated_examples/attention/indexer_loss.py")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs").glob("*/*.[mp][dy]")) + sorted((ROOT / "docs").glob("*.md")), ids=str
)
def test_who_names_the_rule_links_it(path):
    """Twice PyTorch's error is half of the rule: where PyTorch is exact, a floor applies."""
    text = path.read_text("utf-8")
    if re.search(r"most\W+(\w+\W+)?twice (that of )?PyTorch", " ".join(text.split())):
        assert path.name == "numerics.md" or "#how-wrong-is-too-wrong" in text


def test_the_functions_of_the_grammar_are_listed():
    from academy.formulas.reading.expressions import FUNCTIONS

    listed = said("docs/guides/writing-derivations.md").split("Known functions are ")[1].split(". ")[0]
    assert set(re.findall(r"`(\\[^`]+)`", listed)) == set(FUNCTIONS)


def test_the_interpreter_s_sums_of_codes_are_rounded():
    from annotated_examples.fp8.scaled_matmul import scaled_matmul

    a = torch.full((1, 257), 256.0).to(torch.float8_e4m3fn)
    a[0, -1] = 1.0
    one = torch.ones(())
    c = scaled_matmul(a, a.t(), one, one, recipe="tensor", out_dtype=torch.float32)
    assert (a.double() @ a.double().t()).item() == 2**24 + 1 and c.item() == 2**24
    assert "the interpreter, which rounds the sum of a tile once" in said("annotated_examples/fp8/scaled_matmul.py")


def test_the_parts_of_fast_versions_below_triton_are_all_named():
    fast = "\n".join(path.read_text("utf-8") for path in (ROOT / "annotated_examples/fast").rglob("*.py"))
    parts = set(re.findall(r"from annotated_examples\.gluon(?:\.| import )(\w+)", fast))
    named = set(re.findall(r"\(gluon/(\w+)\.md\)", (ROOT / "docs/kernels/index.md").read_text("utf-8")))
    assert parts == named and len(parts) == 5
