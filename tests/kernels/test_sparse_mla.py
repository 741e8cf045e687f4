"""sparse_attention: lists with gaps, repeats and tiles of none, sums of keys in both ways, errors, mutants.

The traps of attention to selected keys, and the check or mutant ("…") that holds each:

1. A first tile without a key: `inputs` has one, and so have the formulas.
2. What is none taken for a key, or for the last row: "none is the first key", "none scores 0", "atomics for what is none".
3. A key in many lists: `test_a_key_in_every_list`, "atomics that store".
4. A key that is named twice: `test_a_key_that_is_named_twice`.
5. The end of a list: "past the end of a list is the first key".
6. An index for a slot: tests/kernels/test_sparse_decode.py.
7. Roundings on the way to `ds`: `cancels`, "dp in 16 bits", "each factor of ds in 16 bits".
8. A log-sum-exp of another base, or without the sink: `check` compares it.
9. Keys that nobody has selected: `unseen`.
10. Offsets of 32 bits: tests/judge/test_public.py; many queries: `test_grids`.
11. Two tokens in one tile: a program has one.
12. Rows that aren't there, and strides of another tensor: `test_numbers_of_heads`, `check`, "kv taken for contiguous".
13. A latent is key and value: the formulas.
14. Rows of what is none are never read: `unseen`, "what is none is added to the first key".
15. A target with sinks: tests/kernels/test_selected_probabilities.py.
"""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

import contextlib
import math

import pytest
import torch

from academy.runtime import device
from academy.judge import accuracy
from annotated_examples.attention import sparse_mla as module
from annotated_examples.common import latents, selected
from annotated_examples.fast import sparse_mla as fast
from annotated_examples.gluon import sparse_mla as below
from tests.kernels import harness
from tests.kernels.harness import DEVICE, DTYPES, Mutant, randn
from tests.kernels.test_decode import unchecked

MUTANTS = [
    Mutant("a query without keys is divided by zero", "acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]", "acc / row_sum[:, None]"),
    Mutant("a query without keys has a sum", 'tl.where(row_sum == 0.0, -float("inf"), row_max', "tl.where(row_sum == 0.0, 0.0, row_max"),
    Mutant("none flows back", "ds = tl.where((j == -1)[None, :], 0.0, p * (dp - delta[:, None]))", "ds = p * (dp - delta[:, None])"),
    Mutant("scale twice", "* scale).to(q.dtype)", "* scale * scale).to(q.dtype)"),
    Mutant("a launch forgets which query it begins with", "t = first + place", "t = place + 0 * first"),
    Mutant("rows of the first query", "matrix = rows_ptr + place.to(tl.int64) * K * W", "matrix = rows_ptr + 0 * place.to(tl.int64) * K * W"),
    Mutant("atomics that store", 'tl.atomic_add(ptr + j.to(tl.int64)[:, None] * stride + columns[None, :], values, mask=mask, sem="relaxed")', "tl.store(ptr + j.to(tl.int64)[:, None] * stride + columns[None, :], values, mask=mask)"),
    Mutant("atomics for what is none", "mask = is_key(j, pages)[:, None] & (columns < D)[None, :]", "j = tl.maximum(j, 0)\n    mask = is_key(j, pages)[:, None] & (columns < D)[None, :]"),
    Mutant("atomics in front of the keys", "mask = is_key(j, pages)[:, None] & (columns < D)[None, :]", "mask = (columns < D)[None, :] & (j < 1 << 30)[:, None]"),
    Mutant("dp in 16 bits", "dp = rows_by_rows(do, c, INPUT_PRECISION)", "dp = rows_by_rows(do, c, INPUT_PRECISION).to(c.dtype).to(tl.float32)"),
    Mutant("each factor of ds in 16 bits", "p * (dp - delta[:, None]))", "p.to(c.dtype).to(tl.float32) * (dp - delta[:, None]).to(c.dtype).to(tl.float32))"),
    Mutant("the sink's shift", "sink_gradient(sinks, lse.T[None], delta.T[None])", "sink_gradient(sinks, 0 * lse.T[None], delta.T[None])"),
    Mutant("kv taken for contiguous", "kv[None, :, None], indices[None])]", "kv.as_strided(kv.shape, (kv.shape[1], 1))[None, :, None], indices[None])]"),
    Mutant("lists taken for contiguous", "kv[None, :, None], indices[None])]", "kv[None, :, None], indices.as_strided(indices.shape, (indices.shape[1], 1))[None])]"),
]  # fmt: skip

