"""The Gluon lessons, in the simulator or on a Hopper GPU: right, hostile inputs, every schedule, every missing wait."""

from pathlib import Path

import pytest
import torch

from academy.runtime import device
from academy import compiler
from academy.gluon import Deadlock, layouts, schedule
from academy.judge import accuracy, mutants, waits
from annotated_examples.gluon import (
    flash_attention,
    flash_attention_backward,
    layernorm_backward,
    matmul,
    scaled_matmul,
    sparse_mla,
    tile_copy,
)  # first: academy.runtime.device comes before triton
from tests import python
from tests.kernels import harness

ROOT = Path(__file__).resolve().parents[2]
HALVES = [torch.float16, torch.bfloat16]
SIMULATED = pytest.mark.skipif(not device.INTERPRET, reason="needs the simulator: a GPU has its own schedules")
#: Small enough to be quick; several tiles a program, tails in every dimension, more steps than buffers.
RING = dict(ROWS=16, STAGES=3)
TOGETHER = dict(BLOCK_M=128, BLOCK_N=32, BLOCK_K=16, STAGES=3, GROUP_M=2, HALVES=2)
TURNS = dict(BLOCK_M=64, BLOCK_N=16, BLOCK_K=16, STAGES=2, GROUP_M=2, HALVES=1, PINGPONG=True)
TILE = dict(BLOCK_M=64, BLOCK_N=32, BLOCK_K=16, STAGES=2, num_warps=4)


def drawn(*shape, dtype=torch.float16):
    return harness.randn(*shape, dtype=dtype)


def check_copies(module, seeds=(0, 1)):
    x = drawn(70, 200)
    for seed in seeds:
        with schedule(seed):
            for function, options in (
                (module.copy_lanes, dict(ROWS=16)), (module.copy_tile, dict(ROWS=16)), (module.copy_forward, RING),
            ):  # fmt: skip
                assert torch.equal(function(x, 1.5, **options), x * 1.5), function.__name__


def check_products(module, seeds=(0, 1), options=(TOGETHER, TURNS, {**TURNS, "HALVES": 2, "BLOCK_N": 32})):
    for seed in seeds:
        with schedule(seed):
            for each in options:
                a, b = drawn(290, 100), drawn(100, 72)
                accuracy.check("c", module.matmul_forward(a, b, **each), a @ b, a.double() @ b.double())
            a, b = drawn(100, 70), drawn(40, 70).T
            accuracy.check("c", module.matmul_tile(a, b, **TILE), a @ b, a.double() @ b.double())


def check_attention(module, seeds=(0, 1), BLOCK_N=32):
    """Six tiles of queries for four programs: the first one takes three. Tails, heads that share keys, both masks."""
    for seed in seeds:
        with schedule(seed):
            for T, S, causal in (136, 136, True), (150, 70, False):
                q, k, v = drawn(1, 3, T, 16), drawn(1, 1, S, 16), drawn(1, 1, S, 16)
                options = module.contract(q, k, v, causal, 0.3, None, 0.0, None, True)
                o, lse = module.attention_forward(q, k, v, None, None, None, options, BLOCK_N=BLOCK_N)
                same = dict(causal=causal, scale=0.3, return_lse=True)
                theirs = flash_attention.flash_attention_reference(q, k, v, **same)
                exact = flash_attention.flash_attention_reference(q.double(), k.double(), v.double(), **same)
                accuracy.check("o", o, theirs[0], exact[0])
                accuracy.check("lse", lse, theirs[1], exact[1])


def check_gradients(module, seeds=(0, 1)):
    """gluon.flash_attention_backward: more steps than buffers, tails, heads that share keys, with and without dlse; and
    more tiles of keys, of one step each, than places for tickets."""
    sizes = (2, 1, 136, 136, True, True), (2, 1, 70, 200, False, False), (5, 5, 40, 40, True, False)
    for seed in seeds:
        with schedule(seed):
            for H, Hk, T, S, causal, dlse in sizes:
                q, k, v = drawn(1, H, T, 16), drawn(1, Hk, S, 16), drawn(1, Hk, S, 16)
                up = drawn(1, H, T, 16), drawn(1, H, T, dtype=torch.float32) if dlse else None
                assert_gradients(module, q, k, v, *up, causal, BLOCK_M=64, STAGES=2)


