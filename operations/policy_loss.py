"""Policy losses: what is compared with formulas, and what is measured.

`shape` is (sequences, tokens).
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "classics.policy_loss"
FAST = None
FUNCTION = "grpo_loss"
AXES = ("sequences", "tokens")
DERIVATION = "policy_loss"

#: For |d| < 1/2 the kernel has a series in the place of the exponential: near it, and another function.
WITHOUT_ROUNDING = {"listed": {"near_the_reference": "for |d| < 1/2 a series takes the place of the exponential"}}


# ---------------------------------------------------------------- public functions
def constants(like):
    """Of a batch of log-probabilities: those of before, the advantages, and those of the reference."""
    at = torch.arange(like.numel(), device=like.device).view(like.shape)
    advantages = torch.sin(torch.arange(len(like), device=like.device) * 2.0 + 1)
    return [x.to(like.dtype) for x in (torch.sin(at * 0.7), advantages, torch.cos(at * 0.3))]


def of_logprobs_alone(**options):
    """All else is constant, and gets no gradient."""

    def wrap(loss):
        def call(logprobs, mask):
            old, advantages, ref = constants(logprobs)
            return loss(logprobs, old, advantages, mask, ref_logprobs=ref, beta=0.1, **options)

        return call

    return wrap


def of_both_sums(loss):
    def call(chosen, rejected, **options):
        at = torch.arange(len(chosen), device=chosen.device).to(chosen.dtype)
        return loss(chosen, rejected, torch.sin(at), torch.cos(at), **options)

    return call


TOKENS = {"logprobs": "batch tokens", "mask": "batch tokens: int64 below 2"}
PUBLIC = [
    Public(
        "grpo_loss", TOKENS, at=(4, 70), dtypes=("float32",), float32=("logprobs",), wrap=of_logprobs_alone(),
        calls=[{}, dict(wrap=of_logprobs_alone(reduction="sequence"))],
        more=[dict(wrap=of_logprobs_alone(reduction="constant", max_length=90))],
    ),
    Public(
        "dpo_loss", {"chosen": "pairs", "rejected": "pairs", "reduction": ("mean", "none")}, at=(37,),
        dtypes=("float32",), float32=("chosen", "rejected"), wrap=of_both_sums,
        more=[dict(label_smoothing=0.2, reduction="sum")],
    ),
]  # fmt: skip
HELPERS = {"sequence_logprobs": "plain PyTorch: it launches nothing"}

# ---------------------------------------------------------------- what is compared with formulas
ONE = dict(modules=LESSON, returns="PL", gradients={"y": "PL-y"}, dtypes=("float32",))
DYADIC = {"varepsilon": 0.25, "eta": 0.125}


def scattered(m):
    """Tokens on both sides of both bounds, some of them close, with advantages of both signs, and none near the
    reference."""
    at = torch.arange(m)
    moved = torch.tensor([-448, -295, -294, -64, 64, 120, 121, 448])[at * 3 % 8] / 1024  # e^−0.2876 is a bit below 3/4
    y = -1 - (at * 5 % 7) / 8.0
    d = 0.75 + (at * 3 % 5) / 4
    return DYADIC | {
        "y": y, "o": y - moved, "q": y + torch.where(at % 2 == 0, d, -d), "A": (at * 7 % 5 - 1.5) / 2,
        "v": (at % 3 != 1).float(),
    }  # fmt: skip


def near(m):
    """The weights of tokens are thirds, of more than 16 bits."""
    values, at = scattered(m), torch.arange(m)
    return values | {"q": values["y"] + 0.4 * torch.cos(at * 1.7) ** 9, "v": (1 + at % 3) / 3}


def reference(module, y, o, q, A, v, n, varepsilon, eta, beta):
    options = dict(ref_logprobs=q[None], clip=(varepsilon, eta), beta=beta, n_items=n)
    return module.grpo_loss_reference(y[None], o[None], A[None], v[None], **options)


@case(**ONE, values=scattered, sizes={"m": 37}, pytorch=reference)
def one_sequence(module, y, o, q, A, v, n, varepsilon, eta, beta):
    return module.grpo_loss(
        y[None], o[None], A[None], v[None], ref_logprobs=q[None], clip=(varepsilon, eta), beta=beta, n_items=n
    )


near_the_reference = one_sequence.again(values=near)


@case(**ONE, values=scattered, sizes={"m": 37}, pytorch=reference)
def in_small_blocks(module, y, o, q, A, v, n, nabla_f, varepsilon, eta, beta):
    arguments = y[None], o[None], A[None], v[None], q[None], (varepsilon, eta), beta, "token", n, None
    loss, slopes, shares = module.grpo_forward(*arguments, BLOCK=8)
    return loss, {"y": (slopes * (nabla_f * shares)[:, None])[0]}


@case(
    modules=LESSON, returns="DPO", gradients={"w": "DPO-w", "z": "DPO-z"}, dtypes=("float32",),
    rows=("w", "z", "w_hat", "z_hat"), stable={"DPO": "DPO-stable"},
)  # fmt: skip
def preferences(module, w, z, w_hat, z_hat, beta, s):
    return module.dpo_loss(w, z, w_hat, z_hat, beta=beta, label_smoothing=s, reduction="none")


@preferences.upstream
def _(w):
    return torch.ones_like(w)


@case(modules=LESSON, returns="PL-sum", gradients={"y": "PL-sum-y"}, dtypes=("float32",), upstream=1.0)
def sum_of_a_sequence(module, y, v):
    return module.sequence_logprobs(y[None], v[None], average=False)[0]


@sum_of_a_sequence.pytorch
def _(y, v):
    return (y * v).sum()


# ---------------------------------------------------------------- what is measured
# Forward reads three log-probabilities and a mask of each token, and an advantage of each sequence, and writes the loss
# and each slope; backward multiplies the slopes.
def cost(shape, dtype):
    sequences, tokens = shape
    count = sequences * tokens
    return {
        "forward": dict(bytes_read=13 * count + 4 * sequences, bytes_written=4 * count, operations=20 * count),
        "backward": dict(bytes_read=4 * count, bytes_written=4 * count, operations=count),
    }


# The example's mask has eight bytes for each token, and two tokens don't count. Forward, a slope is stored for each
# token, a share for each sequence, and the loss; backward, slopes, shares and the upstream gradient are read.
def example(sequences, tokens, counted):
    kept = 4 * tokens + 4 * sequences + 4
    return {
        "forward": dict(
            bytes_read=8 * tokens + 12 * counted + 4 * sequences, bytes_written=kept, operations=20 * tokens
        ),
        "backward": dict(bytes_read=kept, bytes_written=4 * tokens, operations=tokens),
    }


def inputs(shape, dtype, device):
    B, T = shape
    logprobs = -torch.rand(B, T, dtype=dtype, device=device) * 3
    return dict(
        logprobs=logprobs,
        old_logprobs=logprobs + torch.randn_like(logprobs) / 10,
        ref_logprobs=logprobs + torch.randn_like(logprobs) / 10,
        advantages=torch.randn(B, dtype=dtype, device=device),
        mask=torch.arange(T, device=device) < torch.randint(1, T + 1, (B, 1), device=device),
    )


def with_a_price(loss):
    def call(logprobs, old_logprobs, ref_logprobs, advantages, mask):
        return loss(logprobs, old_logprobs, advantages, mask, ref_logprobs=ref_logprobs, beta=0.04)

    return call


# As training libraries write it.
def eager(logprobs, old_logprobs, ref_logprobs, advantages, mask):
    ratio, d, a = (logprobs - old_logprobs).exp(), ref_logprobs - logprobs, advantages[:, None]
    terms = -torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a) + 0.04 * (d.exp() - d - 1)
    return (terms * mask).sum() / mask.sum()


EXAMPLES = {LESSON: example(2, 8, 6)}
BENCH = dict(
    shapes=[(64, 2048), (8, 1024), (512, 8192)],
    dtypes=[torch.float32],
    inputs=inputs,
    call=with_a_price,
    eager=eager,
    passes=["forward", "forward+backward"],
    differentiable=["logprobs"],
)