#: Of what is shared: a list, and the sum of a key.
SHARED = [
    Mutant("past the end of a list is the first key", "mask=offs_k < K, other=-1)", "mask=offs_k < K, other=0)"),
    Mutant("none is the first key", "    ptr, stride_k, _ = head(lists_tensor, b, t, 0)\n    return tl.load(ptr + offs_k.to(tl.int64) * stride_k, mask=offs_k < K, other=-1)", "    ptr, stride_k, _ = head(lists_tensor, b, t, 0)\n    return tl.maximum(tl.load(ptr + offs_k.to(tl.int64) * stride_k, mask=offs_k < K, other=-1), 0)"),
    Mutant("none scores 0", 'tl.where(j == -1, -float("inf"), s)', "tl.where(j == -1, 0.0, s)"),
    Mutant("a mistake is none", 's = tl.where(is_key(j, pages), s, float("nan"))', 's = tl.where(is_key(j, pages), s, -float("inf"))'),
    Mutant("what is none is added to the first key", "keys = torch.arange(S + 1, dtype=in_order.dtype, device=dk.device)", "keys = torch.arange(S + 1, dtype=in_order.dtype, device=dk.device)\n        keys[0] = -1"),
    Mutant("a launch forgets what earlier ones have left", "acc = tl.load(dk_ptrs, mask=offs_d < D, other=0.0)", "acc = tl.zeros((BLOCK_D,), tl.float64)"),
    Mutant("rows as they were written", "tl.load(rows_ptr + at * D + offs_d", "tl.load(rows_ptr + place * D + offs_d"),
]  # fmt: skip

#: Of the two parts of a row.
PARTS = [
    Mutant("rotated part left out", "multiply_add(a_pe, tl.trans(b_pe), s, INPUT_PRECISION)", "s"),
    Mutant("rotated part is the beginning of the row", "ptr + tl.cast(stride_d, tl.int64) * R, stride_t", "ptr + tl.cast(stride_d, tl.int64) * 0, stride_t"),
]  # fmt: skip

#: Below Triton, apart from its waits, which tests/kernels/test_gluon.py leaves out one by one.
OF_BELOW = [
    Mutant("none scores 0", 'gl.where(j == -1, -float("inf"), float("nan"))', 'gl.where(j == -1, 0.0, float("nan"))'),
    Mutant("a mistake is none", 'gl.where(j == -1, -float("inf"), float("nan"))', '-float("inf")'),
    Mutant("the key past the last", "(j >= 0) & (j < S)", "(j >= 0) & (j <= S)"),
    Mutant("the first tile of a list again", "offs += BLOCK_N", "offs += 0 * BLOCK_N"),
    Mutant("past the end of a list is the first key", "j_next = gl.load(lists_ptr + offs, mask=offs < K, other=-1)\n    for", "j_next = gl.load(lists_ptr + offs, mask=offs < K, other=0)\n    for"),
    Mutant("the list of the first query", "lists_ptr += t.to(gl.int64) * stride_t", "lists_ptr += 0 * t.to(gl.int64) * stride_t"),
    Mutant("rotated part of the latent", "columns_pe + R", "columns_pe"),
    Mutant("values of one half in both", "right = i % 2 * 2 + 1", "right = i % 2 * 2"),
    Mutant("earlier values not scaled down", "acc = acc * factor_s.load(gl.SliceLayout(1, o_layout))[:, None]", "factor_s.load(gl.SliceLayout(1, o_layout))"),
    Mutant("earlier sums not scaled down", "row_sum * alpha + gl.sum(p, 1)", "row_sum + gl.sum(p, 1)"),
    Mutant("sinks left out", "if sinks_ptr is not None:", "if False:"),
    Mutant("sinks of the first heads", "gl.load(sinks_ptr + heads,", "gl.load(sinks_ptr + heads % BLOCK_M,"),
    Mutant("columns of the first half", "first_column + gl.arange", "0 * first_column + gl.arange"),
    Mutant("heads of the first program", "heads = first_head + gl.arange(0, acc.shape[0]", "heads = gl.arange(0, acc.shape[0]"),
    Mutant("kv taken for contiguous", "rows_of(kv), indices if", "kv, indices if"),
    Mutant("lists taken for contiguous", "indices if indices.stride(1) == 1 else indices.contiguous()", "indices"),
]  # fmt: skip