def assert_gradients(module, q, k, v, do, dlse, causal, scale=0.3, **tiles):
    """Within the accuracy rule of PyTorch's gradients in the same dtype, and of those in float64."""
    same = dict(causal=causal, scale=scale, return_lse=True)

    def of_pytorch(dtype):
        inputs = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
        o, lse = flash_attention.flash_attention_reference(*inputs, **same)
        upstream = do.to(dtype), torch.zeros_like(lse) if dlse is None else dlse.to(lse.dtype)
        return torch.autograd.grad((o, lse), inputs, upstream)

    o, lse = flash_attention.flash_attention_reference(q.double(), k.double(), v.double(), **same)
    options = module.contract(q, k, v, causal, scale, None, 0.0, None, True)
    saved = q, k, v, None, None, None, o.to(q.dtype), lse.float(), options
    gradients = module.attention_backward(do, dlse, *saved, **tiles)
    for name, ours, theirs, exact in zip("qkv", gradients, of_pytorch(q.dtype), of_pytorch(torch.float64)):
        accuracy.check(f"d{name}", ours, theirs, exact)


def check_codes(module, seeds=(0, 1)):
    """More tiles than programs, one sum a group and two, K that ends within a step; small whole numbers: exact sums."""
    for seed in seeds:
        with schedule(seed):
            for sums, M in (2, 290), (4, 290):
                a, b = (torch.randint(-2, 3, size).float() for size in ((M, 100), (40, 100)))
                s_a, s_b = 2.0 ** torch.randint(-2, 3, (M, 4)), 2.0 ** torch.randint(-2, 3, (4, 3))
                codes = [x.to(harness.DEVICE, torch.float8_e4m3fn) for x in (a, b)]
                tiles = dict(BLOCK_N=16, BLOCK_K=32, STAGES=2, GROUP_M=2, SUMS=sums)
                given = (
                    codes[0],
                    codes[1].t(),
                    s_a.to(harness.DEVICE),
                    s_b.to(harness.DEVICE),
                    None,
                    torch.float32,
                    True,
                )
                columns = s_b.repeat_interleave(16, 1)[:, :40].repeat_interleave(32, 0)[:100]
                wanted = (a * s_a.repeat_interleave(32, 1)[:, :100]) @ (b.t() * columns)
                assert torch.equal(module.promoted_forward(*given, **tiles).cpu(), wanted), (sums, seed)


def check_norms(module, seeds=(0, 1)):
    """More rows a program than buffers, three lines in room for four, with a weight and without one."""
    for seed in seeds:
        with schedule(seed):
            x, dy, weight, bias = drawn(14, 192), drawn(14, 192), drawn(192), drawn(192)
            for parameters in (weight, bias), (None, None):

                def of_pytorch(dtype, x=x, dy=dy, given=parameters):
                    leaves = [None if t is None else t.detach().to(dtype).requires_grad_() for t in (x, *given)]
                    y = torch.nn.functional.layer_norm(leaves[0], (192,), *leaves[1:], 1e-5)
                    return torch.autograd.grad(y, [t for t in leaves if t is not None], dy.to(dtype))

                mean, rstd = x.float().mean(1), (x.float().var(1, unbiased=False) + 1e-5).rsqrt()
                found = module.layernorm_backward(dy, x, *parameters, mean, rstd, STAGES=2, num_warps=1)
                for name, ours, theirs, exact in zip("xwb", found, of_pytorch(x.dtype), of_pytorch(torch.float64)):
                    accuracy.check(f"d{name}", ours, theirs, exact)


