r"""
# A loss inside `torch.compile`

Dynamo can't trace a launcher that writes to parts of one tensor, piece by piece, and multiplies in mixed precision.
`opaque_loss` turns a loss's two launchers into custom operators, which the compiler doesn't look into. It asks the
`fake` functions for shapes, and the launchers are called when the compiled model runs.
"""

from academy import device  # noqa: F401  before anything imports triton

import torch


# An operator takes tensors and numbers, and returns new tensors. So `n_items` has to be a tensor, and a gradient that
# isn't wanted is left out of the list.
def opaque_loss(launch_forward, launch_backward):
    """The two launchers of a loss of `x`, `weight` and `bias`, as custom operators for compiled models."""
    name, forward_name, backward_name = (
        text.replace(".", "_")
        for text in (launch_forward.__module__, launch_forward.__name__, launch_backward.__name__)
    )

    @torch.library.custom_op(f"{name}::{forward_name}", mutates_args=())
    def forward_operator(
        x: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, bias: torch.Tensor | None, n_items: torch.Tensor,
        softcap: float, scaling: float, ignore_index: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
        loss, saved = launch_forward(x, weight, labels, bias, n_items, softcap, scaling, ignore_index)
        return loss, *(value.clone() for value in saved[-2:])  # results of an operator share no memory

    @forward_operator.register_fake
    def _(x, weight, labels, bias, n_items, softcap, scaling, ignore_index):
        return tuple(x.new_empty(shape, dtype=torch.float32) for shape in ((), labels.numel(), labels.numel()))

    @torch.library.custom_op(f"{name}::{backward_name}", mutates_args=())
    def backward_operator(
        dloss: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, bias: torch.Tensor | None,
        n_items: torch.Tensor, row_max: torch.Tensor, row_sum: torch.Tensor,
        softcap: float, scaling: float, ignore_index: int, needs: list[bool],
    ) -> list[torch.Tensor]:  # fmt: skip
        saved = x, weight, labels, bias, n_items, row_max, row_sum
        gradients = launch_backward(dloss, *saved, softcap, scaling, ignore_index, needs=needs)
        return [gradient for gradient in gradients if gradient is not None]

    @backward_operator.register_fake
    def _(dloss, x, weight, labels, bias, n_items, row_max, row_sum, softcap, scaling, ignore_index, needs):
        return [value.new_empty(value.shape) for value, need in zip((x, weight, bias), needs) if need]

    def forward(x, weight, labels, bias, n_items, softcap, scaling, ignore_index):
        options = float(softcap), float(scaling), ignore_index
        loss, *row_max_and_sum = forward_operator(x, weight, labels, bias, n_items, *options)
        return loss, (x, weight, labels, bias, n_items, *row_max_and_sum)

    def backward(dloss, *saved_and_options, needs):
        *saved, softcap, scaling, ignore_index = saved_and_options
        needs = list(needs)
        found = iter(backward_operator(dloss, *saved, float(softcap), float(scaling), ignore_index, needs))
        return tuple(next(found) if need else None for need in needs)

    return forward, backward