RANK = 12


def inputs(T=6, H=5, S=31, K=40, E=4, *, rank=RANK, dtype=torch.float32, sinks=False, gaps=True):
    """Lists without order, some numbers twice. With `gaps`: none anywhere, a list that begins with 20, and an empty one."""
    q, kv = randn(T, H, rank + E, dtype=dtype), randn(S, rank + E, dtype=dtype)
    indices = torch.stack([torch.randperm(max(S, K))[:K] % max(S, 1) for _ in range(T)]).int().view(T, K)
    if gaps:
        indices[0::3, ::3], indices[1::4, :20], indices[2::5] = -1, -1, -1
    given = dict(q=q, kv=kv, indices=indices.to(DEVICE))
    return given | (dict(sinks=randn(H)) if sinks else {})


def small(module, **backward):
    """`sparse_attention` in tiles of 16; of the backward pass, three queries in a launch."""

    class Small(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, kv, indices, sinks, rank, scale, deterministic):
            o, lse = module.sparse_attention_forward(q, kv, indices, sinks, rank, scale, BLOCK_M=16, BLOCK_N=16)
            ctx.save_for_backward(q, kv, indices, sinks, o, lse)
            ctx.options = rank, scale, deterministic
            return o, lse

        @staticmethod
        def backward(ctx, do, dlse):
            tiles = dict(BLOCK_M=16, BLOCK_N=16, queries=3) | backward
            dq, dkv, dsinks = module.sparse_attention_backward(do, dlse, *ctx.saved_tensors, *ctx.options, **tiles)
            return dq, dkv, None, None if ctx.saved_tensors[3] is None else dsinks, None, None, None

    def call(q, kv, indices, *, rank, scale, sinks=None, return_lse=False, deterministic=True):
        o, lse = Small.apply(q, kv, indices, sinks, rank, scale, deterministic)
        return (o, lse) if return_lse else o

    return call


def right(function, given, *, rank=RANK, scale=0.3, **options):
    """Output, log-sum-exp and all gradients; the loss has a part of both."""
    __tracebackhide__ = True
    indices, sinks = given["indices"], "sinks" in given
    counts = (indices >= 0).any(1, keepdim=True) | sinks
    weights = torch.arange(rank, device=indices.device) % 5 - 1.5

    def both(function):
        def call(**tensors):
            o, lse = function(**tensors, indices=indices, rank=rank, scale=scale, return_lse=True, **options)
            return torch.cat([o * weights, torch.where(counts, lse, 0.0)[..., None].to(o.dtype)], -1)

        return call

    tensors = {name: x for name, x in given.items() if name != "indices"}
    harness.assert_right(both(function), both(module.sparse_attention_reference), tensors)


def mistaken(function):
    """A number that is neither a key nor none: NaN for its query, and nothing outside is read."""
    given = inputs(gaps=False)
    expected = function(**given, rank=RANK, scale=0.3)
    for index in (31, -2, 2**31 - 1):
        indices = given["indices"].clone()
        indices[2, 5] = index
        call = lambda **tensors: function(**tensors, rank=RANK, scale=0.3)  # noqa: E731
        o = unchecked(call, given | dict(indices=indices))
        assert o[2].isnan().all() and torch.equal(o[:2], expected[:2]) and torch.equal(o[3:], expected[3:])


@contextlib.contextmanager
def rows_around():
    """What is made of zeros lies between two rows of zeros, which are handed out."""
    zeros, around = torch.Tensor.new_zeros, []

    def new_zeros(x, size, **options):
        whole = zeros(x, (size[0] + 2, *size[1:]), **options)
        around.extend((whole[:1], whole[-1:]))
        return whole[1:-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "new_zeros", new_zeros)
        yield around