def check_selected(module, seeds=(0, 1)):
    """More tiles of a list than buffers, heads for two programs, gaps, a tile of none, no list at all; with sinks."""
    for seed in seeds:
        with schedule(seed):
            for H, S, K, sinks in (70, 40, 150, True), (3, 9, 40, False), (5, 7, 0, True):
                q, kv = drawn(2, H, 80), harness.nan_fenced(drawn(S, 80))
                indices = torch.arange(2 * K).view(2, K) * 7 % (S + 1) - 1
                indices[1, :70] = -1
                given = dict(indices=indices.int().to(harness.DEVICE), sinks=drawn(H) if sinks else None)
                o, lse = module.sparse_attention_forward(q, kv, *given.values(), 64, 0.3, BLOCK_N=32)
                same = given | dict(rank=64, scale=0.3, return_lse=True)
                theirs = sparse_mla.sparse_attention_reference(q, kv, **same)
                exact = sparse_mla.sparse_attention_reference(q.double(), kv.double(), **same)
                accuracy.check("o", o, theirs[0], exact[0])
                accuracy.check("lse", lse, theirs[1], exact[1])


def test_copies_products_and_attention_are_right_in_two_schedules():
    check_selected(sparse_mla)
    check_codes(scaled_matmul)
    check_copies(tile_copy)
    check_products(matmul)
    check_attention(flash_attention)
    check_gradients(flash_attention_backward)
    check_norms(layernorm_backward)


@pytest.mark.nightly
@SIMULATED
@pytest.mark.parametrize("part", range(5))
def test_no_false_alarm_in_fifty_schedules(part):
    seeds = range(10 * part, 10 * part + 10)
    check_copies(tile_copy, seeds)
    check_products(matmul, seeds)
    check_attention(flash_attention, seeds)
    check_gradients(flash_attention_backward, seeds)
    check_codes(scaled_matmul, seeds)
    check_norms(layernorm_backward, seeds)
    check_selected(sparse_mla, seeds)


#: What only costs time if it is wrong, without the line, and the reason.
ONLY_SPEED = {
    "delete of `mbarrier.wait(bar, phase)`": "the second wait for the row is there for the compiler alone",
    "delete of `mbarrier.wait(there, phase)`": "what it waits for is there: it is for the assembler",
    "miscount of `warpgroup_mma_wait(3, deps=(dv,))`": "the waits for dQ and dK cover dV, and this one frees P earlier",
}
CHECKS = {
    tile_copy: check_copies, matmul: check_products, flash_attention: check_attention,
    flash_attention_backward: check_gradients, scaled_matmul: check_codes, layernorm_backward: check_norms,
    sparse_mla: check_selected,
}  # fmt: skip
MUTANTS = [(module, mutant) for module in CHECKS for mutant in waits.mutants(Path(module.__file__).read_text("utf-8"))]
FEW = {mutant.name for module in CHECKS for mutant in mutants.sample([m for o, m in MUTANTS if o is module], 4)}


@SIMULATED
@pytest.mark.parametrize(
    ("module", "mutant"),
    [
        pytest.param(module, mutant, id=str(mutant), marks=[] if mutant in FEW else [pytest.mark.nightly])
        for module, mutant in MUTANTS
    ],
)
def test_every_missing_wait_is_named(module, mutant):
    found = waits.caught(module, mutant, CHECKS[module])
    assert found or mutant.name.partition(" in line ")[0] in ONLY_SPEED, f"nothing noticed: {mutant.name}"


def test_every_kind_of_synchronisation_is_mutated():
    named = " ".join(mutant.name for _, mutant in MUTANTS)
    for call in (
        "mbarrier.init",
        "mbarrier.expect",
        "mbarrier.wait",
        "mbarrier.arrive",
        "fence_async_shared",
        "store_wait",
    ):
        assert f"delete of `{call}" in named or f"delete of `tma.{call}" in named, call
    assert {mutant.operator for _, mutant in MUTANTS} == {"delete", "flip", "miscount"} and len(MUTANTS) > 50


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("shape", [(33, 130), (0, 5), (5, 0)])
def test_copy(shape, dtype):
    for x in (drawn(*shape, dtype=dtype), drawn(*reversed(shape), dtype=dtype).T, drawn(*shape, dtype=dtype)[:, ::2]):
        before = x.clone()
        y = tile_copy.copy(x, -0.5)
        assert torch.equal(y, x * -0.5) and torch.equal(x, before) and y.dtype == dtype


