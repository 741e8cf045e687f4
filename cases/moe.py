"""Which calls of the kernels for experts are compared with the formulas of backprop_math/moe.md.

The formulas have a matrix of tokens by experts, with zeros where nothing was selected. A router returns the selected
weights only: they are put at their experts' places here.
"""

from academy.formulas.cases import case

MODULE = "moe.router"
ALL = ("float32", "float16", "bfloat16")
SIZES = {"T": 7, "E": 12}
EPSILON = {"varepsilon": 1e-20}


def selected(choice, k=3):
    """m: 1 for the largest of each row, and of equal ones for the first."""
    import torch

    order = torch.sort(choice, dim=1, descending=True, stable=True).indices[:, :k]
    return torch.zeros(choice.shape, dtype=torch.float64, device=choice.device).scatter(1, order, 1.0)


def largest(z):
    return EPSILON | {"m": selected(z)}


def biased(z):
    import torch

    return EPSILON | {"m": selected(torch.sigmoid(z.float()) + bias(z))}


def bias(z):
    import torch

    return 0.7 * torch.arange(z.shape[1], device=z.device).remainder(4).float()


def dense(z, routed):
    """Weights at the places of their experts."""
    import torch

    weights, experts = routed
    return torch.zeros(z.shape, dtype=weights.dtype, device=z.device).scatter(1, experts.long(), weights)


def of_weights(nabla_G):
    return nabla_G


def routed(**options):
    """The keywords of a case of `route`."""

    def pytorch(module, z, a):
        arguments = {name: value(z) if callable(value) else value for name, value in options.items()}
        return dense(z, module.route_reference(z, min(3, z.shape[1]), scale=a, **arguments))

    return dict(modules=MODULE, pytorch=pytorch, upstream=of_weights, values=largest, sizes=SIZES, dtypes=ALL)


@case(returns="RO-g", gradients={"z": "RO-dz-selected"}, **routed())
def softmax(module, z, a):
    return dense(z, module.route(z, min(3, z.shape[1]), scale=a))


@case(returns="RO-raw", gradients={"z": "RO-dz"}, **routed(renormalize=False))
def probabilities(module, z, a):
    return dense(z, module.route(logits=z, top_k=min(3, z.shape[1]), renormalize=False, scale=a))


@case(returns="RO-sigma", gradients={"z": "RO-sigma-raw-dz"}, **routed(score="sigmoid", renormalize=False))
def sigmoids(module, z, a):
    return dense(z, module.route(z, min(3, z.shape[1]), score="sigmoid", renormalize=False, scale=a))


@case(returns="RO-sigma-g", gradients={"z": "RO-sigma-dz"}, **routed(score="sigmoid", bias=bias) | {"values": biased})
def sigmoids_with_a_bias(module, z, a):
    return dense(z, module.route(z, min(3, z.shape[1]), score="sigmoid", bias=bias(z), scale=a))


def with_all(z):
    return EPSILON | {"m": selected(z, z.shape[1])}


@case(modules=MODULE, returns="RO-p", values=with_all, sizes=SIZES, dtypes=ALL, forward_only=True)
def all_experts(module, z):
    return dense(z, module.route_forward(z, z.shape[1], "softmax", False, None, 1.0, BLOCK_T=2))


@all_experts.pytorch
def _(z):
    import torch

    return torch.softmax(z.double() if z.dtype == torch.float64 else z.float(), 1)


@case(returns="RO-g", gradients={"z": "RO-dz-selected"}, **routed())
def few_tokens_a_program(module, z, a, nabla_G):
    weights, experts = module.route_forward(z, min(3, z.shape[1]), "softmax", True, None, a, BLOCK_T=2)
    dweights = nabla_G.float().gather(1, experts.long())
    dz = module.route_backward(dweights, z, experts, "softmax", True, a, BLOCK_T=2)
    return dense(z, (weights, experts)), {"z": dz}


def experts_of(m, dtype=None):
    """The experts that `m` selects, as a router would return them."""
    import torch

    return torch.sort(m, dim=1, descending=True, stable=True).indices[:, : int(m[0].sum())].to(dtype or torch.int32)


@case(modules=MODULE, returns="RO-offsets", values=largest, sizes=SIZES, dtypes=("float32",), forward_only=True)
def sort(module, z, m):
    return module.sort_by_expert(experts_of(m), num_experts=z.shape[1]).offsets.float()


@sort.pytorch
def _(module, z, m):
    return module.sort_by_expert_reference(experts_of(m), z.shape[1]).offsets.float()


@case(
    modules=MODULE, returns="RO-aux", gradients={"z": "RO-aux-z"}, values=largest, sizes=SIZES, dtypes=ALL, upstream=1.0
)
def balance(module, z, m):
    return module.load_balancing_loss(logits=z, experts=experts_of(m))


@balance.pytorch
def _(module, z, m):
    return module.load_balancing_loss_reference(z, experts_of(m))


@case(
    modules=MODULE, returns="RO-aux-sigma", gradients={"z": "RO-aux-sigma-z"}, values=largest, sizes=SIZES, dtypes=ALL,
    upstream=1.0,
)  # fmt: skip
def balance_of_sigmoids(module, z, m):
    return module.load_balancing_loss(z, experts_of(m), score="sigmoid")


