"""Arguments that are changed in place between the forward pass and the backward pass, as an optimizer that steps too
early does: the gradients are those of the values that the forward pass saw, or autograd raises."""

import pytest
import torch

from academy.judge import public

#: They draw or count, and nothing of their arguments is needed again.
DIFFERENTIABLE = [case for case in public.calls(more=True) if case.differentiable]
ALWAYS = ("fp8.linear", "fast.moe_mlp")


def gradients(case, changed: str | None) -> list[torch.Tensor]:
    inputs = case.inputs()
    leaves = [x.requires_grad_() for x in inputs.values() if x.is_floating_point()]
    out = case.load()(**inputs)
    if changed:
        with torch.no_grad():
            inputs[changed].zero_() if inputs[changed].is_floating_point() else inputs[changed].mul_(0)
    upstream = torch.linspace(0.5, 1.5, out.numel(), device=out.device).to(out.dtype).view(out.shape)
    return torch.autograd.grad(out, leaves, upstream, allow_unused=True)


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=[] if c.module in ALWAYS else pytest.mark.nightly) for c in DIFFERENTIABLE],
    ids=str,
)
def test_right_or_refused(case):
    expected, refused = gradients(case, None), []
    for name in case.inputs():
        try:
            actual = gradients(case, name)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error) or "changed" in str(error), error
            refused.append(name)
            continue
        for mine, theirs in zip(actual, expected):
            assert mine is theirs is None or torch.equal(mine.nan_to_num(), theirs.nan_to_num()), name
    print(case, "refused:", refused)
