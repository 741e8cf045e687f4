"""AdamW: what is compared with formulas, and what is measured.

The page has one weight and several steps. Here each row is a weight.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "optimizers.adamw"
FAST = None
FUNCTION = "adamw_"
AXES = ("tensors", "elements")
DERIVATION = "adamw"

# ---------------------------------------------------------------- public functions
OPTIONS = dict(lr=0.05, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)


def two_tensors(step):
    """The fourth step, of copies, since inputs stay as they are. What was written is returned."""

    def call(param, bias, grad, bias_grad, exp_avg, bias_avg, exp_avg_sq, bias_avg_sq, **options):
        written = [
            [x.clone() for x in pair] for pair in ((param, bias), (exp_avg, bias_avg), (exp_avg_sq, bias_avg_sq))
        ]
        params, *averages = written
        done = torch.full((), 3.0, dtype=exp_avg.dtype, device=param.device)
        step(params, [grad, bias_grad], *averages, done, **OPTIONS | options)
        return tuple(x for pair in written for x in pair)

    return call


PUBLIC = [
    Public(
        "adamw_",
        {
            "param": "rows cols", "bias": "cols", "grad": "rows cols", "bias_grad": "cols",
            "exp_avg": "rows cols: float32", "bias_avg": "cols: float32",
            "exp_avg_sq": "rows cols: float32 nonnegative", "bias_avg_sq": "cols: float32 nonnegative",
            "weight_decay": (0.1, 0.0),
        },
        at=(6, 300), wrap=two_tensors, dtypes=("float32", "bfloat16"), differentiable=False,
        uncaptured="its tables are made on the host", reference=f"{LESSON}.adamw_reference",
        float32=("exp_avg", "bias_avg", "exp_avg_sq", "bias_avg_sq"),
    )
]  # fmt: skip


# ---------------------------------------------------------------- what is compared with formulas
def after_each(step, g, p_0):
    """The weight and both averages after each step. The weights are two tensors; the second is a column."""
    wide = torch.promote_types(g.dtype, torch.float32)
    params = [p_0[:2].clone(), p_0[2:, None].clone()]
    averages = [[torch.zeros_like(p, dtype=wide) for p in params] for _ in range(2)]
    done, seen = torch.zeros((), dtype=wide, device=g.device), []
    for now in g.unbind(1):
        step(params, [now[:2], now[2:, None]], *averages, done)
        seen.append([torch.cat([x.flatten() for x in pair]) for pair in (params, *averages)])
    return tuple(torch.stack(each, 1) for each in zip(*seen))


@case(modules=LESSON, returns=("AW-p", "AW-m", "AW-v"), rows=("g", "p_0"), forward_only=True)
def steps(module, g, p_0, eta, omega, beta, gamma, varepsilon):
    options = dict(lr=eta, betas=(beta, gamma), eps=varepsilon, weight_decay=omega)

    def step(params, grads, exp_avgs, exp_avg_sqs, done):
        module.adamw_(params, grads, exp_avgs, exp_avg_sqs, done, **options)

    return after_each(step, g, p_0)


@steps.pytorch
def _(g, p_0, eta, omega, beta, gamma, varepsilon):
    from annotated_examples.optimizers.adamw import adamw_reference

    options = dict(lr=eta, betas=(beta, gamma), eps=varepsilon, weight_decay=omega)
    return after_each(lambda *tensors: adamw_reference(*tensors, **options), g, p_0)


# A step has two roots, and a number has one modulo every second prime: few steps are decided at once.
WITHOUT_ROUNDING = dict(sizes={"steps": {"m": 2, "rows": 5}})


# ---------------------------------------------------------------- what is measured
def cost(shape, dtype):
    """Of so many tensors of so many elements."""
    n, size = shape[0] * shape[1], dtype.itemsize
    return {"forward": dict(bytes_read=n * (2 * size + 8), bytes_written=n * (size + 8), operations=15 * n)}


def inputs(shape, dtype, device):
    made = {name: torch.randn(shape, dtype=dtype, device=device) for name in ("param", "grad")}
    averages = {name: torch.rand(shape, device=device) for name in ("exp_avg", "exp_avg_sq")}
    return made | averages | {"done": torch.full((), 3.0, device=device)}


def of_rows(step):
    """Each row is a tensor of its own."""

    def call(param, grad, exp_avg, exp_avg_sq, done):
        step(*(x.unbind() for x in (param, grad, exp_avg, exp_avg_sq)), done, **OPTIONS)
        return param

    return call


def of_pytorch(**how):
    """PyTorch's step. It wants a tensor of steps for each parameter, which are made once, and averages in the dtype of
    the weights, so that float32 alone is compared."""

    from torch.optim.adamw import adamw

    each: list = []

    def step(params, grads, exp_avgs, exp_avg_sqs, done, *, betas, **options):
        each.extend(done.clone() for _ in params[len(each) :])
        given = params, grads, exp_avgs, exp_avg_sqs, [], each[: len(params)]
        beta1, beta2 = betas
        adamw(*map(list, given), amsgrad=False, beta1=beta1, beta2=beta2, maximize=False, **options, **how)

    return of_rows(step)


# Two tensors of five and two elements in three chunks: beside them the tables and one step are read.
EXAMPLES = {
    LESSON: {"forward": dict(bytes_read=7 * 16 + 8 * (6 * 2 + 2 * 3) + 4, bytes_written=7 * 12, operations=15 * 7)}
}
BENCH = dict(
    shapes=[(512, 2048), (148, 837_000)],
    dtypes=[torch.float32],
    inputs=inputs,
    call=of_rows,
    eager=of_pytorch(fused=True),
    compile=False,
    peers={"foreach": lambda: of_pytorch(foreach=True)},
    host_shape=(148, 64),
)
