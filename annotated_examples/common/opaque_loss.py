r"""
# A loss inside `torch.compile`

Of a launcher that goes through a vocabulary piece by piece, Dynamo would write out every round of the loop.
`opaque_loss` turns a loss's two launchers into custom operators, which the compiler doesn't look into. It learns
shapes from `empty_forward` and `empty_backward`; the launchers are called when the compiled model runs.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import functools

import torch

from annotated_examples.common.custom_operator import opaque

OPTIONS = "float softcap, float scaling, SymInt ignore_index"
FORWARD = (
    f"(Tensor x, Tensor weight, Tensor labels, Tensor? bias, Tensor? n_items, {OPTIONS}) -> (Tensor, Tensor, Tensor)"
)
BACKWARD = (
    "(Tensor dloss, Tensor x, Tensor weight, Tensor labels, Tensor? bias, Tensor n_items, Tensor row_max, "
    f"Tensor row_sum, {OPTIONS}, *, bool[] needs) -> Tensor[]"
)


def empty_forward(x, weight, labels, *rest):
    return tuple(x.new_empty(shape, dtype=torch.float32) for shape in ((), labels.numel(), labels.numel()))


def empty_backward(dloss, x, weight, labels, bias, *rest, needs):
    return [value.new_empty(value.shape) for value, need in zip((x, weight, bias), needs) if need]


# An argument of an operator has one type, and its results are new tensors. So `n_items`, elsewhere a number or a
# tensor, has to be a tensor, and a gradient that isn't wanted is left out of the list.
def opaque_loss(launch_forward, launch_backward):
    """The two launchers of a loss of `x`, `weight` and `bias`, as custom operators for compiled models."""

    @opaque(FORWARD, empty_forward)
    @functools.wraps(launch_forward)
    def forward_operator(*arguments):
        loss, saved = launch_forward(*arguments)
        return loss, *(value.clone() for value in saved[-2:])  # results of an operator share no memory

    @opaque(BACKWARD, empty_backward)
    @functools.wraps(launch_backward)
    def backward_operator(*arguments, **needs):
        return [gradient for gradient in launch_backward(*arguments, **needs) if gradient is not None]

    def forward(x, weight, labels, bias, n_items, softcap, scaling, ignore_index):
        options = float(softcap), float(scaling), ignore_index
        loss, *row_max_and_sum = forward_operator(x, weight, labels, bias, n_items, *options)
        return loss, (x, weight, labels, bias, n_items, *row_max_and_sum)

    def backward(dloss, *saved_and_options, needs):
        *saved, softcap, scaling, ignore_index = saved_and_options
        needs = list(needs)
        found = iter(backward_operator(dloss, *saved, float(softcap), float(scaling), ignore_index, needs=needs))
        return tuple(next(found) if need else None for need in needs)

    return forward, backward
