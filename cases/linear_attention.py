"""What calls of the linear attention kernels are compared with the formulas of backprop_math/linear_attention.md."""

from academy.formulas.cases import case

MODULES = ("recurrences.linear_attention",)
FAST = ("fast.linear_attention",)


def tame(Q, K, V, g, Sigma):
    """Gates that leave something, and numbers of a few units: a state is a sum of products."""
    import torch

    return {
        "Q": torch.sin(Q),
        "K": torch.sin(K),
        "V": torch.sin(V),
        "Sigma": torch.sin(Sigma),
        "g": -torch.sin(g).abs() / 4,
        "s": 0.7,
    }


def one_head(*tensors):
    """(tokens, width) and (tokens,) as (1, tokens, 1, width) and (1, tokens, 1)."""
    return [x[None, :, None] for x in tensors]


@case(
    modules=MODULES,
    returns=("LA-O", "LA-next"),
    gradients={"Q": "LA-dq", "K": "LA-dk", "V": "LA-dv", "g": "LA-dg", "Sigma": "LA-dS"},
    values=tame,
    sizes={"m": 35, "d": 3, "n": 4},
)
def linear_attention(module, Q, K, V, g, Sigma, s):
    q, k, v, gates = one_head(Q, K, V, g.float())
    state = Sigma.float()[None, None]
    o, final = module.linear_attention(q, k, v, gates, scale=s, initial_state=state, return_final_state=True)
    return o[0, :, 0], final[0, 0]


@case(modules=MODULES, returns="LA-chunk", values=tame, sizes={"m": 7, "d": 3, "n": 4}, forward_only=True)
def one_sequence_of_several(module, Q, K, V, g, Sigma, s, m):
    """Between two others, which have a token each."""
    import torch

    others = lambda x: torch.cat([x[:1], x, x[:1]])[:, None]  # noqa: E731
    ends = torch.tensor([0, 1, 1 + m, 2 + m], dtype=torch.int32, device=Q.device)
    state = Sigma.float().expand(3, 1, -1, -1)
    q, k, v, gates = (others(x) for x in (Q, K, V, g.float()))
    o, _ = module.linear_attention_varlen(q, k, v, ends, gates, scale=s, initial_state=state, return_final_state=True)
    return o[1 : 1 + m, 0]


@one_sequence_of_several.pytorch
def _(module, Q, K, V, g, Sigma, s):
    return module.linear_attention_reference(*one_head(Q, K, V, g), scale=s, initial_state=Sigma[None, None])[0, :, 0]


# ---------------------------------------------------------------- 16-bit numbers that a descriptor can describe
one_walk = linear_attention.again(modules=FAST, sizes={"m": 70, "d": 8, "n": 72}, dtypes=("bfloat16",))
one_walk_of_several = one_sequence_of_several.again(modules=FAST, sizes={"m": 7, "d": 8, "n": 16}, dtypes=("bfloat16",))


@case(
    modules=FAST,
    returns="LA-chunk",
    values=tame,
    sizes={"m": 70, "d": 8, "n": 16},
    dtypes=("bfloat16",),
    forward_only=True,
)
def in_parts(module, Q, K, V, g, Sigma, s):
    """As a long text of few heads is: in parts, of 64 tokens and of six."""
    q, k, v, gates = (x.transpose(1, 2) for x in one_head(Q, K, V, g.float()))
    o, _ = module.linear_attention_forward(q, k, v, gates, Sigma.float()[None, None], None, scale=s, LENGTH=64)
    return o[0, 0]


@in_parts.pytorch
def _(module, Q, K, V, g, Sigma, s):
    return module.linear_attention_reference(*one_head(Q, K, V, g), scale=s, initial_state=Sigma[None, None])[0, :, 0]


# ---------------------------------------------------------------- what is never returned
@case(modules=MODULES, returns="LA-S", values=tame, sizes={"m": 7, "d": 3, "n": 4}, forward_only=True)
def states(module, Q, K, V, g, Sigma, d):
    """Queries that are the columns of an identity read one row of the state each."""
    import torch

    m = len(K)
    q = torch.eye(d, dtype=K.dtype, device=K.device)[:, None, None].expand(d, m, 1, d)
    k, v, gates = (x.expand(d, *x.shape[1:]) for x in one_head(K, V, g.float()))
    state = Sigma.float().expand(d, 1, -1, -1)
    o = module.linear_attention(q, k, v, gates, scale=1.0, initial_state=state)[:, :, 0]
    return torch.cat([Sigma[None], o.transpose(0, 1)])


@case(modules=MODULES, returns="LA-P", values=tame, sizes={"m": 7, "d": 3}, forward_only=True)
def scores(module, Q, K, V, g, s, m):
    """Values that are the columns of an identity leave the scores as they are."""
    import torch

    identity = torch.eye(m, dtype=V.dtype, device=V.device)
    return module.linear_attention(*one_head(Q, K, identity, g.float()), scale=s)[0, :, 0]


@case(modules=MODULES, returns="LA-L", values=tame, sizes={"m": 7}, forward_only=True)
def decay(module, V, g, m):
    """All products of queries and keys are 1."""
    import torch

    ones, identity = torch.ones_like(V[:, :1]), torch.eye(m, dtype=V.dtype, device=V.device)
    return module.linear_attention(*one_head(ones, ones, identity, g.float()), scale=1.0)[0, :, 0]
