"""The router: what is compared with formulas, and what is measured.

The formulas have a matrix of tokens by experts, with zeros where nothing was selected. A router returns the selected
weights only: they are put at their experts' places here.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "moe.router"
FAST = None
FUNCTION = "route"
AXES = ("tokens", "experts")
DERIVATION = "moe"


# ---------------------------------------------------------------- public functions
def first_of_one(route):
    return lambda logits, **options: route(logits, 1, **options)[0]


def weights_alone(route):
    """Without the experts. Where they are chosen under a bias, that gets no gradient."""
    return lambda logits, **options: route(logits, **options)[0]


def under_a_bias(route):
    return lambda logits, **options: route(logits, bias=torch.arange(12.0, device=logits.device) / 10, **options)[0]


def weights_by_expert(route):
    """The weights in the order of their experts."""

    def call(logits, **options):
        from annotated_examples.moe.router import sort_by_expert

        weights, experts = route(logits, **options)
        return weights.flatten()[sort_by_expert(experts, logits.shape[1]).order.long()]

    return call


def two_slots(tokens):
    """Experts of a few tokens, one slot dropped."""
    experts = torch.arange(2 * tokens, dtype=torch.int32).view(tokens, 2) * 7 % 12
    experts[3, 1] = -1
    return experts


SLOTS = dict(inputs={"experts": two_slots})
PUBLIC = [
    Public(
        "route", {"logits": "tokens classes", "score": ("softmax", "sigmoid"), "renormalize": (True, False)},
        at=(5, 12), wrap=first_of_one,
        calls=[dict(wrap=weights_by_expert, top_k=2), dict(wrap=weights_alone, top_k=2, score="sigmoid")],
        more=[dict(wrap=under_a_bias, top_k=2, renormalize=False, scale=2.0)],
    ),
    Public(
        "load_balancing_loss",
        {"logits": "tokens classes", "experts": "tokens 2: int32 below classes", "score": ("softmax", "sigmoid")},
        at=(5, 12), calls=[SLOTS], more=[SLOTS | dict(score="sigmoid")],
    ),
    Public("router_z_loss", {"logits": "tokens classes"}, at=(5, 12)),
]  # fmt: skip
HELPERS = {"sort_by_expert": "called by others"}

# ---------------------------------------------------------------- what is compared with formulas
ALL = ("float32", "float16", "bfloat16")
SIZES = {"T": 7, "E": 12}
EPSILON = {"varepsilon": 1e-20}


def selected(choice, k=3):
    """m: 1 for the largest of each row, and of equal ones for the first."""
    order = torch.sort(choice, dim=1, descending=True, stable=True).indices[:, :k]
    return torch.zeros(choice.shape, dtype=torch.float64, device=choice.device).scatter(1, order, 1.0)


def largest(z):
    return EPSILON | {"m": selected(z)}


def biased(z):
    return EPSILON | {"m": selected(torch.sigmoid(z.float()) + bias(z))}


def bias(z):
    return 0.7 * torch.arange(z.shape[1], device=z.device).remainder(4).float()


def dense(z, routed):
    """Weights at the places of their experts."""
    weights, experts = routed
    return torch.zeros(z.shape, dtype=weights.dtype, device=z.device).scatter(1, experts.long(), weights)


def of_weights(nabla_G):
    return nabla_G


def routed(**options):
    """The keywords of a case of `route`."""

    def pytorch(module, z, a):
        arguments = {name: value(z) if callable(value) else value for name, value in options.items()}
        return dense(z, module.route_reference(z, min(3, z.shape[1]), scale=a, **arguments))

    return dict(modules=LESSON, pytorch=pytorch, upstream=of_weights, values=largest, sizes=SIZES, dtypes=ALL)


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


@case(modules=LESSON, returns="RO-p", values=with_all, sizes=SIZES, dtypes=ALL, forward_only=True)
def all_experts(module, z):
    return dense(z, module.route_forward(z, z.shape[1], "softmax", False, None, 1.0, BLOCK_T=2))


@all_experts.pytorch
def _(z):
    return torch.softmax(z.double() if z.dtype == torch.float64 else z.float(), 1)


@case(returns="RO-g", gradients={"z": "RO-dz-selected"}, **routed())
def few_tokens_a_program(module, z, a, nabla_G):
    weights, experts = module.route_forward(z, min(3, z.shape[1]), "softmax", True, None, a, BLOCK_T=2)
    dweights = nabla_G.float().gather(1, experts.long())
    dz = module.route_backward(dweights, z, experts, "softmax", True, a, BLOCK_T=2)
    return dense(z, (weights, experts)), {"z": dz}


def experts_of(m, dtype=None):
    """The experts that `m` selects, as a router would return them."""
    return torch.sort(m, dim=1, descending=True, stable=True).indices[:, : int(m[0].sum())].to(dtype or torch.int32)


@case(modules=LESSON, returns="RO-offsets", values=largest, sizes=SIZES, dtypes=("float32",), forward_only=True)
def sort(module, z, m):
    return module.sort_by_expert(experts_of(m), num_experts=z.shape[1]).offsets.float()


@sort.pytorch
def _(module, z, m):
    return module.sort_by_expert_reference(experts_of(m), z.shape[1]).offsets.float()


@case(
    modules=LESSON, returns="RO-aux", gradients={"z": "RO-aux-z"}, values=largest, sizes=SIZES, dtypes=ALL, upstream=1.0
)
def balance(module, z, m):
    return module.load_balancing_loss(logits=z, experts=experts_of(m))


@balance.pytorch
def _(module, z, m):
    return module.load_balancing_loss_reference(z, experts_of(m))


@case(
    modules=LESSON, returns="RO-aux-sigma", gradients={"z": "RO-aux-sigma-z"}, values=largest, sizes=SIZES, dtypes=ALL,
    upstream=1.0,
)  # fmt: skip
def balance_of_sigmoids(module, z, m):
    return module.load_balancing_loss(z, experts_of(m), score="sigmoid")


@balance_of_sigmoids.pytorch
def _(module, z, m):
    return module.load_balancing_loss_reference(z, experts_of(m), score="sigmoid")


@case(modules=LESSON, returns="RO-z", gradients={"z": "RO-z-z"}, sizes=SIZES, dtypes=ALL, upstream=1.0)
def small_logits(module, z):
    return module.router_z_loss(logits=z)


@small_logits.pytorch
def _(module, z):
    return module.router_z_loss_reference(z)


@case(modules=LESSON, returns="RO-z", gradients={"z": "RO-z-z"}, sizes=SIZES, upstream=1.0)
def small_logits_of_few_tokens(module, z):
    loss = module.loss_forward(z, None, "softmax", BLOCK_T=2)
    return loss, {"z": module.loss_backward(torch.ones_like(loss), z, None, "softmax", BLOCK_T=2)}


small_logits_of_few_tokens.pytorch(small_logits.said["pytorch"])


# ---------------------------------------------------------------- what is measured
TOP_K = 8


# The logits are read once, a weight and an expert of each selected slot written, 4 bytes each. An exponential counts as
# one operation. Backward reads the logits, the experts and the gradients of the weights, and writes that of the logits.
def cost(shape, dtype, top_k=TOP_K):
    tokens, experts = shape
    logits, slots = tokens * experts, tokens * top_k
    return {
        "forward": dict(bytes_read=logits * dtype.itemsize, bytes_written=8 * slots, operations=(4 + top_k) * logits),
        "backward": dict(
            bytes_read=logits * dtype.itemsize + 8 * slots,
            bytes_written=logits * dtype.itemsize,
            operations=(6 + top_k) * logits,
        ),
    }


def inputs(shape, dtype, device):
    return dict(logits=torch.randn(shape, dtype=dtype, device=device))


def eager(logits):
    weights, experts = torch.topk(torch.softmax(logits.float(), 1), TOP_K)
    return weights / weights.sum(1, keepdim=True), experts.int()


# Only the weights have a gradient.
def weights_of(route):
    return lambda logits: route(logits, TOP_K)[0]


EXAMPLES = {LESSON: cost((7, 6), torch.float32, 2)}
BENCH = dict(
    shapes=[(8192, 256), (8192, 64), (8192, 128), (65536, 64), (512, 256)],
    dtypes=[torch.float32],
    inputs=inputs,
    call=weights_of,
    eager=lambda logits: eager(logits)[0],
    passes=["forward", "backward"],
    differentiable=["logits"],
)
