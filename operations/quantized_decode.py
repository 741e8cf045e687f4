"""Reading a cache of few bits: what is compared with formulas, and what is measured.

`shape` is (batch, heads, heads of the cache, keys, head dim).
"""

import functools

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations.quantized_cache import E4M3

LESSON = "attention.quantized_decode"
FAST = "fast.quantized_decode"
FUNCTION = "decode_quantized"
AXES = ("batch", "heads", "key heads", "cached tokens", "head dimension")
DERIVATION = "quantized_cache"


# ---------------------------------------------------------------- public functions
def codes_and_steps(dtype, *shape):
    """Any codes, with steps and lowest values of ordinary size."""
    *rows, width = shape
    if dtype == torch.uint8:
        return torch.randint(0, 256, (*rows, width // 2), dtype=dtype), torch.rand(*rows, 2) * torch.tensor([0.2, -2.0])
    codes = torch.randint(-127, 128, shape, dtype=torch.int8)
    return codes if dtype == torch.int8 else codes.float().to(E4M3), torch.rand(*rows, 1) / 50


def cache_of(k_dtype, v_dtype, *shape):
    made = {}
    for name, dtype in (("k", k_dtype), ("v", v_dtype)):
        made[f"{name}_cache"], made[f"{name}_scale"] = codes_and_steps(dtype, *shape)
    return made


def filled_cache(sequences, keys, width, bits):
    """Four bits, or eight."""
    lengths = torch.arange(sequences, dtype=torch.int32) * keys // max(sequences - 1, 1)
    kind = torch.uint8 if bits == 4 else torch.int8
    return {
        "q": torch.randn(sequences, 4, width),
        **cache_of(kind, kind, sequences, keys, 2, width),
        "lengths": lengths,
    }


def in_pages():
    """Two sequences of 30 and 20 keys, in pages of 16; keys and values have different formats."""
    whole = {"lengths": [30, 20], "block_table": [[3, 1], [0, 2]]}
    numbers = {name: torch.tensor(values, dtype=torch.int32) for name, values in whole.items()}
    return {"q": torch.randn(2, 4, 64).bfloat16(), **cache_of(torch.int8, torch.uint8, 4, 16, 2, 64), **numbers}


def by_channel():
    steps = torch.rand(4, 2, 64, 2) * torch.tensor([0.2, -2.0])
    recent = torch.randn(2, 16, 2, 64).bfloat16()
    made = in_pages() | cache_of(torch.uint8, torch.uint8, 4, 16, 2, 64)
    return made | dict(k_scale=steps, recent=recent)


def rotated():
    return in_pages() | dict(signs=1.0 - torch.arange(64) % 3 // 2 * 2)


def as_stored(decode):
    """Scales stay float32, whatever is tried. Values of eight bits become floats, of which PyTorch can't copy rows."""

    def call(v_cache, k_scale, v_scale, **others):
        v_cache = v_cache.float().to(E4M3) if v_cache.dtype == torch.int8 else v_cache
        return decode(v_cache=v_cache, k_scale=k_scale.float(), v_scale=v_scale.float(), **others)

    return call


PUBLIC = [
    Public(
        "decode_quantized", filled_cache, at=(3, 300, 64, 4), sizes={"width": (16, 40), "bits": (4, 8)},
        float32=("k_scale", "v_scale"), wrap=as_stored, differentiable=False,
        batch={"sequences": "few sequences are split into more parts; with a num_splits that is given it holds"},
        calls=[{}, dict(inputs=by_channel, granularity="channel"), dict(inputs=rotated)],
        more=[dict(inputs=in_pages, scale=0.2, num_splits=2)],
    )
]  # fmt: skip


# ---------------------------------------------------------------- what is compared with formulas
def spread(q, n, d):
    """Every code, next to every other; steps and lowest values for scores of a few units. Around ±10⁴ each softmax has
    a single key, and nothing is compared but its choice. (A sine is 0 modulo each prime, and no divisor.)"""
    at = torch.arange(n)
    X = (at[:, None] * 7 + torch.arange(d) ** 2 % 23) % 16.0
    Y = (at[:, None] * 5 + torch.arange(d) ** 2 % 19) % 16.0
    sigma, tau = (1 + at % 5) / 32, (1 + at % 7) / 16
    lowest = {"beta": -8 * sigma + (at % 3 - 1) / 8, "mu": (at % 4 - 5) / 4}
    return {"q": q / (1 + q.abs()), "X": X, "Y": Y, "sigma": sigma, "tau": tau, "s": 0.25, "z": 8.0} | lowest


def packed(X):
    codes = X.to(torch.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4


def even(x):
    """With a column more, if the number of columns is odd. (A query has a 0 there.)"""
    return torch.nn.functional.pad(x, (0, x.shape[-1] % 2))


def cache(X, step, lowest):
    """(1, n, 1, d / 2) and (1, n, 1, 2): codes and their scales, for one sequence and head."""
    return packed(even(X))[None, :, None], torch.stack([step, lowest], -1).float()[None, :, None]


def lengths(n, like, sequences=1):
    return torch.full((sequences,), n, dtype=torch.int32, device=like.device)


USUAL = dict(modules=(LESSON, FAST), rows=("q",), sizes={"n": 37, "d": 16, "rows": 3}, values=spread, forward_only=True)


@case(**USUAL, returns="KV-o")
def in_four_bits(module, q, X, sigma, beta, Y, tau, mu, s):
    """Two parts."""
    (k, k_scale), (v, v_scale) = cache(X, sigma, beta), cache(Y, tau, mu)
    o = module.decode_quantized(even(q)[None], k, v, k_scale, v_scale, lengths(len(X), X), scale=s, num_splits=2)
    return o[0, :, : q.shape[-1]]


def eight_bits(X, step):
    return X.to(torch.int8)[None, :, None], step.float()[None, :, None, None]


def without_lowest(q, n, d):
    """Of eight bits: whole numbers of both signs, and floats that have these codes."""
    made, nothing = spread(q, n, d), torch.zeros(n)
    return made | {"X": made["X"] * 9 - 61, "Y": made["Y"] * 8 - 60, "beta": nothing, "mu": nothing, "s": 1 / 64}


@case(**USUAL | dict(values=without_lowest), returns="KV-o")
def in_eight_bits(module, q, X, sigma, Y, tau, s):
    """Keys are whole numbers, values floats; tiles of 16 keys."""
    (k, k_scale), (v, v_scale) = eight_bits(X, sigma), eight_bits(Y, tau)
    v = v.float().to(E4M3)
    tensors = q[None], k, v, k_scale, v_scale, lengths(len(X), X)
    return module.quantized_forward(*tensors, "token", None, None, None, float(s), 2, BLOCK_N=16)[0]


@in_eight_bits.pytorch
def _(module, q, X, sigma, Y, tau, s):
    (k, k_scale), (v, v_scale) = eight_bits(X, sigma), eight_bits(Y, tau)
    tensors = q[None], k, v, k_scale, v_scale, lengths(len(X), X)
    return module.decode_quantized_reference(*tensors, scale=float(s))[0]


@case(**USUAL, returns="KV-O")
def from_pages(module, q, X, sigma, beta, Y, tau, mu, s):
    """Pages of one key, in reverse order; queries with a gap after each number."""
    k, k_scale, v, v_scale = (
        x[0].flip(0)[:, None] for pair in (cache(X, sigma, beta), cache(Y, tau, mu)) for x in pair
    )
    gaps = torch.stack([even(q), torch.full_like(even(q), float("nan"))], -1)[..., 0]
    table = torch.arange(len(X), dtype=torch.int32, device=X.device).flip(0)[None]
    o = module.decode_quantized(
        q=gaps[None], k_cache=k, v_cache=v, k_scale=k_scale, v_scale=v_scale, lengths=lengths(len(X), X),
        block_table=table, granularity="token", recent=None, scale=s,
    )  # fmt: skip
    return o[0, :, : q.shape[-1]]


def two_keys(sequences, like):
    """Values 1 and 0 of two keys, the same in all sequences: the output is the first key's weight."""
    values = torch.tensor([1.0, 0.0], device=like.device).view(1, 2, 1, 1).expand(sequences, 2, 1, like.shape[-1])
    return values.to(torch.int8), torch.ones(sequences, 2, 1, 1, device=like.device)


def score_of(o):
    """Of a key beside one with the score 0."""
    weight = o[..., 0].double()
    return (torch.log(weight) - torch.log(1 - weight)).T.to(o.dtype)


ALONE = USUAL | dict(sizes=USUAL["sizes"] | {"n": 9})


@case(**ALONE, returns="KV-score")
def scores(module, q, X, sigma, beta):
    """Each key as a sequence of its own, beside a key of zeros."""
    k, k_scale = (torch.cat([x, torch.zeros_like(x)], 2).transpose(0, 1) for x in cache(X, sigma, beta))
    k, k_scale = (x.reshape(len(X), 2, 1, -1) for x in (k, k_scale))
    queries = even(q).expand(len(X), -1, -1)
    v, v_scale = two_keys(len(X), queries)
    return score_of(module.decode_quantized(queries, k, v, k_scale, v_scale, lengths(2, X, len(X)), scale=1.0))


@case(**ALONE | dict(values=lambda q, n, d: steps_of_columns(q, n, d)), returns="KV-channel")
def scores_by_channel(module, q, X, theta, nu):
    """The same, in pages of one key; the page of the key of zeros has steps of 0."""
    k = torch.cat([packed(even(X)), packed(even(X[:1]))])[:, None, None]
    columns = torch.stack([even(theta), even(nu)], -1).float().expand(len(X), -1, -1)
    k_scale = torch.cat([columns, torch.zeros_like(columns[:1])])[:, None]
    queries, at = even(q).expand(len(X), -1, -1), torch.arange(len(X), dtype=torch.int32, device=X.device)
    # Pages of values: 1 everywhere but in the last.
    v = torch.ones(len(k), 1, 1, queries.shape[-1], dtype=torch.int8, device=X.device)
    v[-1] = 0
    table = torch.stack([at, torch.full_like(at, len(X))], -1)
    return score_of(
        module.decode_quantized(
            queries, k, v, k_scale, torch.ones(len(k), 1, 1, 1, device=X.device), lengths(2, X, len(X)),
            granularity="channel", block_table=table, scale=1.0,
        )
    )  # fmt: skip


def turned(q, n, d):
    """A rotation with signs of both kinds."""
    from annotated_examples.common.codes import rotation

    return without_lowest(q, n, d) | {"R": rotation(signs(d), torch.float64)}


def signs(d, device=None):
    return 1.0 - torch.arange(d, device=device) % 3 // 2 * 2


@case(**USUAL | dict(values=turned), returns="KV-O-rotated")
def rotated_keys(module, q, X, sigma, Y, tau, s):
    (k, k_scale), (v, v_scale) = eight_bits(X, sigma), eight_bits(Y, tau)
    options = dict(signs=signs(q.shape[-1], q.device), scale=s)
    return module.decode_quantized(q[None], k, v, k_scale, v_scale, lengths(len(X), X), **options)[0]


def steps_of_columns(q, n, d):
    at = torch.arange(d)
    theta = (1 + at % 5) / 32
    return spread(q, n, d) | {"theta": theta, "nu": -8 * theta + (at % 3 - 1) / 8}


@case(**USUAL | dict(values=steps_of_columns), returns="KV-O-channel")
def keys_by_channel(module, q, X, theta, nu, Y, tau, mu, s):
    """One page, the second of a pool; tiles of 16 keys."""
    columns = torch.stack([even(theta), even(nu)], -1).float()[None, None]
    caches = packed(even(X))[None, :, None], columns, *cache(Y, tau, mu)
    k, k_scale, v, v_scale = (torch.cat([torch.ones_like(x), x]) for x in caches)
    table = torch.ones(1, 1, dtype=torch.int32, device=X.device)
    tensors = even(q)[None], k, v, k_scale, v_scale, lengths(len(X), X)
    o = module.quantized_forward(*tensors, "channel", table, None, None, float(s), 1, BLOCK_N=16)
    return o[0, :, : q.shape[-1]]


@keys_by_channel.pytorch
def _(module, q, X, theta, nu, Y, tau, mu, s):
    columns = torch.stack([even(theta), even(nu)], -1).float()[None, None]
    v, v_scale = cache(Y, tau, mu)
    table = torch.zeros(1, 1, dtype=torch.int32, device=X.device)
    tensors = even(q)[None], packed(even(X))[None, :, None], v, columns, v_scale, lengths(len(X), X)
    o = module.decode_quantized_reference(*tensors, granularity="channel", block_table=table, scale=float(s))
    return o[0, :, : q.shape[-1]]


# ---------------------------------------------------------------- what is measured
def decode_cost(queries, rows, pairs, width, size, row, small):
    """queries: of all sequences and heads. rows: keys, and as many values, of `row` bytes each. small: the rest."""
    read = queries * width * size + 2 * rows * row + small
    return {"forward": dict(bytes_read=read, bytes_written=queries * width * size, operations=4 * pairs * width)}


def bytes_of_a_row(width, bits):
    return width * bits // 8 + (8 if bits == 4 else 4)


def cost(shape, dtype, bits=4):
    B, H, Hk, S, D = shape
    return decode_cost(B * H, B * S * Hk, B * S * H, D, dtype.itemsize, bytes_of_a_row(D, bits), 4 * B)


def inputs(shape, dtype, device, kind=torch.uint8):
    B, H, Hk, S, D = shape
    made = {"q": torch.randn(B, H, D, dtype=dtype)} | cache_of(kind, kind, B, S, Hk, D)
    full = torch.full((B,), S, dtype=torch.int32)
    return {name: x.to(device) for name, x in (made | {"lengths": full}).items()}


def eager(q, k_cache, v_cache, k_scale, v_scale, lengths):
    """Decoded first, all sequences at once, which have the full length."""
    from annotated_examples.common.codes import decoded

    k, v = (decoded(x, scale, "token", q.dtype) for x, scale in ((k_cache, k_scale), (v_cache, v_scale)))
    q = q.unflatten(1, (k.shape[2], -1))
    p = torch.softmax(torch.einsum("bhgd,bnhd->bhgn", q, k) / q.shape[-1] ** 0.5, dim=-1)
    return torch.einsum("bhgn,bnhd->bhgd", p, v).flatten(1, 2)


# One sequence of five keys, two queries of four numbers. Beside them a length and two pages are read. The fast version
# has eleven keys of eight numbers, in four pages.
EXAMPLES = {
    LESSON: decode_cost(2, 5, 10, 4, 4, 2 + 8, small=4 + 8),
    FAST: decode_cost(2, 11, 22, 8, 2, 4 + 8, small=4 + 16),
}


def eight(kind):
    return dict(inputs=functools.partial(inputs, kind=kind), cost=functools.partial(cost, bits=8))


BENCH = dict(
    shapes=[(64, 32, 8, 4096, 128), (1, 32, 8, 32768, 128)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    eager_name="PyTorch, decoded first",
    timing="graph",
    variants={"int4": {}, "int8": eight(torch.int8), "e4m3": eight(E4M3)},
    host_shape=(1, 4, 2, 128, 64),
)