def unseen(function, **options):
    """Keys in no list may be NaN, and get 0. What comes back to a query without keys reaches nobody, NaN too."""
    given = inputs(T=4, S=9, K=20)
    lists = [[1, 3, -1, 5, 3], [-1] * 5, [5, -1, -1, 1, 7], [7, 3, 1, 5, -1]]
    given["indices"] = torch.tensor(lists, dtype=torch.int32, device=DEVICE).repeat(1, 4)
    given["kv"][::2] = math.nan
    leaves = {name: given[name].detach().requires_grad_() for name in ("q", "kv")}
    o, lse = function(**leaves, indices=given["indices"], rank=RANK, scale=0.3, return_lse=True, **options)
    assert (lse[1] == -math.inf).all()
    upstream = torch.ones_like(o)
    upstream[1] = math.nan
    with harness.fenced_allocations(), rows_around() as around:
        o.backward(upstream)
    assert around and not any(rows.any() for rows in around)
    assert o.isfinite().all() and not o[1].any() and not leaves["q"].grad[1].any()
    assert leaves["kv"].grad.isfinite().all() and not leaves["kv"].grad[::2].any()


def cancels(module):
    """All keys share columns that are large, and so is the upstream gradient there: `dp` and `delta` are about 1024. As right as
    float64 in which P, for its product, and `ds` are rounded, once each."""
    given = inputs(H=3, E=0, rank=24, dtype=torch.bfloat16, gaps=False)
    given["kv"][:, :8], given["q"][..., :8] = 16.0, 0.0
    upstream = randn(6, 3, 24, dtype=torch.bfloat16)
    upstream[..., :8] = 8.0
    lists, options = given.pop("indices"), dict(rank=24, scale=0.3)
    leaves = {name: x.clone().requires_grad_() for name, x in given.items()}
    found = torch.autograd.grad(small(module)(**leaves, indices=lists, **options), leaves.values(), upstream)
    q, c, do = given["q"].double(), given["kv"].double()[lists.long()], upstream.double()
    p = torch.softmax(0.3 * torch.einsum("thw,tkw->thk", q, c), -1)
    dp = torch.einsum("thw,tkw->thk", do, c)
    ds = p * (dp - (p * dp).sum(-1, keepdim=True))

    def gradients(p, ds):
        rows = 0.3 * torch.einsum("thk,thw->tkw", ds, q) + torch.einsum("thk,thw->tkw", p, do)
        dkv = torch.zeros(31, 24, dtype=torch.float64, device=DEVICE).index_add(0, lists.flatten(), rows.flatten(0, 1))
        return 0.3 * torch.einsum("thk,tkw->thw", ds, c), dkv

    once = gradients(p.bfloat16().double(), ds.bfloat16().double())
    for mine, rounded, exact in zip(found, once, gradients(p, ds)):
        off = [(x - exact)[..., 8:].square().mean() for x in (mine.double(), rounded.bfloat16().double())]
        assert off[0] < 1.2**2 * off[1], off


def check(module):
    function = small(module)
    right(function, inputs(sinks=True))
    right(function, inputs(H=18, K=33, E=0), deterministic=False)
    given = inputs(T=4, S=9)  # each key in each list
    right(function, given | dict(indices=given["indices"].T.contiguous().T, kv=given["kv"].T.contiguous().T))
    mistaken(function)
    unseen(function)
    unseen(function, deterministic=False)
    cancels(module)


def test_check_passes():
    check(module)


test_mutant_is_caught = harness.mutant_test(module, MUTANTS, check)
test_mutant_of_what_is_shared_is_caught = harness.mutant_test(selected, SHARED, check, within=module)
test_mutant_of_the_two_parts_is_caught = harness.mutant_test(latents, PARTS, check, within=module)


def check_below(module):
    """Heads for two programs, more tiles than buffers, one without a key, sinks, strides, NaN in what nobody has selected."""
    for sinks in (True, False):
        given = inputs(H=70, K=150, E=16, rank=64, dtype=torch.float16, sinks=sinks)
        indices, kv = given["indices"], given["kv"]
        indices[1, :64], kv[5] = -1, math.nan
        indices[indices == 5] = 6
        given |= dict(indices=indices.T.contiguous().T, kv=kv.T.contiguous().T)
        o, lse = module.sparse_attention_forward(*given.values(), *[None] * (not sinks), 64, 0.3, BLOCK_N=32)
        given |= dict(kv=kv.nan_to_num(), rank=64, scale=0.3, return_lse=True)
        theirs = module.sparse_attention_reference(**given)
        wide = {name: x.double() if name in ("q", "kv", "sinks") else x for name, x in given.items()}
        for name, ours, other, exact in zip(("o", "lse"), (o, lse), theirs, module.sparse_attention_reference(**wide)):
            accuracy.check(name, ours, other, exact)
    given = inputs(H=3, E=16, rank=64, dtype=torch.float16, gaps=False)
    given["indices"][2, 5] = 31
    o, _ = module.sparse_attention_forward(*given.values(), None, 64, 0.3, BLOCK_N=32)
    assert o[2].isnan().all() and o[[0, 1, 3, 4, 5]].isfinite().all()