@pytest.mark.parametrize(("sizes", "dtype"), [*zip([(0, 8, 8), (8, 8, 0), (130, 20, 66)], [*HALVES, *HALVES])])
def test_matmul_and_its_gradients(sizes, dtype):
    M, N, K = sizes
    a, b = drawn(M, K, dtype=dtype), drawn(K, N, dtype=dtype)
    turned = drawn(K, M, dtype=dtype).T, drawn(N, K, dtype=dtype).T
    for left, right in ((a, b), turned):
        harness.assert_right(matmul.matmul, matmul.matmul_reference, dict(a=left, b=right), drawn(M, N, dtype=dtype))


@pytest.mark.parametrize(("T", "S"), [(40, 90), (0, 8), (8, 0)])
def test_attention_and_its_gradients(T, S):
    q, k, v, do = (drawn(2, heads, n, 64, dtype=torch.bfloat16) for heads, n in ((2, T), (1, S), (1, S), (2, T)))
    attention = flash_attention.flash_attention, flash_attention.flash_attention_reference
    harness.assert_right(*attention, dict(q=q, k=k, v=v), do)


def test_attention_of_tokens_before_heads_and_of_rows_that_no_descriptor_fits():
    wanted = dict(causal=True, scale=0.2, return_lse=True)
    for q, k, v in (
        [drawn(1, 40, 2, 64).transpose(1, 2) for _ in "qkv"],
        [drawn(1, 2, 40, 65)[..., 1:] for _ in "qkv"],
        [drawn(1, 2, 64, 40).transpose(2, 3) for _ in "qkv"],
        [harness.nan_fenced(drawn(1, 2, 40, 64)) for _ in "qkv"],
        [harness.offset(drawn(1, 2, 40, 64)) for _ in "qkv"],
    ):
        o, lse = flash_attention.flash_attention(q, k, v, **wanted)
        theirs = flash_attention.flash_attention_reference(q, k, v, **wanted)
        exact = flash_attention.flash_attention_reference(q.double(), k.double(), v.double(), **wanted)
        accuracy.check("o", o, theirs[0], exact[0])
        accuracy.check("lse", lse, theirs[1], exact[1])


#: Edits that no wait is a part of, which change values: each must show.
WRONG_GRADIENTS = [
    mutants.Mutant("no mask on the diagonal", "gl.cdiv(first_key + 63, BLOCK_M)", "gl.cdiv(first_key, BLOCK_M)"),
    mutants.Mutant("the first tile of the diagonal only", "first_key + 63", "j * 128 + 1"),
    mutants.Mutant("keys past the last", "masked: gl.constexpr = RAGGED", "masked: gl.constexpr = False"),
    mutants.Mutant("the key of the query itself hidden", "keys <= queries", "keys < queries"),
    mutants.Mutant("dK without the scale", "(dk * scale).to", "dk.to"),
    mutants.Mutant("dQ without the scale", "mask=inside, other=0.0) * scale", "mask=inside, other=0.0)"),
    mutants.Mutant("dQ rounded before the last keys are in", "adders = m * BLOCK_M // 128 + 1", "adders = 1"),
    mutants.Mutant("no gradient of the log-sum-exp", "if dlse_ptr is not None:", "if False:"),
    mutants.Mutant(
        "the halves of dQ exchanged", "slice(W * HALF, HALF, 1)\n    k1", "slice((1 - W) * HALF, HALF, 1)\n    k1"
    ),
    mutants.Mutant("always the first head", "h = hk * group + step % group", "h = hk * group"),
    mutants.Mutant("a place too few for tickets", "gl.int32, [STAGES + 2, 1]", "gl.int32, [STAGES + 1, 1]"),
    mutants.Mutant("the first keys add", "if j == 0:", "if j < 0:"),
    mutants.Mutant("the next keys store", "if j == 0:", "if j <= 1:"),
]


def far_below_zero():
    """Scores around -200: a probability of a key that isn't there would overflow."""
    q, k = drawn(1, 1, 40, 64).abs(), -drawn(1, 1, 70, 64).abs()
    return 8 * q, 8 * k, drawn(1, 1, 70, 64), drawn(1, 1, 40, 64), None, False


@pytest.mark.parametrize("mutant", WRONG_GRADIENTS, ids=lambda mutant: mutant.name)
@SIMULATED
def test_every_wrong_gradient_is_noticed(mutant):
    def check(module):
        check_gradients(module, (0,))
        assert_gradients(module, *far_below_zero())

    assert waits.caught(flash_attention_backward, mutant, check), mutant.name


