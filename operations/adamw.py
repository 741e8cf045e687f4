"""AdamW: what is compared with formulas, and what is measured.

The page has one weight and several steps. Here each row is a weight.
"""

import functools
import importlib

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "optimizers.adamw"
FAST = "fast.adamw"
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


@case(modules=(LESSON, FAST), returns=("AW-p", "AW-m", "AW-v"), rows=("g", "p_0"), forward_only=True)
def steps(module, g, p_0, eta, omega, beta, gamma, varepsilon):
    options = dict(lr=eta, betas=(beta, gamma), eps=varepsilon, weight_decay=omega)

    def step(params, grads, exp_avgs, exp_avg_sqs, done):
        module.adamw_(params, grads, exp_avgs, exp_avg_sqs, done, **options)

    return after_each(step, g, p_0)


#: Most of the way goes to the new gradient.
of_little_memory = steps.again(values={"beta": 0.25}, dtypes=("float32",))
#: All of it, after a far larger one.
without_memory = steps.again(dtypes=("float32",))


@without_memory.values
def _(g):
    return {"g": torch.cat([g[:, :1] * 1e6, g[:, 1:]], 1), "beta": 0.0}


@steps.pytorch
@of_little_memory.pytorch
@without_memory.pytorch
def _(g, p_0, eta, omega, beta, gamma, varepsilon):
    from annotated_examples.optimizers.adamw import adamw_reference

    options = dict(lr=eta, betas=(beta, gamma), eps=varepsilon, weight_decay=omega)
    return after_each(lambda *tensors: adamw_reference(*tensors, **options), g, p_0)


# A step has two roots, and a number has one modulo every second prime: few steps are decided at once.
WITHOUT_ROUNDING = dict(sizes=dict.fromkeys(("steps", "of_little_memory", "without_memory"), {"m": 2, "rows": 5}))


# ---------------------------------------------------------------- what is measured
def cost(shape, dtype):
    """Of so many tensors of so many elements."""
    n, size = shape[0] * shape[1], dtype.itemsize
    return {"forward": dict(bytes_read=n * (2 * size + 8), bytes_written=n * (size + 8), operations=15 * n)}


def inputs(shape, dtype, device):
    return {name: torch.randn(shape, dtype=dtype, device=device) for name in ("param", "grad")}


# A step of an optimizer, as one waits for it. Each row is a tensor of its own. The averages are made by the first step.
def step_of(optimizer):
    made = {}

    def call(param, grad):
        key = param.data_ptr(), grad.data_ptr()
        if key not in made:
            params = [torch.nn.Parameter(x) for x in param.unbind()]
            for one, its in zip(params, grad.unbind()):
                one.grad = its
            made.clear()
            made[key] = optimizer(params, **OPTIONS)
        made[key].step()
        return param

    return call


def of_the_file(step):
    return step_of(importlib.import_module(step.__module__).AdamW)


def of_pytorch(**how):
    """PyTorch's averages have the dtype of the weights, so float32 alone is compared."""
    return step_of(functools.partial(torch.optim.AdamW, **how))


# Two tensors of five and two elements in three chunks: beside them the tables and one step are read.
# (Fast, the first tensor has seven.)
def example(elements):
    return {
        "forward": dict(
            bytes_read=elements * 16 + 8 * (6 * 2 + 2 * 3) + 4, bytes_written=elements * 12, operations=15 * elements
        )
    }


EXAMPLES = {LESSON: example(7), FAST: example(9)}
BENCH = dict(
    shapes=[(512, 2048), (148, 837_000)],
    dtypes=[torch.float32],
    inputs=inputs,
    call=of_the_file,
    eager=of_pytorch(fused=True),
    compile=False,
    peers={"foreach": lambda: of_pytorch(foreach=True)},
    host_shape=(148, 64),
)