def test_below_triton():
    check_below(below)


test_mutant_below_triton_is_caught = harness.mutant_test(below, OF_BELOW, check_below)


def test_what_goes_below_triton(monkeypatch):
    """Large calls on a Hopper card, with latents and rotated parts as models have them, and nothing else."""
    q = randn(1, 1, 576, dtype=torch.float16).expand(1024, 64, 576)
    indices = torch.zeros(1024, 64, dtype=torch.int32, device=DEVICE)
    chosen = lambda q=q, rank=512: fast.goes_below_triton(q, indices, rank)  # noqa: E731
    assert chosen() == (not device.INTERPRET and device.has("gluon"))
    monkeypatch.setattr(device, "INTERPRET", False)
    monkeypatch.setattr(device, "has", lambda *feature: True)
    assert chosen() and not chosen(q.float()) and not chosen(q[:9]) and not chosen(q[:, :32]) and not chosen(rank=544)
    monkeypatch.setattr(device, "has", lambda *feature: False)
    assert not chosen()


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("H", [1, 5, 17, 128])
def test_numbers_of_heads(H, deterministic):
    right(module.sparse_attention, inputs(T=3, H=H, S=9, K=18), deterministic=deterministic)


@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize(("rank", "E"), [(1, 0), (40, 64), (512, 0), (512, 64)])
def test_widths(rank, E, dtype):
    """With the tiles that a user gets."""
    given = inputs(T=3, H=2, S=25, K=20, E=E, rank=rank, dtype=dtype)
    right(module.sparse_attention, given, rank=rank, scale=0.05)


def test_a_key_in_every_list():
    """All queries add to it, in both ways."""
    given = inputs(T=20, S=8, K=3, gaps=False)
    given["indices"][:, 1] = 5
    for deterministic in (True, False):
        right(small(module), given, deterministic=deterministic)


def test_a_key_that_is_named_twice():
    """It weighs twice as much: as if its score were larger by the logarithm of 2, and a sink of score 0 shows it."""
    q, kv = torch.zeros(1, 1, RANK, device=DEVICE), torch.ones(1, RANK, device=DEVICE)
    call = lambda *keys: module.sparse_attention(  # noqa: E731
        q, kv, torch.tensor([keys], dtype=torch.int32, device=DEVICE), rank=RANK, scale=1.0, sinks=q[0, :, 0]
    )
    assert call(0)[0, 0, 0].item() == pytest.approx(1 / 2) and call(0, -1, 0)[0, 0, 0].item() == pytest.approx(2 / 3)


