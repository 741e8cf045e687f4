r"""
# AdamW: one launch for every tensor of a model

The optimizer's step touches every parameter once, and does about fifteen operations with each. Written in PyTorch,
tensor by tensor, that is a dozen launches for each of several hundred tensors, most of them small: a bias, a norm's
weight. The launches take longer than the work. So here *one* launch updates all of them. (PyTorch's own `AdamW` has
both remedies: by default on a GPU each of its operations takes lists of tensors, and with `fused=True` a single kernel
does the whole step, launched for some dozens of tensors at a time.)

[[eq: AW-m]]

[[eq: AW-v]]

[[eq: AW-p]]

What is new is how a program finds its numbers: from a table of addresses in memory, not from pointers in the launch.

**What it costs.** A float32 parameter is read with its gradient and two averages, and three of the four are written: 28
bytes for those fifteen operations. So the bytes are what it costs: 3.5 GB in each step of a model with 125 million
parameters. The host has to look each tensor over, in Python; with many small ones that is all there is to wait for. On
an H200 a step of 124 million parameters in 148 tensors takes [[bench: adamw/148x837000/forward/lesson.ms]], PyTorch's
fused step [[bench: adamw/148x837000/forward/eager.ms]], and [the fast version](../fast/adamw.py)
[[bench: adamw/148x837000/forward/ms]]. For 512 tensors of 2048 numbers it is the host that one waits for:
[[bench: adamw/512x2048/forward/lesson.ms]], [[bench: adamw/512x2048/forward/eager.ms]] and
[[bench: adamw/512x2048/forward/ms]].

**Contract.** Any number of tensors with any shapes and strides, also empty ones, all of them float32 or bfloat16 (each
with a gradient of its own dtype); the averages are float32. Everything is computed in float32 and rounded once, by the
store. A NaN or an infinity in a gradient reaches its own parameter only. The same call gives the same bits. A CUDA
graph can't capture a step: its tables are made on the host.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python

import functools

import torch
import triton
import triton.language as tl

from annotated_examples.common.custom_operator import opaque
from annotated_examples.common.optimizers import InFloat32


# ## Reference
#
# One step in plain PyTorch, in place, for one tensor after the other. The decay comes first, and multiplies the weight
# itself. That is what the W stands for: Adam with the decay added to the *gradient* divides it by $\sqrt{v}$ like the
# rest, and a weight with large gradients would then hardly decay.
def adamw_reference(
    params, grads, exp_avgs, exp_avg_sqs, steps, *, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
):
    each_step = [steps] * len(params) if isinstance(steps, torch.Tensor) else steps
    for step in [steps] if isinstance(steps, torch.Tensor) else steps:
        step += 1
    for p, g, m, v, step in zip(params, grads, exp_avgs, exp_avg_sqs, each_step):
        m.mul_(betas[0]).add_(g, alpha=1 - betas[0])
        v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
        c1, c2 = 1 - betas[0] ** step.double(), 1 - betas[1] ** step.double()
        p.mul_(1 - lr * weight_decay).sub_(lr * (m / c1) / ((v / c2).sqrt() + eps))


# ## A power of a number just below 1
#
# Both averages begin at zero, so at first they are too small, [after t steps by the factor `1 - beta **
# t`](../../backprop_math/adamw.md). With $\beta = 0.999$ and one step that is 0.001, what is left of a difference of
# two numbers near 1. A number near 1 is wrong by up to $3 \cdot 10^{-8}$ in float32, so that difference is wrong by up
# to three parts in 100,000, and an early update by half as much: it divides by the root.
#
# So two things are done. The host passes $1 - \beta$, which it has computed in float64, and the kernel takes that from
# a 1 in float64. And the power is computed in float64, by squaring: `n` in binary says which squares are factors. Step
# 1,000 takes ten rounds. All threads of a program compute the same two powers, with two multiplications a round for
# each. That is little beside the 229 KB that a program moves for a whole chunk, even on a card with few float64 units.
@triton.jit
def one_minus_power(new, n):
    beta = 1.0 - tl.cast(new, tl.float64)
    power = tl.full((), 1.0, tl.float64)
    while n > 0:
        power = tl.where(n % 2 == 1, power * beta, power)
        beta *= beta
        n //= 2
    return (1.0 - power).to(tl.float32)


# ## A part of the way
#
# `old + share * (new - old)` stays where it is if old and new are equal. But past the middle it loses what is small:
# with a share of 1, as for $\beta_1 = 0$, and an old average of 10⁸, float32 has nothing left of a 1 in `1 - old`. So
# there the way is reckoned from its other end, as `torch.lerp` does.
@triton.jit
def part_of_the_way(old, new, share):
    return tl.where(share < 0.5, old + share * (new - old), new - (1.0 - share) * (new - old))


# ## The kernel
#
# [[figure: optimizers/chunks]]
#
# All tensors are cut into chunks of `CHUNK` elements. A program takes one chunk, `BLOCK` elements at a time. Which
# chunk? That stands in a second table, `chunks`: the tensor's number, and where in it the chunk begins. A tensor of
# 2³³ elements has many entries, a bias one, and an empty tensor none, which stops nobody else. A chunk is several
# blocks, so that the table is short, and a program has more to do than to look up its addresses.
@triton.jit
def adamw_kernel(
    table_ptr,  # (6, tensors) int64: addresses of p, g, m, v and the step; lengths
    chunks_ptr,  # (programs, 2) int64: which tensor, and its first element
    tensors,
    lr,  # a number, or a pointer to one
    new1,  # 1 − β₁
    beta2,
    new2,  # 1 − β₂
    eps,
    decay,
    DTYPE: tl.constexpr,  # of the parameters and their gradients
    LR_IN_MEMORY: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    which = tl.load(chunks_ptr + 2 * pid)
    first = tl.load(chunks_ptr + 2 * pid + 1)
    # An address is an integer of 64 bits. `tl.pointer_type` makes the type of a pointer to such numbers, and `.to` the
    # integer a pointer like any other. Nobody checks either of them. A wrong dtype reads other numbers, and the address
    # of a tensor that was freed since the table was made is somebody else's memory.
    p_ptr = tl.load(table_ptr + which).to(tl.pointer_type(DTYPE))
    g_ptr = tl.load(table_ptr + tensors + which).to(tl.pointer_type(DTYPE))
    m_ptr = tl.load(table_ptr + 2 * tensors + which).to(tl.pointer_type(tl.float32))
    v_ptr = tl.load(table_ptr + 3 * tensors + which).to(tl.pointer_type(tl.float32))
    step_ptr = tl.load(table_ptr + 4 * tensors + which).to(tl.pointer_type(tl.float32))
    end = tl.minimum(first + CHUNK, tl.load(table_ptr + 5 * tensors + which))
    if LR_IN_MEMORY:
        lr = tl.load(lr)
    step = tl.load(step_ptr).to(tl.int64)
    c1 = one_minus_power(new1, step)
    c2 = one_minus_power(new2, step)

    # `first` was int64 in the table, so the offsets are, too. In the example the second chunk of the first tensor has
    # `pid=1, start=4: offs = [4, 5, 6, 7]` and `pid=1, start=4: mask = [1, 0, 0, 0]`, because the tensor has five
    # elements.
    for start in tl.range(first, end, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < end
        p = tl.load(p_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        m = tl.load(m_ptr + offs, mask=mask, other=0.0)
        v = tl.load(v_ptr + offs, mask=mask, other=0.0)
        # [[tag: AW-m]]: the average goes a part of the way to the new gradient. [[tag: AW-v]] isn't written like that,
        # because a $\beta_2$ near 0 matters, too. So it is handed over: in `1.0 - new2` a small one is lost.
        m = part_of_the_way(m, g, new1)
        v = beta2 * v + new2 * (g * g)
        # [[tag: AW-p]]: the decay first, then the step. $\varepsilon$ is added *to* the root; under it, 10⁻⁸ would
        # count as 10⁻⁴.
        updated = (1.0 - lr * decay) * p - lr / c1 * m / (tl.sqrt(v) / tl.sqrt(c2) + eps)
        # One rounding, by the store. A bfloat16 moves by at least 0.39 % of itself or not at all. Rounded by itself,
        # `(1 - lr * decay) * p` would be `p` again, in every step, and the weight would never decay.
        tl.store(p_ptr + offs, updated, mask=mask)
        tl.store(m_ptr + offs, m, mask=mask)
        tl.store(v_ptr + offs, v, mask=mask)


# ## The tables
#
# They are made on the host and copied to the card. The addresses go there in every step anew: a gradient is usually
# another tensor than in the step before, and an address that was kept would be that of freed memory. The host must not
# wait for the card, so they are copied from *pinned* memory, which a card can read by itself while the host goes on.
def addresses(params, grads, exp_avgs, exp_avg_sqs, steps):
    """`table`, on the device of the tensors, which are contiguous. steps: a tensor for each parameter."""
    named = (params, grads, exp_avgs, exp_avg_sqs, steps)
    numbers = [*([x.data_ptr() for x in some] for some in named), [x.numel() for x in params]]
    return on_device(numbers, params[0].device)


def on_device(numbers, where):
    """Of an int64 tensor."""
    table = torch.tensor(numbers)
    return table.pin_memory().to(where, non_blocking=True) if where.type == "cuda" else table


def stream_of(tensor):
    """In which a launch is made now."""
    return torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None


# Which program takes what depends on the lengths alone, and these stay the same. So that table is kept, one for each
# stream. When the cache drops a table, PyTorch gives its memory to the next tensor of the stream that it was made in,
# and a launch in another stream might still be reading it.
@functools.lru_cache(maxsize=16)
def chunks_of(lengths, CHUNK, device, stream):
    """`chunks`, for tensors of these lengths."""
    counts = torch.tensor([triton.cdiv(length, CHUNK) for length in lengths])
    which = torch.repeat_interleave(counts)
    first = (torch.arange(len(which)) - (counts.cumsum(0) - counts)[which]) * CHUNK
    return torch.stack([which, first], 1).to(device)


# ## The launcher
#
# `opaque`, because `torch.compile` can't look into a function that asks for addresses.
opaque_step = opaque(
    "(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, Tensor[] steps, "
    "Tensor? lr_tensor, float lr, float beta1, float beta2, float eps, float weight_decay) -> ()",
    lambda *tensors: None,
)


@opaque_step
def adamw_launch_(
    params, grads, exp_avgs, exp_avg_sqs, steps, lr_tensor, lr, beta1, beta2, eps, weight_decay,
    *, CHUNK=8192, BLOCK=2048,
):  # fmt: skip
    """One launch for contiguous parameters of one dtype. steps: a tensor for each, already increased by 1."""
    checks.power_of_two(CHUNK=CHUNK, BLOCK=BLOCK)
    chunks = chunks_of(tuple([p.numel() for p in params]), CHUNK, params[0].device, stream_of(params[0]))
    if programs := chunks.shape[0]:
        adamw_kernel[(programs,)](
            addresses(params, grads, exp_avgs, exp_avg_sqs, steps), chunks, len(params),
            lr if lr_tensor is None else lr_tensor, 1 - beta1, beta2, 1 - beta2, eps, weight_decay,
            DTYPE=tl.float32 if params[0].dtype is torch.float32 else tl.bfloat16,
            LR_IN_MEMORY=lr_tensor is not None, CHUNK=CHUNK, BLOCK=BLOCK, num_warps=8,
        )  # fmt: skip


# ## Arguments
#
# What a program writes to must be its own: the same parameter twice would be updated by two programs at once.
#
# A model has hundreds of parameters, and each has four tensors. If a check of one took ten microseconds, as elsewhere
# in this book, the host would be busy longer than the card. So lists are compared, of all shapes and of all dtypes, and
# tensors are looked at one by one only where that finds something.
def contract(params, grads, exp_avgs, exp_avg_sqs, steps, lr, betas, eps, weight_decay):
    named = dict(params=params, grads=grads, exp_avgs=exp_avgs, exp_avg_sqs=exp_avg_sqs)
    if isinstance(steps, torch.Tensor):
        checks.lists_of_tensors(**named)
        checks.tensors(steps=steps)
        numbers = dict(steps=steps)
    else:
        checks.lists_of_tensors(**named, steps=steps)
        numbers = {f"steps[{at}]": step for at, step in enumerate(steps) if step.dtype != torch.float32 or step.dim()}
    # Only a weight that is a leaf may require a gradient: a step isn't differentiable.
    others = [p for p in params if not (p.is_leaf and p.requires_grad)]
    recorded = autograd.needs_frame(*grads, *exp_avgs, *exp_avg_sqs, *others)
    shapes, dtypes, averages = [p.shape for p in params], [p.dtype for p in params], [*exp_avgs, *exp_avg_sqs]
    usual = all(dtype in (torch.float32, torch.bfloat16) for dtype in dict.fromkeys(dtypes))
    usual = usual and dtypes == [g.dtype for g in grads] and all([x.dtype is torch.float32 for x in averages])
    usual = usual and all([x.shape for x in some] == shapes for some in (grads, exp_avgs, exp_avg_sqs))
    for at, (p, g, m, v) in enumerate(() if usual and not recorded else zip(params, grads, exp_avgs, exp_avg_sqs)):
        names = [f"{name}[{at}]" for name in named]
        these = dict(zip(names, (p, g, m, v)))
        checks.no_gradient(
            "adamw_", **{name: x for name, x in these.items() if x is not p or not (p.is_leaf and p.requires_grad)}
        )
        checks.dtypes((torch.float32, torch.bfloat16), **{names[0]: p})
        checks.same_dtype(**{names[0]: p, names[1]: g})
        checks.dtypes((torch.float32,), **{names[2]: m, names[3]: v})
        checks.same_shape(**these)
    for name, step in numbers.items():
        checks.dtypes((torch.float32,), **{name: step})
        checks.shape(name, step, (), "one number")
    written = [*params, *averages]
    if any(0 in [s for s, n in zip(x.stride(), x.shape) if n > 1] for x in written if not x.is_contiguous()):
        raise ValueError("params, exp_avgs and exp_avg_sqs must not be expanded, because they are written to")
    places = [] if torch.compiler.is_compiling() else [place for x in written if (place := x.data_ptr())]
    if len(set(places)) < len(places):
        raise ValueError("params, exp_avgs and exp_avg_sqs must be different tensors, because they are written to")
    contract_of_numbers(lr, *betas, eps, weight_decay)


def contract_of_numbers(lr, beta1, beta2, eps, weight_decay):
    if isinstance(lr, torch.Tensor):
        checks.tensors(lr=lr)
        checks.dtypes((torch.float32,), lr=lr)
        checks.shape("lr", lr, (), "one number")
    else:
        checks.number("lr", lr, at_least=0)
    for at, beta in enumerate((beta1, beta2)):
        checks.number(f"betas[{at}]", beta, at_least=0)
        if beta >= 1:
            raise ValueError(f"betas[{at}] must be below 1, got {beta}")
    checks.number("eps", eps, at_least=0)
    checks.number("weight_decay", weight_decay, at_least=0)


# ## One step
#
# A tensor that isn't contiguous is updated in a copy, which is then copied back. What is written behind PyTorch's back
# must be reported: autograd counts the *versions* of a tensor, and so notices that a value was overwritten which a
# backward pass still needs.
@torch.no_grad()
def one_step_(params, grads, exp_avgs, exp_avg_sqs, steps, lr, *options, launcher=adamw_launch_):
    """A launch for each dtype of params. options: as `launcher` takes them."""
    if isinstance(steps, torch.Tensor):
        steps += 1
        steps = [steps] * len(params)
    else:
        torch._foreach_add_(list(steps), 1)  # one launch, too
    rate = (lr, 0.0) if isinstance(lr, torch.Tensor) else (None, float(lr))
    dtypes = [p.dtype for p in params]
    for dtype in dict.fromkeys(dtypes):
        given = [
            [x for x, its in zip(some, dtypes) if its == dtype]
            for some in (params, grads, exp_avgs, exp_avg_sqs, steps)
        ]
        flat = [[x.contiguous() for x in some] for some in given]
        launcher(*flat, *rate, *map(float, options))
        for at in (0, 2, 3):  # parameters and averages
            for before, after in zip(given[at], flat[at]):
                if after is not before:
                    before.copy_(after)
    if not torch.compiler.is_compiling():  # which reports it by itself
        torch.autograd.graph.increment_version([*params, *exp_avgs, *exp_avg_sqs])


def adamw_(params, grads, exp_avgs, exp_avg_sqs, steps, *, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
    r"""One step of AdamW for all tensors, in place: params, averages and steps. One launch for each dtype.

    Args:
        params: tensors, float32 or bfloat16, of any shapes and strides.
        grads: their gradients, of the same shapes and dtypes.
        exp_avgs, exp_avg_sqs: averages of the gradients and of their squares, float32, of the same shapes.
        steps: how many steps were made before, float32: a 0-d tensor for all parameters, or a list with one for each.
            Is increased by 1.
        lr: learning rate, a number or a 0-d float32 tensor, at least 0.
        betas: $\beta_1$ and $\beta_2$, from 0 to below 1.
        eps: added to the root, at least 0.
        weight_decay: each weight is multiplied by `1 - lr * weight_decay` first.

    Returns:
        None.

    Raises:
        TypeError, ValueError: an argument has a wrong type, dtype, shape or device, or is out of range, or two tensors
            that are written to are the same.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (arXiv 1711.05101); Kingma and Ba (arXiv
    1412.6980).
    """
    contract(params, grads, exp_avgs, exp_avg_sqs, steps, lr, betas, eps, weight_decay)
    if len(params):
        one_step_(params, grads, exp_avgs, exp_avg_sqs, steps, lr, *betas, eps, weight_decay)


# ## The optimizer
#
# Used like PyTorch's `torch.optim.AdamW`, with the same names in its state, so that a checkpoint fits both. The
# averages are float32, and stay so when they are loaded.
class AdamW(InFloat32):
    """AdamW with one launch a step for each dtype.

    Args:
        params: as PyTorch's optimizers take them, groups of parameters included.
        lr, betas, eps, weight_decay: as in `adamw_`.

    Raises:
        TypeError, ValueError: as `adamw_`, and for sparse gradients.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    def update(self, group, step=adamw_):
        params = [p for p in group["params"] if p.grad is not None]
        states = [self.state[p] for p in params]
        for p, state in zip(params, states):
            if not state:
                like = dict(dtype=torch.float32, memory_format=torch.contiguous_format)
                state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p, **like), torch.zeros_like(p, **like)
        averages = [[state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step")]
        options = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}
        step(params, [p.grad.detach() if p.grad.requires_grad else p.grad for p in params], *averages, **options)


# ## A run small enough to watch
#
# Two tensors, of five elements and of two, in chunks of four: three programs. The first step of AdamW has the size of
# `lr`, whatever the gradient is, unless it is as small as `eps`: both averages are exact after the correction, $g$ and
# $g^2$. So with gradients of 2 and -0.001, `adamw_kernel, pid=0, start=0: updated = [0.9, 0.9, 0.9, 0.9]` and
# `adamw_kernel, pid=2, start=0: updated[:2] = [1.1, 1.1]`.
def EXAMPLE():
    params = [torch.ones(5, device=device.DEVICE), torch.ones(2, device=device.DEVICE)]
    grads = [torch.full_like(params[0], 2.0), torch.full_like(params[1], -0.001)]
    averages = [[torch.zeros_like(p) for p in params] for _ in range(2)]
    step = torch.ones((), device=device.DEVICE)
    adamw_launch_(params, grads, *averages, [step] * 2, None, 0.1, 0.9, 0.999, 1e-8, 0.0, CHUNK=4, BLOCK=4)


if __name__ == "__main__":
    script.main(adamw_, adamw_reference)