@balance_of_sigmoids.pytorch
def _(module, z, m):
    return module.load_balancing_loss_reference(z, experts_of(m), score="sigmoid")


@case(modules=MODULE, returns="RO-z", gradients={"z": "RO-z-z"}, sizes=SIZES, dtypes=ALL, upstream=1.0)
def small_logits(module, z):
    return module.router_z_loss(logits=z)


@small_logits.pytorch
def _(module, z):
    return module.router_z_loss_reference(z)


@case(modules=MODULE, returns="RO-z", gradients={"z": "RO-z-z"}, sizes=SIZES, upstream=1.0)
def small_logits_of_few_tokens(module, z):
    import torch

    loss = module.loss_forward(z, None, "softmax", BLOCK_T=2)
    return loss, {"z": module.loss_backward(torch.ones_like(loss), z, None, "softmax", BLOCK_T=2)}


small_logits_of_few_tokens.pytorch(small_logits.said["pytorch"])


# ---------------------------------------------------------------- rows grouped by expert

GROUPED = ("moe.grouped_matmul", "fast.grouped_matmul")
#: Of all rows: one expert without any, and the rest belong to nobody.
SHARES = (0.3, 0.0, 0.45, 0.1, 0.05)


def ends(rows, E):
    found, share = [], 0.0
    for each in SHARES[:E]:
        share += each
        found.append(int(rows * share))
    return found if E > 1 else [rows]


def membership(rows, E):
    import torch

    u, start = torch.zeros(rows, E, dtype=torch.float64), 0
    for expert, end in enumerate(ends(rows, E)):
        u[start:end, expert] = 1
        start = end
    return {"u": u}


def of_rows(R, E):
    return membership(R, E)


def offsets(X, E):
    import torch

    return torch.tensor(ends(X.shape[0], E), dtype=torch.int32, device=X.device)


def grouped(modules=GROUPED, **sizes):
    return dict(modules=modules, values=of_rows, sizes={"R": 23, "E": 5, "K": 10, "N": 7} | sizes, dtypes=ALL)


def of_product(V):
    return V


def of_sums(Q):
    return Q


ROWS = {"X": "GM-da", "W": "GM-db", "B": "GM-dbias"}


@case(returns="GM-C", gradients=ROWS, upstream=of_product, **grouped())
def grouped_rows(module, X, W, B, E):
    return module.grouped_matmul(a=X, b=W, offsets=offsets(X, E), bias=B)


@grouped_rows.pytorch
def _(module, X, W, B, E):
    return module.grouped_matmul_reference(X, W, offsets(X, E), bias=B)


@case(returns="GM-C", gradients={"X": "GM-da", "W": "GM-db"}, upstream=of_product, **grouped(GROUPED[0]))
def grouped_rows_in_small_tiles(module, X, W, B, V, E):
    at = offsets(X, E)
    C = module.grouped_rows_forward(X, W, at, B, BLOCK_M=4, BLOCK_N=4, BLOCK_K=16)
    dX = module.grouped_rows_forward(V, W.transpose(1, 2), at, BLOCK_M=4, BLOCK_N=4, BLOCK_K=16)
    dW = module.grouped_sums_forward(X.t(), V, at, BLOCK_M=4, BLOCK_N=4, BLOCK_R=16)
    return C, {"X": dX, "W": dW}


grouped_rows_in_small_tiles.pytorch(grouped_rows.said["pytorch"])


IN_TILES = grouped(GROUPED[1], R=43, K=24, N=40) | {"dtypes": ("float16",)}


@case(returns="GM-C", gradients={"X": "GM-da", "W": "GM-db"}, upstream=of_product, **IN_TILES)
def grouped_rows_by_descriptors(module, X, W, B, V, E):
    at, tiles = offsets(X, E), dict(BLOCK_M=16, BLOCK_N=16, NUM_PROGRAMS=2)
    C = module.grouped_rows_forward(X, W, at, B, BLOCK_K=16, **tiles)
    dX = module.grouped_rows_forward(V, W.transpose(1, 2), at, BLOCK_K=16, **tiles)
    dW = module.grouped_sums_forward(X.t(), V, at, BLOCK_R=16, **tiles)
    return C, {"X": dX, "W": dW}


@case(returns="GM-C", gradients={"X": "GM-da"}, upstream=of_product, **IN_TILES)
def grouped_rows_in_turned_tiles(module, X, W, B, V, E):
    at, tiles = offsets(X, E), dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, NUM_PROGRAMS=2, TURNED=True)
    C = module.grouped_rows_forward(X, W, at, B, **tiles)
    dX = module.grouped_rows_forward(V, W.transpose(1, 2), at, **tiles)
    return C, {"X": dX}


grouped_rows_by_descriptors.pytorch(grouped_rows.said["pytorch"])
grouped_rows_in_turned_tiles.pytorch(grouped_rows.said["pytorch"])


@case(returns="GM-D", gradients={"P": "GM-D-P", "Y": "GM-D-Y"}, upstream=of_sums, **grouped())
def grouped_sums(module, P, Y, E):
    return module.grouped_matmul(P.t(), Y, offsets(P, E), out_dtype=P.dtype)


@grouped_sums.pytorch
def _(module, P, Y, E):
    return module.grouped_matmul_reference(P.t(), Y, offsets(P, E))
