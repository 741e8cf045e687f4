"""Kimi delta attention: what is compared with formulas, and what is measured.

`shape` is (batch, tokens, heads, head dimension).
"""

import functools

import torch
import torch.nn.functional as F

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._exact import CHUNKS
from operations._packed import ends, ends_made_inside, sequences_of
from operations.gated_delta_rule import delta_operations_of, one_head, short_keys
from operations.gated_delta_rule import tame as tame_of_one_gate
from operations.linear_attention import SCALED, STATE, STATES, USUAL

LESSON = "recurrences.kda"
FAST = "fast.kda"
FUNCTION = "kda"
AXES = ("batch", "tokens", "heads", "head dimension")
DERIVATION = "kda"
# A chunk of 64 tokens and a part of one; columns are walked side by side, 8 of them as 72.
WITHOUT_ROUNDING = {"atoms": CHUNKS, "sizes": {"one_walk": {"m": 66, "n": 8}}}


# ---------------------------------------------------------------- public functions
def gates_of_channels(batch, tokens, width):
    return short_keys(batch, tokens, width) | {"g": -torch.randn(batch, tokens, 2, width).abs() / 8}


def gates_of_packed_channels(tokens, width):
    return {name: x[0] for name, x in gates_of_channels(1, tokens, width).items()} | {"cu_seqlens": ends(tokens)}


def of_sequences(*tensors, **inputs):
    from annotated_examples.recurrences.kda import kda_reference

    return sequences_of(kda_reference)(*tensors, **inputs)


PUBLIC = [
    Public(
        "kda", gates_of_channels, at=(1, 40, 64), float32=("g", "beta"), **USUAL,
        more=[SCALED | dict(inputs=STATE)], calls=[{}],
    ),
    Public(
        "kda_varlen", gates_of_packed_channels, at=(40, 64), float32=("g", "beta"), **USUAL,
        calls=[dict(inputs=STATES)],
        more=[SCALED | dict(inputs=STATES, wrap=ends_made_inside(40, "cu_seqlens"))], reference=of_sequences,
    ),
]  # fmt: skip


# ---------------------------------------------------------------- what is compared with formulas
GRADIENTS = {"Q": "KDA-dq", "K": "KDA-dk", "V": "KDA-dv", "g": "KDA-dg", "beta": "KDA-dbeta", "Sigma": "KDA-dS"}


def tame(Q, K, V, g, beta, Sigma):
    """Short keys, gates that leave something, and numbers of a few units."""
    return tame_of_one_gate(Q, K, V, g, beta, Sigma)


IN_FLOAT32 = dict(modules=LESSON, values=tame, sizes={"m": 7, "d": 3, "n": 4}, dtypes=("float32",), forward_only=True)


@case(
    modules=LESSON,
    returns=("KDA-O", "KDA-next"),
    gradients=GRADIENTS,
    values=tame,
    sizes={"m": 35, "d": 3, "n": 4},
)
def kda(module, Q, K, V, g, beta, Sigma, s):
    q, k, v, gates, betas = one_head(Q, K, V, g.float(), beta)
    state = Sigma.float()[None, None]
    o, final = module.kda(q, k, v, gates, betas, scale=s, initial_state=state, return_final_state=True)
    return o[0, :, 0], final[0, 0]


@case(modules=LESSON, returns="KDA-chunk", values=tame, sizes={"m": 7, "d": 3, "n": 4}, forward_only=True)
def one_sequence_of_several(module, Q, K, V, g, beta, Sigma, s, m):
    """Between two others, which have a token each."""
    others = lambda x: torch.cat([x[:1], x, x[:1]])[:, None]  # noqa: E731
    ends = torch.tensor([0, 1, 1 + m, 2 + m], dtype=torch.int32, device=Q.device)
    state = Sigma.float().expand(3, 1, -1, -1)
    q, k, v, gates, betas = (others(x) for x in (Q, K, V, g.float(), beta))
    o, _ = module.kda_varlen(q, k, v, gates, betas, ends, scale=s, initial_state=state, return_final_state=True)
    return o[1 : 1 + m, 0]


@one_sequence_of_several.pytorch
def _(module, Q, K, V, g, beta, Sigma, s):
    return module.kda_reference(*one_head(Q, K, V, g, beta), scale=s, initial_state=Sigma[None, None])[0, :, 0]


# ---------------------------------------------------------------- 16-bit numbers that a descriptor can describe
one_walk = kda.again(modules=FAST, sizes={"m": 70, "d": 8, "n": 72}, dtypes=("bfloat16",))
one_walk_of_several = one_sequence_of_several.again(modules=FAST, sizes={"m": 7, "d": 8, "n": 16}, dtypes=("bfloat16",))


