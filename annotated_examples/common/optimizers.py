"""
# What optimizers share

An optimizer's `load_state_dict` converts the state to the dtype of the parameter, which would round the averages of
bfloat16 weights. They are float32 for a reason: with a factor of 0.999 an average moves by a thousandth of the
difference in each step, and a bfloat16 that should move by less than 0.19 % of its size stays where it is.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import torch

try:
    from torch.optim import Optimizer
except ImportError:  # the playground's torch has none
    Optimizer = object


class InFloat32(Optimizer):
    """An optimizer whose state is float32 whatever the parameters are. A subclass has `update(group)`."""

    @torch.no_grad()
    def step(self, closure=None):
        """One step. closure: as in PyTorch's optimizers, evaluates the loss again; its value is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.update(group)
        return loss

    def load_state_dict(self, state_dict):
        """As PyTorch's; the averages stay float32."""
        super().load_state_dict(state_dict)
        saved = [number for group in state_dict["param_groups"] for number in group["params"]]
        params = [p for group in self.param_groups for p in group["params"]]
        for number, p in zip(saved, params):
            for name, value in state_dict["state"].get(number, {}).items():
                self.state[p][name] = value.to(p.device, torch.float32, copy=True)