def test_it_is_attention_where_all_keys_are_named():
    """Once each, in an order of its own for every query."""
    given = inputs(T=5, S=30, K=30, gaps=False)
    o = module.sparse_attention(**given, rank=RANK, scale=0.3)
    s = 0.3 * torch.einsum("thw,sw->ths", given["q"].double(), given["kv"].double())
    torch.testing.assert_close(o.double(), s.softmax(-1) @ given["kv"][:, :RANK].double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("queries", [1, 2, 5, 9])
def test_any_number_of_queries_in_a_launch(queries):
    """The same bits: a key's rows are added one by one."""
    given, arguments = inputs(T=9, S=6, K=12, sinks=True), (RANK, 0.3)
    o, lse = module.sparse_attention_forward(**given, rank=RANK, scale=0.3)
    backward = lambda **how: module.sparse_attention_backward(  # noqa: E731
        o.clone(), lse.new_ones(lse.shape), *given.values(), o, lse, *arguments, True, **how
    )
    assert all(torch.equal(one, other) for one, other in zip(backward(), backward(queries=queries)))


@pytest.mark.parametrize("times", harness.TIMES)
def test_the_same_bits_each_time(times):
    given = inputs(T=6, S=4, K=16, dtype=torch.bfloat16, gaps=False)
    indices = given.pop("indices")
    call = lambda **tensors: module.sparse_attention(**tensors, indices=indices, rank=RANK, scale=0.3)  # noqa: E731
    harness.assert_bitwise_repeatable(call, given, None, times)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(("T", "H", "S", "K"), [(0, 2, 3, 2), (2, 0, 3, 2), (2, 2, 0, 2), (2, 2, 3, 0)])
def test_nothing_to_do(T, H, S, K, deterministic):
    leaves = dict(q=randn(T, H, 8).requires_grad_(), kv=randn(S, 8).requires_grad_())
    indices = torch.full((T, K), -1, dtype=torch.int32, device=DEVICE)
    options = dict(rank=8, scale=1.0, return_lse=True, deterministic=deterministic)
    o, lse = module.sparse_attention(**leaves, indices=indices, **options)
    o.sum().backward()
    assert o.shape == (T, H, 8) and not o.any() and (lse == -math.inf).all()
    assert not leaves["q"].grad.any() and not leaves["kv"].grad.any()


def test_grids(monkeypatch):
    """Only the first axis of a grid may have more than 65,535 programs: queries and numbers of a list go along it."""
    found = harness.grids(monkeypatch, module)
    monkeypatch.setattr(module, "add_rows", lambda *rows: None)
    q, kv = torch.zeros(70_000, 1, 1, device=DEVICE), torch.zeros(1, 1, device=DEVICE)
    indices = torch.full((70_000, 1), -1, dtype=torch.int32, device=DEVICE)
    o, lse = module.sparse_attention_forward(q, kv, indices, None, 1, 1.0)
    module.sparse_attention_backward(o, lse, q, kv, indices, None, o, lse, 1, 1.0, True)
    long = indices.new_full((2, 2_000_000), -1)
    module.sparse_attention_backward(o[:2], lse[:2], q[:2], kv, long, None, o[:2], lse[:2], 1, 1.0, True)
    assert max(grid[0] for grid in found) > 65_535 and all(size < 65_536 for grid in found for size in grid[1:])


@pytest.mark.gpu
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
@pytest.mark.parametrize("H", [16, 128])
@pytest.mark.parametrize("module", [module, fast], ids=["lesson", "fast"])
def test_a_real_call(module, H, dtype, deterministic):
    given = inputs(T=100, H=H, S=3000, K=1000, E=64, rank=512, dtype=dtype)
    right(module.sparse_attention, given, rank=512, scale=192**-0.5, deterministic=deterministic)


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (TypeError, "q must be a torch.Tensor, got list", dict(q=[1.0])),
        (TypeError, "q must be one of float32, float16, bfloat16", dict(q=torch.ones(2, 3, 16).double())),
        (ValueError, "q must have 3 dimensions (T, H, W)", dict(q=torch.ones(2, 16))),
        (TypeError, "kv must have the dtype of q", dict(kv=torch.ones(5, 16).half())),
        (ValueError, "kv must have shape (5, 16) (the width of q)", dict(kv=torch.ones(5, 15))),
        (TypeError, "indices must be one of int32, got int64", dict(indices=torch.ones(2, 2, dtype=torch.int64))),
        (ValueError, "indices must have shape (2, 2) (a list for each query)", dict(indices=torch.ones(3, 2, dtype=torch.int32))),
        (ValueError, "indices must be in [-1, 5), got -2 to 1", dict(indices=torch.tensor([[-2, 1]] * 2, dtype=torch.int32))),
        (ValueError, "rank must be at least 1, got 0", dict(rank=0)),
        (ValueError, "q must have 17 to 81 columns with rank=17, got 16", dict(rank=17)),
        (TypeError, "scale must be a number, got NoneType", dict(scale=None)),
        (ValueError, "sinks must have shape (3,) (one for each head of q)", dict(sinks=torch.ones(2))),
        (ValueError, "deterministic must be one of True, False, got 1", dict(deterministic=1)),
    ],
    ids=lambda value: None if isinstance(value, type) else value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_errors(error, message, change):
    given = dict(
        q=torch.ones(2, 3, 16), kv=torch.ones(5, 16), indices=torch.ones(2, 2, dtype=torch.int32), rank=12, scale=1.0
    )
    harness.assert_refused(error, message, module.sparse_attention, **given | change)