def test_scores_far_below_zero_and_rows_that_no_descriptor_fits():
    assert_gradients(flash_attention_backward, *far_below_zero())
    q, k, v, do = (drawn(1, 2, 64, 40).transpose(2, 3) for _ in "qkvo")
    dlse = drawn(1, 1, 1, dtype=torch.float32).expand(1, 2, 40)
    assert_gradients(flash_attention_backward, q, k, v, do, dlse, True)
    assert_gradients(flash_attention_backward, q, k, v, do[..., :1].expand(1, 2, 40, 64), None, True)
    assert_gradients(flash_attention_backward, *map(harness.offset, (q, k, v, do)), None, True)


@SIMULATED
def test_a_tile_of_keys_waits_for_its_turn(monkeypatch):
    """The second tile's program alone: nobody passes it the turn. Without the wait it would go on."""
    kernel = flash_attention_backward.attention_backward_kernel

    class Later:
        def __getitem__(self, grid):
            def launch(*arguments, **options):
                arguments[10].fill_(1)  # the next tile that nobody has taken
                kernel[(1,)](*arguments, **options)

            return launch

    q, k, v, do = (drawn(1, 1, 200, 64) for _ in "qkvo")
    monkeypatch.setattr(flash_attention_backward, "attention_backward_kernel", Later())
    with pytest.raises(Deadlock, match="sum_partition polls turn_ptr .* finds 0 again and again"):
        assert_gradients(flash_attention_backward, q, k, v, do, None, True)


@pytest.mark.gpu
@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("causal", [True, False])
def test_two_hundred_calls_give_the_same_bits(causal, D):
    """More programs than a card runs at a time, heads that share keys: nobody waits forever, and the order is fixed."""
    q, do = (drawn(2, 8, 2000, D, dtype=torch.bfloat16) for _ in "qo")
    k, v = (drawn(2, 2, 2000, D, dtype=torch.bfloat16) for _ in "kv")
    leaves = [x.requires_grad_() for x in (q, k, v)]
    o = flash_attention.flash_attention(*leaves, causal=causal)
    first = torch.autograd.grad(o, leaves, do, retain_graph=True)
    for _ in range(200):
        again = torch.autograd.grad(o, leaves, do, retain_graph=True)
        assert all(torch.equal(a, b) for a, b in zip(first, again))


def test_what_attention_makes_of_numbers_that_are_none():
    """A row that sees NaN or infinity is NaN; a key that is hidden changes nothing."""
    q, k, v = drawn(1, 1, 40, 64), drawn(1, 1, 40, 64), drawn(1, 1, 40, 64)
    clean = flash_attention.flash_attention(q, k, v, causal=True)
    for bad in (float("nan"), float("inf")):
        touched = k.clone()
        touched[0, 0, 30] = bad
        o = flash_attention.flash_attention(q, touched, v, causal=True)
        seen = o.isnan().any(-1)[0, 0]
        assert torch.equal(o[:, :, :30], clean[:, :, :30]) and (seen[30:].all() if bad != bad else seen[30:].any())


