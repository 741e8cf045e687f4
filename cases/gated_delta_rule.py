"""What calls of the gated delta rule's kernels are compared with the formulas of backprop_math/gated_delta_rule.md."""

from academy.formulas.cases import case

MODULES = ("recurrences.gated_delta_rule",)
FAST = ("fast.gated_delta_rule",)
STEP = "recurrences.gated_delta_rule_step"


def tame(Q, K, V, g, beta, Sigma):
    """Short keys, gates that leave something, and numbers of a few units."""
    import torch

    return {
        "Q": torch.sin(Q),
        "K": torch.sin(K) / max(K.shape[-1], 1) ** 0.5,
        "V": torch.sin(V),
        "Sigma": torch.sin(Sigma),
        "g": -torch.sin(g).abs() / 4,
        "beta": torch.sin(beta).abs(),
        "s": 0.7,
    }


ONE_STEP = dict(modules=STEP, values=tame, sizes={"m": 1, "d": 3, "n": 4}, dtypes=("float32",), forward_only=True)
IN_FLOAT32 = dict(modules=MODULES, values=tame, sizes={"m": 7, "d": 3, "n": 4}, dtypes=("float32",), forward_only=True)


def one_head(*tensors):
    """(tokens, width) and (tokens,) as (1, tokens, 1, width) and (1, tokens, 1)."""
    return [x[None, :, None] for x in tensors]


@case(
    modules=MODULES,
    returns=("GD-O", "GD-next"),
    gradients={"Q": "GD-dq", "K": "GD-dk", "V": "GD-dv", "g": "GD-dg", "beta": "GD-dbeta", "Sigma": "GD-dS"},
    values=tame,
    sizes={"m": 35, "d": 3, "n": 4},
)
def gated_delta_rule(module, Q, K, V, g, beta, Sigma, s):
    q, k, v, gates, betas = one_head(Q, K, V, g.float(), beta)
    state = Sigma.float()[None, None]
    o, final = module.gated_delta_rule(q, k, v, gates, betas, scale=s, initial_state=state, return_final_state=True)
    return o[0, :, 0], final[0, 0]


@case(modules=MODULES, returns="GD-chunk", values=tame, sizes={"m": 7, "d": 3, "n": 4}, forward_only=True)
def one_sequence_of_several(module, Q, K, V, g, beta, Sigma, s, m):
    """Between two others, which have a token each."""
    import torch

    others = lambda x: torch.cat([x[:1], x, x[:1]])[:, None]  # noqa: E731
    ends = torch.tensor([0, 1, 1 + m, 2 + m], dtype=torch.int32, device=Q.device)
    state = Sigma.float().expand(3, 1, -1, -1)
    q, k, v, gates, betas = (others(x) for x in (Q, K, V, g.float(), beta))
    o, _ = module.gated_delta_rule_varlen(
        q, k, v, gates, betas, ends, scale=s, initial_state=state, return_final_state=True
    )
    return o[1 : 1 + m, 0]


@one_sequence_of_several.pytorch
def _(module, Q, K, V, g, beta, Sigma, s):
    q, k, v, gates, betas = one_head(Q, K, V, g, beta)
    reference = module.gated_delta_rule_reference
    return reference(q, k, v, gates, betas, scale=s, initial_state=Sigma[None, None])[0, :, 0]


# ---------------------------------------------------------------- 16-bit numbers that a descriptor can describe
one_walk = gated_delta_rule.again(modules=FAST, sizes={"m": 70, "d": 8, "n": 72}, dtypes=("bfloat16",))
one_walk_of_several = one_sequence_of_several.again(modules=FAST, sizes={"m": 7, "d": 8, "n": 16}, dtypes=("bfloat16",))


@case(
    modules=FAST,
    returns="GD-chunk",
    values=tame,
    sizes={"m": 70, "d": 8, "n": 16},
    dtypes=("bfloat16",),
    forward_only=True,
)
def in_parts(module, Q, K, V, g, beta, Sigma, s):
    """As a long text of few heads is: in parts, of 64 tokens and of six."""
    q, k, v, gates, betas = (x.transpose(1, 2) for x in one_head(Q, K, V, g.float(), beta))
    o, _ = module.gated_delta_rule_forward(q, k, v, gates, betas, Sigma.float()[None, None], None, scale=s, LENGTH=64)
    return o[0, 0]


@in_parts.pytorch
def _(module, Q, K, V, g, beta, Sigma, s):
    q, k, v, gates, betas = one_head(Q, K, V, g, beta)
    reference = module.gated_delta_rule_reference
    return reference(q, k, v, gates, betas, scale=s, initial_state=Sigma[None, None])[0, :, 0]


