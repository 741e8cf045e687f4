"""Writing a cache of few bits: what is compared with formulas, and what is measured.

Codes are compared as numbers. What rounding did is given to the formulas: it is computed here, in PyTorch, from the
same numbers. `shape` is (tokens, heads, head dimension).
"""

from functools import partial

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "attention.quantized_cache"
FAST = None
FUNCTION = "append_"
AXES = ("tokens", "heads", "head dimension")
DERIVATION = "quantized_cache"
#: One page has room for so many tokens.
PAGE = 16
E4M3 = torch.float8_e4m3fn


# ---------------------------------------------------------------- public functions
def empty(dtype, pages, page_size, heads, width, device=None):
    """A cache of ones, and its scale."""
    four = dtype == torch.uint8
    cache = torch.ones(pages, page_size, heads, width // (1 + four), dtype=torch.uint8, device=device)
    return cache.view(dtype), torch.ones(pages, page_size, heads, 1 + four, device=device)


def new_tokens(tokens, width, bits):
    """Every second slot of a pool, from behind."""
    dtype = {4: torch.uint8, 7: torch.int8, 8: E4M3}[bits]
    cache, scale = empty(dtype, tokens // 2 + 1, 4, 2, width)
    return dict(cache=cache, scale=scale, x=torch.randn(tokens, 2, width), slots=torch.arange(tokens).flip(0) * 2)


def whole_pages(pages, width):
    cache, scale = empty(torch.uint8, pages + 1, PAGE, 2, width)[0], torch.ones(pages + 1, 2, width, 2)
    return dict(cache=cache, scale=scale, x=torch.randn(pages, PAGE, 2, width), pages=torch.arange(pages) + 1)


def in_copies(granularity):
    """Of a cache and its scale, since inputs stay as they are. What was written is returned, decoded."""

    def wrap(write):
        def call(cache, scale, x, **others):
            from annotated_examples.common.codes import decoded

            cache, scale = cache.clone(), scale.float().clone()
            write(cache, scale, x, **others)
            return decoded(cache, scale, granularity, torch.float32)

        return call

    return wrap


def with_signs(write):
    def call(x, **others):
        signs = 1.0 - torch.arange(x.shape[-1], device=x.device) % 3 // 2 * 2
        return in_copies("token")(write)(x=x, signs=signs.float(), **others)

    return call


EVEN = {"width": (16, 40)}
PUBLIC = [
    Public(
        "append_", new_tokens, at=(9, 64, 4), sizes=EVEN | {"bits": (4, 7, 8)}, float32=("scale",),
        wrap=in_copies("token"), differentiable=False, reference=f"{LESSON}.append_reference",
        calls=[{}, dict(wrap=with_signs)], more=[*(dict(inputs=partial(new_tokens, 5, 40, bits)) for bits in (7, 8))],
    ),
    Public(
        "quantize_key_pages_", whole_pages, at=(3, 64), sizes=EVEN, float32=("scale",), wrap=in_copies("channel"),
        differentiable=False, reference=f"{LESSON}.quantize_key_pages_reference",
    ),
]  # fmt: skip
HELPERS = {"dequantize_cache": "in PyTorch, to look at a cache"}


# ---------------------------------------------------------------- what is compared with formulas
def rounding(A, dtype):
    """r: what rounding did to each code."""
    from annotated_examples.attention.quantized_cache import quantized_reference

    codes, _ = quantized_reference(A, dtype)
    A = A.double()
    if dtype == torch.uint8:
        lowest, highest = A.amin(1, keepdim=True), A.amax(1, keepdim=True)
        exact = (A - lowest) / ((highest - lowest) / 15 + (highest == lowest))
    else:
        exact = A / (A.abs().amax(1, keepdim=True) / 127)
    return {"r": codes.double() - exact}


def four_bits(A):
    return rounding(A, torch.uint8)


def whole_numbers(A):
    return rounding(A, torch.int8)


ALL = ("float32", "float16", "bfloat16")
USUAL = dict(modules=LESSON, sizes={"n": 19, "d": 36}, dtypes=ALL, forward_only=True)


def stored(A, dtype):
    """Two heads with the same keys, in every second slot of pages of three from behind."""
    n, A = len(A), torch.cat([A, A], 1) if A.shape[1] % 2 else A
    cache, scale = empty(dtype, n, 3, 2, A.shape[1], A.device)
    return cache, scale, A[:, None].expand(-1, 2, -1), torch.arange(n, device=A.device).flip(0) * 2


def read(cache, scale, slots, like):
    """Codes and scales of the second head."""
    codes, steps = (x.flatten(0, 1)[slots, 1] for x in (cache, scale))
    if codes.dtype == torch.uint8:
        codes = torch.stack([codes & 15, codes >> 4], -1).flatten(1)
    return codes.double()[:, : like.shape[1]], steps


@case(**USUAL, returns=("KV-code", "KV-step", "KV-lowest"), values=four_bits)
def in_four_bits(module, A):
    cache, scale, x, slots = stored(A, torch.uint8)
    module.append_(cache, scale, x, slots)
    codes, steps = read(cache, scale, slots, A)
    return codes, steps[:, 0], steps[:, 1]


@in_four_bits.pytorch
def _(A):
    from annotated_examples.attention.quantized_cache import quantized_reference

    codes, steps = quantized_reference(A, torch.uint8)
    return codes.double(), steps[:, 0, 0], steps[:, 0, 1]


@case(**USUAL, returns=("KV-code8", "KV-scale"), values=whole_numbers)
def in_eight_bits(module, A):
    cache, scale, x, slots = stored(A, torch.int8)
    module.append_(cache, scale, x, slots)
    codes, steps = read(cache, scale, slots, A)
    return codes, steps[:, 0]


@in_eight_bits.pytorch
def _(A):
    from annotated_examples.attention.quantized_cache import quantized_reference

    codes, steps = quantized_reference(A, torch.int8)
    return codes.double(), steps[:, 0, 0]


@case(**USUAL, returns=("KV-code", "KV-step", "KV-lowest"), values=four_bits)
def by_channel(module, A):
    """Each row is a channel of a page with `d` tokens; two pages, of which the second is stored in front."""
    x = torch.stack([A.T + 1, A.T])[:, :, None]
    if len(A) % 2:
        x = torch.cat([x, x[..., :1]], -1)
    cache, scale = empty(torch.uint8, 3, x.shape[1], 1, x.shape[3], A.device)[0], A.new_ones(3, 1, x.shape[3], 2)
    scale = scale.float()
    module.quantize_key_pages_(cache, scale, x, torch.tensor([2, 0], device=A.device))
    codes = torch.stack([cache[0, :, 0] & 15, cache[0, :, 0] >> 4], -1).flatten(1).T[: len(A)]
    return codes.double(), scale[0, 0, : len(A), 0], scale[0, 0, : len(A), 1]


by_channel.pytorch(in_four_bits.said["pytorch"])


def whole(n, d):
    """Every code, next to every other."""
    return {"X": (torch.arange(n)[:, None] * 7 + torch.arange(d) ** 2 % 23) % 16.0}


@case(modules=LESSON, returns="KV-k", values=whole, sizes={"n": 18, "d": 36}, dtypes=ALL, forward_only=True)
def what_codes_stand_for(module, X, beta, sigma):
    """Pages of one key."""
    codes, scale = X.to(torch.uint8), torch.stack([sigma, beta], -1).float()[:, None, None]
    codes = torch.cat([codes, codes], 1) if X.shape[1] % 2 else codes
    packed = (codes[:, ::2] | codes[:, 1::2] << 4)[:, None, None]
    found = module.dequantize_cache(codes=packed, scale=scale, granularity="token", signs=None, dtype=X.dtype)
    return found.flatten(0, 2)[:, : X.shape[1]]


@what_codes_stand_for.pytorch
def _(X, beta, sigma):
    return (X * sigma.float()[:, None] + beta.float()[:, None]).to(X.dtype)


# ---------------------------------------------------------------- what is measured
def append_cost(tokens, heads, width, size, bits, places):
    """size: bytes of a number of x. places: bytes of the slots. A number is compared twice, moved and divided."""
    rows = tokens * heads
    written = rows * (width * bits // 8 + (8 if bits == 4 else 4))
    return {
        "forward": dict(bytes_read=rows * width * size + places, bytes_written=written, operations=4 * rows * width)
    }


def cost(shape, dtype):
    return append_cost(*shape, dtype.itemsize, 4, 4 * shape[0])


def inputs(shape, dtype, device):
    """As many slots as tokens, in any order."""
    tokens, heads, width = shape
    cache, scale = empty(torch.uint8, tokens // PAGE, PAGE, heads, width, device)
    slots = torch.randperm(tokens, dtype=torch.int32, device=device)
    return dict(cache=cache, scale=scale, x=torch.randn(shape, dtype=dtype, device=device), slots=slots)


def steps_of(write):
    """Steps and lowest values are what is compared."""

    def call(cache, scale, x, slots):
        write(cache, scale, x, slots)
        return scale

    return call


def eager(cache, scale, x, slots):
    from annotated_examples.attention.quantized_cache import append_reference

    return steps_of(append_reference)(cache, scale, x, slots)


# Of three tokens of four numbers two are stored.
EXAMPLES = {LESSON: append_cost(2, 1, 4, 4, 4, places=12)}
BENCH = dict(
    shapes=[(262_144, 8, 128), (64, 8, 128)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=steps_of,
    eager=eager,
    eager_name="PyTorch",
    host_shape=(64, 2, 64),
)
