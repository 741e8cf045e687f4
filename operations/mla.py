"""Latent attention with keys: what is compared with formulas, and what is measured.

`shape` is (batch, heads, tokens, width of the unrotated part, of the rotated part, of a value).
"""

import functools

import torch
import torch.nn.functional as F

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._attention import DENSE, flex

LESSON = "attention.mla"
FAST = None
FUNCTION = "mla_attention"
AXES = ("batch", "heads", "tokens", "key width", "rotated width", "value width")
DERIVATION = "mla"
# A softmax of 23 keys would have a denominator that 23 divides.
WITHOUT_ROUNDING = {"sizes": {"": {"m": 12, "p": 9}}}

# ---------------------------------------------------------------- public functions
PUBLIC = [
    Public(
        "mla_attention",
        {
            "q_nope": "batch 4 queries width", "q_pe": "batch 4 queries rotated", "k_nope": "batch 4 keys width",
            "k_pe": "batch keys rotated", "v": "batch 4 keys columns", "causal": (True, False),
        },
        at=(1, 40, 64, 16, 40, 32), calls=[dict(causal=True)], more=[dict(causal=False, scale=0.2, return_lse=True)],
        sizes={"width": (16, 40), "rotated": (8, 16), "columns": (16, 24)}, without=DENSE, batch={"batch": ""},
    )
]  # fmt: skip


# ---------------------------------------------------------------- what is compared with formulas
def tame(Q, R, C, E, U, W, s):
    """Scores of a few units. Around ±10⁴ each softmax has a single key, and nothing is compared but its choice."""
    return {name: torch.sin(x) for name, x in dict(Q=Q, R=R, C=C, E=E, U=U, W=W).items()} | {"s": 0.75}


def decompressed(C, U, W):
    """Keys and values of each head."""
    return C @ U.mT, C @ W.mT


USUAL = dict(values=tame, sizes={"g": 3, "m": 19, "p": 14, "d": 5, "t": 3, "r": 6, "v": 7})
DECOMPRESSED = {"Q": "MLA-dQ", "R": "MLA-dR", "C": "MLA-dC", "E": "MLA-dE", "U": "MLA-dU", "W": "MLA-dW"}


@case(modules=LESSON, returns=("MLA-O", "MLA-lse"), gradients=DECOMPRESSED, **USUAL)
def mla_attention(module, Q, R, C, E, U, W, s):
    k, v = decompressed(C, U, W)
    o, lse = module.mla_attention(Q[None], R[None], k[None], E[None], v[None], scale=s, return_lse=True)
    return o[0], lse[0]


BACKWARD = ("MLA-dQ", "MLA-dR", "MLA-dK", "MLA-dE", "MLA-dV")


@case(
    modules=LESSON, returns=BACKWARD, forward_only=True, dtypes=("float32",), values=tame,
    sizes=USUAL["sizes"] | {"p": 37},
)  # fmt: skip
def gradients_of_keys_and_values(module, Q, R, C, E, U, W, s, nabla_O, nabla_L):
    """In tiles of 16, with older keys of more than two tiles."""
    k, v = decompressed(C, U, W)
    inputs, tiles = [x[None] for x in (Q, R, k, E, v)], dict(BLOCK_M=16, BLOCK_N=16)
    o, lse = module.mla_attention_forward(*inputs, True, s, **tiles)
    upstream = nabla_O[None], nabla_L[None].float()
    found = module.mla_attention_backward(*upstream, *inputs, o, lse, True, s, **tiles)
    return tuple(x[0] for x in found)


@gradients_of_keys_and_values.pytorch
def _(module, Q, R, C, E, U, W, s, nabla_O, nabla_L):
    k, v = decompressed(C, U, W)
    inputs = [x[None].detach().requires_grad_() for x in (Q, R, k, E, v)]
    o, lse = module.mla_attention_reference(*inputs, scale=s, return_lse=True)
    found = torch.autograd.grad((o, lse), inputs, (nabla_O[None], nabla_L[None].to(lse.dtype)))
    return tuple(x[0] for x in found)


# ---------------------------------------------------------------- what is never returned
def identity_values(C, W):
    return torch.eye(len(C), dtype=C.dtype, device=C.device).expand(len(W), -1, -1)


@case(modules=LESSON, returns="MLA-P", forward_only=True, **USUAL)
def probabilities(module, Q, R, C, E, U, W, s):
    """Values that are the columns of an identity leave the probabilities as they are."""
    k, _ = decompressed(C, U, W)
    return module.mla_attention(Q[None], R[None], k[None], E[None], identity_values(C, W)[None], scale=s)[0]


def identity_keys(Q, R, C, E, U, W, s):
    """Keys that are the rows of an identity: then the gradient of a score is that of a query."""
    identity = lambda x: torch.eye(*x.shape[-2:], dtype=x.dtype, device=x.device).expand_as(x)  # noqa: E731
    return {**tame(Q, R, C, E, U, W, s), "C": identity(C), "U": identity(U), "s": 1.0}


