r"""
# A vocabulary in pieces

The logits of a language model's last layer are the product of hidden states `x` (…, hidden) and `weight` (vocab,
hidden), and by far the largest tensor of a training step. A loss over them can do with a piece of the vocabulary at a
time: some rows of `weight`, and so some columns of the logits. This is what such losses share: the products, the
gradients that are made or summed piece by piece, and the checks of these arguments.
"""

from academy.runtime import checks, device  # noqa: F401  before anything imports triton

import torch


# ## The products
#
# `out` may be float32 where the factors have 16 bits. On a GPU the library adds up in float32 then, and leaves out the
# rounding. On the CPU, PyTorch has no such product, so the factors become float32 first: the same numbers.
def product_into(out, a, b, *, add=False):
    """`out = a @ b`, or with `add` `out += a @ b`, summed in float32."""
    if out.dtype == a.dtype:
        out.addmm_(a, b, beta=int(add))
    elif a.is_cuda:
        torch.addmm(out, a, b, out_dtype=out.dtype, beta=int(add), out=out)
    else:
        out.addmm_(a.float(), b.float(), beta=int(add))
    return out


# ## Pieces
def matrix_of(x):
    """All leading dimensions become one."""
    return x.reshape(x.shape[:-1].numel(), x.shape[-1])


def part_of(bias, start, end):
    return None if bias is None else bias[start:end].contiguous()


# ## Gradients
#
# The gradient of `x` is the sum over the pieces, so it is float32 until the last one. Without rows or without a
# vocabulary there is no piece, and the gradients are zeros.
def empty_gradients(rows, weight, bias, needs):
    make = torch.empty if len(rows) and len(weight) else torch.zeros
    dx = make(rows.shape, dtype=torch.float32, device=rows.device) if needs[0] else None
    dweight = make(weight.shape, dtype=weight.dtype, device=rows.device) if needs[1] else None
    dbias = make(bias.shape, dtype=bias.dtype, device=rows.device) if bias is not None and needs[2] else None
    return dx, dweight, dbias


def add_gradients(gradients, g, rows, part, start, first):
    dx, dweight, dbias = gradients
    end = start + len(part)
    if dx is not None:
        product_into(dx, g, part, add=not first)
    if dweight is not None:
        product_into(dweight[start:end], g.T, rows)
    if dbias is not None:
        dbias[start:end] = g.sum(0, dtype=torch.float32)


def finished(gradients, x):
    dx, dweight, dbias = gradients
    return None if dx is None else dx.to(x.dtype).view(x.shape), dweight, dbias


# ## Arguments
#
# The labels come under the caller's name for them.
def projection_contract(x, weight, bias, **labels):
    ((name, rows),) = labels.items()
    checks.tensors(x=x, weight=weight, **labels)
    checks.optional_tensors(bias=bias)
    checks.dtypes(x=x)
    checks.dtypes({x.dtype: None, torch.float32: None}, weight=weight, bias=bias)
    checks.dimensions("x", x, range(1, 65), "the last one is hidden")
    checks.dimensions("weight", weight, 2, "vocab, hidden")
    if weight.shape[1] != x.shape[-1]:
        raise ValueError(
            f"weight must have as many columns as x, {x.shape[-1]}, "
            f"got shapes {tuple(weight.shape)} and {tuple(x.shape)}"
        )
    checks.shape("bias", bias, weight.shape[:1], "one for each row of weight")
    for argument, value in dict(weight=weight, bias=bias).items():
        if value is not None and value.device != x.device:
            raise ValueError(f"{argument} must be on the device of x, {x.device}, got {value.device}")
    if len(weight) == 0 and rows.numel():
        raise ValueError(f"weight must have at least one row, got shape {tuple(weight.shape)}")