# ---------------------------------------------------------------- what is never returned
@case(modules=MODULES, returns="GD-S", values=tame, sizes={"m": 7, "d": 3, "n": 4}, forward_only=True)
def states(module, Q, K, V, g, beta, Sigma, d):
    """Queries that are the columns of an identity read one row of the state each."""
    import torch

    m = len(K)
    q = torch.eye(d, dtype=K.dtype, device=K.device)[:, None, None].expand(d, m, 1, d)
    k, v, gates, betas = (x.expand(d, *x.shape[1:]) for x in one_head(K, V, g.float(), beta))
    state = Sigma.float().expand(d, 1, -1, -1)
    o = module.gated_delta_rule(q, k, v, gates, betas, scale=1.0, initial_state=state)[:, :, 0]
    return torch.cat([Sigma[None], o.transpose(0, 1)])


@case(**ONE_STEP, returns=("GD-O", "GD-S"))
def one_token(module, Q, K, V, g, beta, Sigma, s):
    import torch

    state = Sigma.float()[None, None].clone()
    q, k, v = (x[:, None] for x in (Q, K, V))
    o = module.gated_delta_rule_step_(state, q, k, v, g.float()[:, None], beta[:, None], scale=s)
    return o[:, 0], torch.cat([Sigma.float()[None], state[0]])


@one_token.pytorch
def _(Q, K, V, g, beta, Sigma, s):
    import torch

    S = Sigma * g.exp()
    S = S + K[0, :, None] * (beta * (V - K @ S))
    return s * Q @ S, torch.stack([Sigma, S])


@case(**ONE_STEP, returns="GD-O")
def one_state_of_several(module, Q, K, V, g, beta, Sigma, s):
    """The second of two heads of the last of four rows. Two rows have no state, and the states beside the three that
    there are must stay as they are: what is changed there is added to the result."""
    import torch

    kept = torch.stack([torch.stack([Sigma + 7 + 2 * place, Sigma + 8 + 2 * place]) for place in range(5)]).float()
    kept[1, 1] = Sigma
    states = kept.clone()
    slots = torch.tensor([1, -1, 3, 0], dtype=torch.int32, device=Q.device)

    def rows(x):
        """(B, heads, 1, …) of other numbers, but for the last row's second head."""
        return torch.stack([torch.stack([x / (row + 2), x / (5 - row) if row < 3 else x]) for row in range(4)])

    tensors = (rows(x) for x in (Q, K, V, g.float(), beta))
    o = module.gated_delta_rule_step_launch(states[1:4], *tensors, slots, s, BLOCK_E=2)
    strange = o[1:3].abs().sum() + (states - kept)[[0, 3, 4]].abs().sum()
    return o[3, 1] + strange


@one_state_of_several.pytorch
def _(Q, K, V, g, beta, Sigma, s):
    S = Sigma * g.exp()
    return s * Q @ (S + K[0, :, None] * (beta * (V - K @ S)))


def launched(module, K, V, g, beta, Sigma):
    """What each chunk's system is solved for: `(u, inverse)`, in tiles of 16 tokens. The kernel leaves out the ones on
    the inverse's diagonal."""
    import torch

    k, v, gates, betas = (x.transpose(1, 2) for x in one_head(K, V, g.float(), beta))
    launch, chunks = module.sizes(k, v, 16, 16), module.cut(k, None, 16)
    inverse = K.new_empty(chunks.count, 1, 16, 16)
    state = Sigma.float()[None, None].contiguous()
    u, _, _ = module.differences(k, v, gates, betas, state, None, chunks, launch, inverse)
    return u[0, 0], inverse[0, 0, : len(K), : len(K)] + torch.eye(len(K), device=K.device)


@case(**IN_FLOAT32, returns=("GD-U", "GD-T"))
def system(module, K, V, g, beta, Sigma):
    return launched(module, K, V, g, beta, Sigma)


@system.pytorch
def _(module, K, V, g, beta, Sigma):
    inverse = in_pytorch(K, g, beta)
    return inverse @ (beta[:, None] * (V - g.cumsum(0).exp()[:, None] * (K @ Sigma))), inverse


@case(**IN_FLOAT32, returns="GD-W")
def part_of_the_state(module, K, g, beta, d):
    """With values of 0 and the identity for a state, the differences are -W."""
    import torch

    identity = torch.eye(d, device=K.device)
    return -launched(module, K, torch.zeros_like(K), g, beta, identity)[0]


@part_of_the_state.pytorch
def _(module, K, g, beta, d):
    return in_pytorch(K, g, beta) @ ((beta * g.cumsum(0).exp())[:, None] * K)


def in_pytorch(K, g, beta):
    """The inverse of the chunk's system."""
    import torch

    G, ones = g.cumsum(0), torch.eye(len(K), dtype=K.dtype, device=K.device)
    decay = (G[:, None] - G).masked_fill(torch.ones_like(ones).triu(1) > 0, -torch.inf).exp()
    A = ((K @ K.mT) * decay * beta[:, None]).tril(-1)
    return torch.linalg.solve_triangular(A, ones, upper=False, unitriangular=True)