IDENTITY = dict(values=identity_keys, sizes={"g": 2, "m": 5, "p": 4, "d": 9, "t": 3, "r": 9, "v": 6})


@case(modules=LESSON, returns="MLA-dS", forward_only=True, **IDENTITY)
def gradient_of_scores(module, Q, R, C, E, U, W, nabla_O, nabla_L, n):
    q, k, v = widened(n, Q, C, W)
    o, lse = module.mla_attention_forward(q, R[None], k, E[None], v, True, 1.0)
    upstream = nabla_O[None], nabla_L[None].float()
    return module.mla_attention_backward(*upstream, q, R[None], k, E[None], v, o, lse, True, 1.0)[0][0, ..., :n]


@gradient_of_scores.pytorch
def _(module, Q, R, C, E, U, W, nabla_O, nabla_L, n):
    q, k, v = widened(n, Q, C, W)
    q.requires_grad_()
    o, lse = module.mla_attention_reference(q, R[None], k, E[None], v, scale=1.0, return_lse=True)
    return torch.autograd.grad((o, lse), q, (nabla_O[None], nabla_L[None].to(lse.dtype)))[0][0, ..., :n]


def widened(n, Q, C, W):
    """Queries of as many columns as there are keys, these keys, an identity, and the values."""
    q = F.pad(Q, (0, max(n - Q.shape[2], 0)))[None].detach()
    return q, torch.eye(n, q.shape[3], dtype=C.dtype, device=C.device).expand(1, len(W), -1, -1), (C @ W.mT)[None]


# ---------------------------------------------------------------- what is measured
def latent_cost(B, H, T, S, D, E, V, size, pairs):
    """pairs: of a query and a key that it sees, of all heads together."""
    queries, keys, values = B * H * T * (D + E) * size, B * S * (H * D + E) * size, B * H * S * V * size
    o, rows, inputs = B * H * T * V * size, B * H * T, queries + keys + values
    lse = rows * (8 if size == 4 else 4)
    return {
        "forward": dict(bytes_read=inputs, bytes_written=o + lse, operations=2 * pairs * (D + E + V)),
        "backward": dict(
            bytes_read=inputs + 2 * o + lse + 4 * rows,
            bytes_written=inputs,
            operations=2 * pairs * (3 * (D + E) + 2 * V),
        ),
    }


def cost(shape, dtype):
    B, H, T, D, E, V = shape
    return latent_cost(B, H, T, T, D, E, V, dtype.itemsize, B * H * T * (T + 1) // 2)


def inputs(shape, dtype, device):
    B, H, T, D, E, V = shape
    shapes = dict(q_nope=(B, H, T, D), q_pe=(B, H, T, E), k_nope=(B, H, T, D), k_pe=(B, T, E), v=(B, H, T, V))
    return {name: torch.randn(size, dtype=dtype, device=device) for name, size in shapes.items()}


def whole(q_nope, q_pe, k_nope, k_pe):
    """Queries and keys in one piece, with the shared part copied to every head."""
    return torch.cat([q_nope, q_pe], -1), torch.cat([k_nope, k_pe[:, None].expand(*q_pe.shape[:2], -1, -1)], -1)


def sdpa(backend):
    """PyTorch's attention of whole keys."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call(q_nope, q_pe, k_nope, k_pe, v):
        q, k = whole(q_nope, q_pe, k_nope, k_pe)
        padding = k.shape[-1] - v.shape[-1] if backend == "FLASH_ATTENTION" else 0  # which has one width for both
        with sdpa_kernel(getattr(SDPBackend, backend)):
            o = F.scaled_dot_product_attention(q, k, F.pad(v, (0, padding)), is_causal=True)
        return o[..., : v.shape[-1]]

    return call


def flex_of_whole_keys(inputs):
    attention = flex(inputs["q_nope"], inputs["k_nope"], causal=True)
    return lambda q_nope, q_pe, k_nope, k_pe, v: attention(*whole(q_nope, q_pe, k_nope, k_pe), v)


def reference(q_nope, q_pe, k_nope, k_pe, v):
    from annotated_examples.attention.mla import mla_attention_reference

    return mla_attention_reference(q_nope, q_pe, k_nope, k_pe, v)


# Two heads, three queries that see 2, 3 and 4 keys.
EXAMPLES = {LESSON: latent_cost(1, 2, 3, 4, 2, 1, 2, 4, pairs=18)}
BENCH = dict(
    shapes=[(1, 128, 4096, 128, 64, 128), (4, 16, 4096, 128, 64, 128)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=sdpa("FLASH_ATTENTION"),
    eager_name="flash-2 (SDPA), v padded",
    reference=reference,
    compile=False,
    peers={"cuDNN (SDPA)": functools.partial(sdpa, "CUDNN_ATTENTION"), "flex, compiled": flex_of_whole_keys},
    passes=["forward", "backward"],
    differentiable=["q_nope", "q_pe", "k_nope", "k_pe", "v"],
    host_shape=(1, 2, 128, 64, 32, 64),
)