@case(
    modules=FAST,
    returns="KDA-chunk",
    values=tame,
    sizes={"m": 70, "d": 8, "n": 16},
    dtypes=("bfloat16",),
    forward_only=True,
)
def in_parts(module, Q, K, V, g, beta, Sigma, s):
    """As a long text of few heads is: in parts, of 64 tokens and of six."""
    q, k, v, gates, betas = (x.transpose(1, 2) for x in one_head(Q, K, V, g.float(), beta))
    o, _ = module.kda_forward(q, k, v, gates, betas, Sigma.float()[None, None], None, scale=s, LENGTH=64)
    return o[0, 0]


@in_parts.pytorch
def _(module, Q, K, V, g, beta, Sigma, s):
    return module.kda_reference(*one_head(Q, K, V, g, beta), scale=s, initial_state=Sigma[None, None])[0, :, 0]


# ---------------------------------------------------------------- what is never returned
# The third of four heads of values, which share two heads of keys, in blocks of channels and tiles of columns.
@case(
    modules=LESSON,
    returns=("KDA-O", "KDA-next"),
    gradients=GRADIENTS,
    values=tame,
    sizes={"m": 18, "d": 35, "n": 35},
)
def head_of_several(module, Q, K, V, g, beta, Sigma, s):
    fixed = [x.detach() for x in (Q, K, V, g.float(), beta)]
    first, second = one_head(*fixed), one_head(*(x.flip(0) for x in fixed))
    last = one_head(Q, K, V, g.float(), beta)
    q, k = (torch.cat([second[at], last[at]], 2) for at in (0, 1))
    v, gates, betas = (torch.cat([first[at], second[at], last[at], second[at]], 2) for at in (2, 3, 4))
    state = torch.stack([Sigma.float() * n for n in (2, 3, 1, 4)])[None]
    o, final = module.kda(q, k, v, gates, betas, scale=s, initial_state=state, return_final_state=True)
    return o[0, :, 2], final[0, 2]


@head_of_several.pytorch
def _(module, Q, K, V, g, beta, Sigma, s):
    heads, state = one_head(Q, K, V, g, beta), Sigma[None, None]
    o, final = module.kda_reference(*heads, scale=s, initial_state=state, return_final_state=True)
    return o[0, :, 0], final[0, 0]


@case(modules=LESSON, returns="KDA-S", values=tame, sizes={"m": 7, "d": 3, "n": 4}, forward_only=True)
def states(module, Q, K, V, g, beta, Sigma, d):
    """Queries that are the columns of an identity read one row of the state each."""
    m = len(K)
    q = torch.eye(d, dtype=K.dtype, device=K.device)[:, None, None].expand(d, m, 1, d)
    k, v, gates, betas = (x.expand(d, *x.shape[1:]) for x in one_head(K, V, g.float(), beta))
    state = Sigma.float().expand(d, 1, -1, -1)
    o = module.kda(q, k, v, gates, betas, scale=1.0, initial_state=state)[:, :, 0]
    return torch.cat([Sigma[None], o.transpose(0, 1)])


def launched(module, Q, K, V, g, beta, Sigma, s):
    """What a chunk's system is solved for: `(p, u, inverse)`, in tiles of 16 tokens. The kernel leaves out the ones on
    the inverse's diagonal."""
    q, k, v, gates, betas = (x.transpose(1, 2) for x in one_head(Q, K, V, g.float(), beta))
    walk, part = module.sizes(k, v, 16, 16, 16)
    chunks, inverse = module.cut(k, None, 16), K.new_empty(1, 1, 16, 16)
    state = Sigma.float()[None, None].contiguous()
    p, u, _, _ = module.differences(q, k, v, gates, betas, state, None, chunks, s, walk, part, inverse)
    m = len(K)
    return p[0, 0, :m, :m], u[0, 0], inverse[0, 0, :m, :m] + torch.eye(m, device=K.device)


@case(**IN_FLOAT32, returns=("KDA-P", "KDA-U", "KDA-T"))
def system(module, Q, K, V, g, beta, Sigma, s):
    return launched(module, Q, K, V, g, beta, Sigma, s)


@system.pytorch
def _(module, Q, K, V, g, beta, Sigma, s):
    inverse, decay = in_pytorch(K, g, beta)
    P = s * torch.einsum("ia,ja,ija->ij", Q, K, decay)
    return P, inverse @ (beta[:, None] * (V - (K * g.cumsum(0).exp()) @ Sigma)), inverse