def attend(S=4, D=64, dtype=torch.float16, **options):
    q, k = drawn(1, 1, 4, D, dtype=dtype), drawn(1, 1, S, D, dtype=dtype)
    return flash_attention.flash_attention(q, k, k, **options)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: tile_copy.copy([1.0]), TypeError, "x must be a torch.Tensor"),
        (lambda: tile_copy.copy(drawn(4)), ValueError, "x must have 2 dimensions"),
        (lambda: tile_copy.copy(drawn(4, 4), "2"), TypeError, "scale must be"),
        (
            lambda: matmul.matmul(drawn(4, 4, dtype=torch.float32), drawn(4, 4, dtype=torch.float32)),
            TypeError,
            "a must be",
        ),
        (
            lambda: matmul.matmul(drawn(4, 4), drawn(4, 4, dtype=torch.bfloat16)),
            TypeError,
            "b must have the dtype of a",
        ),
        (lambda: matmul.matmul(drawn(4, 5), drawn(4, 5)), ValueError, "b must have as many rows"),
        (lambda: attend(dtype=torch.float32), TypeError, "q must be"),
        (lambda: attend(D=32), ValueError, "q must have a head dimension of 64 or 128, got shape"),
        (lambda: attend(S=5, causal=True), ValueError, "k must have the length of q with causal=True, 4, got 5"),
        (lambda: attend(scale=-1.0), ValueError, "scale must be more than 0, got -1.0"),
    ],
)
def test_wrong_arguments(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_another_card_is_refused(monkeypatch):
    monkeypatch.setattr(device, "INTERPRET", False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index=None: (8, 9))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index=None: "some card")
    for launch, arguments in (
        (tile_copy.copy_lanes, 1), (tile_copy.copy_tile, 1), (tile_copy.copy_forward, 1), (matmul.matmul_tile, 2),
        (matmul.matmul_forward, 2),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"(copy|matmul) needs Hopper's wgmma and TMA.*some card has 8\.9"):
            launch(*[torch.ones(8, 8, dtype=torch.float16)] * arguments)
    with pytest.raises(RuntimeError, match=r"flash_attention needs Hopper's wgmma and TMA.*some card has 8\.9"):
        attend()


def compiled(*words):
    found = python.told(ROOT / "tests/gluon/compiled.py", *words, kept=True)
    problems = [(entry["kernel"], entry["constants"], entry["problems"]) for entry in found if entry["problems"]]
    assert not problems
    assert {entry["kernel"] for entry in found} == {
        "copy_lanes_kernel", "copy_tile_kernel", "copy_ring_kernel", "matmul_tile_kernel", "matmul_kernel",
        "attention_kernel", "row_numbers_kernel", "attention_backward_kernel", "layernorm_backward_kernel",
        "partial_sums_kernel", "sparse_attention_kernel",
    }  # fmt: skip
    return found


@pytest.mark.skipif(not compiler.available(), reason="no compiler is installed here")
def test_they_compile_for_hopper():
    assert all(entry["shared"] <= 232448 for entry in compiled())


@pytest.mark.nightly
@pytest.mark.skipif(not compiler.available(), reason="no compiler is installed here")
def test_every_configuration_compiles_without_spills():
    assert all(entry["stack"] == 0 for entry in compiled("all"))


def test_numbers_in_the_notes():
    """What the notes of both lessons say about layouts and phases."""
    gl = tile_copy.gl
    form = layouts.linear(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]), (16, 64))
    assert len(form.registers) == 3 and form.element(0, 9, 0) == (1, 8)
    assert {form.element(r, lane, 0)[0] for r in range(8) for lane in range(32)} == {0, 1, 2, 3}
    turned = layouts.linear(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [0, 1]), (16, 64))
    assert [turned.element(0, lane, 0)[0] for lane in range(4)] == [0, 1, 2, 3]
    text = Path(tile_copy.__file__).read_text("utf-8")
    for name, of in (("buffer, of 3", lambda i: i % 3), ("phase", lambda i: i // 3), ("parity", lambda i: i // 3 & 1)):
        assert f"# | {name} | " + " | ".join(str(of(i)) for i in range(7)) + " |" in text
    accumulator = layouts.linear(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 256, 16]), (64, 256))
    assert {accumulator.element(r, lane, 1)[0] for r in range(128) for lane in range(32)} == set(range(16, 32))
    assert 2 ** len(accumulator.registers) * 2 == 256  # registers a thread, were all 128 rows its warpgroup's


@SIMULATED
def test_what_the_guide_quotes():
    """The guide "What the compiler undoes" says what the simulator says of a turn that is left out."""
    (turn,) = [m for of, m in MUTANTS if of is matmul and m.operator == "delete" and "wait(turn" in m.name]
    said = waits.caught(matmul, turn, lambda module: check_products(module, (0,), (TURNS,)))
    guide = " ".join((ROOT / "docs/guides/what-the-compiler-undoes.md").read_text("utf-8").split())
    assert said.startswith("WrongUse: wgmma at line ") and "reads a_s[1][0:64], and nothing has been written" in said
    assert said[said.index(" reads a_s") :].split("?")[0] in guide