@case(**IN_FLOAT32, returns="KDA-W")
def part_of_the_state(module, K, g, beta, d):
    """With values of 0 and the identity for a state, the differences are -W."""
    identity = torch.eye(d, device=K.device)
    return -launched(module, K, K, torch.zeros_like(K), g, beta, identity, 1.0)[1]


@part_of_the_state.pytorch
def _(module, K, g, beta, d):
    return in_pytorch(K, g, beta)[0] @ (beta[:, None] * g.cumsum(0).exp() * K)


def in_pytorch(K, g, beta):
    """The inverse of the chunk's system, and what is left of each channel between two tokens."""
    G, ones = g.cumsum(0), torch.eye(len(K), dtype=K.dtype, device=K.device)
    later = torch.ones_like(ones).triu(1)[..., None] > 0
    decay = (G[:, None] - G).masked_fill(later, -torch.inf).exp()
    A = (torch.einsum("ia,ja,ija->ij", K, K, decay) * beta[:, None]).tril(-1)
    return torch.linalg.solve_triangular(A, ones, upper=False, unitriangular=True), decay


# ---------------------------------------------------------------- what is measured
CHUNK = 32


# As the gated delta rule, with a gate for each number of a key. On each level of halves there are products of all
# pairs, of which a half of a half is used; counted is what is used.
def cost(shape, dtype):
    B, T, H, D = shape
    tensor, gates, numbers = B * T * H * D * dtype.itemsize, 4 * B * T * H * D, 4 * B * T * H
    forward = delta_operations_of(B, T, H, D, D, CHUNK)
    return {
        "forward": dict(bytes_read=3 * tensor + gates + numbers, bytes_written=tensor, operations=forward),
        "backward": dict(
            bytes_read=4 * tensor + gates + numbers, bytes_written=3 * tensor + gates + numbers,
            operations=5 * forward // 2,
        ),
    }  # fmt: skip


def inputs(shape, dtype, device):
    B, T, H, D = shape
    made = {name: torch.randn(shape, dtype=dtype, device=device) for name in "qkv"}
    made["k"] = F.normalize(made["k"].float(), dim=-1).to(dtype)
    g = F.logsigmoid(torch.randn(shape, device=device) + 3)
    return made | dict(g=g, beta=torch.rand(B, T, H, device=device))


def reference(q, k, v, g, beta):
    """64 tokens at a time, from state to state: in float64 each token is a step, and backward keeps what each made."""
    from torch.utils.checkpoint import checkpoint

    from annotated_examples.recurrences.kda import kda_reference

    part = functools.partial(checkpoint, kda_reference, return_final_state=True, use_reentrant=False)
    outputs, state = [], None
    for tokens in zip(*(x.split(64, dim=1) for x in (q, k, v, g, beta))):
        o, state = part(*tokens, initial_state=state)
        outputs.append(o)
    return torch.cat(outputs, dim=1)


def fla(inputs):
    from fla.ops.kda import chunk_kda

    return lambda q, k, v, g, beta: chunk_kda(q, k, v, g, beta)[0]


_EXAMPLE, _FAST = delta_operations_of(1, 4, 1, 2, 2, 4), delta_operations_of(1, 4, 1, 8, 8, 4)
# The state at the end is written, too, and so is the gradient of the one at the start.
EXAMPLES = {
    LESSON: {
        "forward": dict(bytes_read=4 * (4 * 8 + 4), bytes_written=4 * (8 + 4), operations=_EXAMPLE),
        "backward": dict(bytes_read=4 * (5 * 8 + 4), bytes_written=4 * (4 * 8 + 4 + 4), operations=5 * _EXAMPLE // 2),
    },
    # Backward, two gradients are written in two parts.
    FAST: {
        "forward": dict(bytes_read=2 * 3 * 32 + 4 * 36, bytes_written=2 * 32 + 4 * 64, operations=_FAST),
        "backward": dict(
            bytes_read=2 * 4 * 32 + 4 * 36, bytes_written=2 * 2 * 32 + 4 * 4 + 4 * 64, operations=5 * _FAST // 2
        ),
    },
}  # fmt: skip
BENCH = dict(
    shapes=[(8, 4096, 16, 128), (1, 16384, 16, 128)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    compile=False,
    host_shape=(1, 128, 2, 64),
    eager=reference,
    time_eager=False,
    peers={"fla": fla},
    variants={"": {}, "backward": dict(passes=["backward"], differentiable=["q", "k", "v", "g", "beta"])},
)
