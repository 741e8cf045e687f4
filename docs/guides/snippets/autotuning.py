"""Triton's own autotuner with a pretended clock, so that it can be watched without a GPU: for the guide."""

# --8<-- [start:imports]
from academy.runtime import device

import torch
import triton
import triton.language as tl
# --8<-- [end:imports]


# --8<-- [start:clock]
trials = []


def pretended_clock(run, quantiles):
    """Stands for `do_bench`: runs the kernel, and calls every later trial quicker than the one before."""
    run()
    trials.append(1.0 / (len(trials) + 1))
    return [trials[-1]] * 3  # median, 20 % and 80 % quantiles, in ms


# --8<-- [end:clock]

# --8<-- [start:tuned]
configs = [triton.Config({"BLOCK": block}) for block in (16, 32, 64)]


@triton.autotune(configs, key=["n"], do_bench=pretended_clock)
@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask, other=0.0), mask=mask)


def double(x):
    out = torch.empty_like(x)
    double_kernel[lambda meta: (triton.cdiv(len(x), meta["BLOCK"]),)](x, out, len(x))
    return out


double(torch.ones(100, device=device.DEVICE))
print(len(trials), double_kernel.best_config.kwargs)  # → 3 {'BLOCK': 64}
double(torch.ones(100, device=device.DEVICE))
print(len(trials))  # → 3
# --8<-- [end:tuned]

# --8<-- [start:key]
double(torch.ones(101, device=device.DEVICE))
print(len(trials))  # → 6
double(torch.ones(100, dtype=torch.float16, device=device.DEVICE))
print(len(trials))  # → 9
print(list(double_kernel.cache)[-1])  # → (100, 'torch.float16', 'torch.float16')
# --8<-- [end:key]


# --8<-- [start:mutated]
def accumulate_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.atomic_add(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask, other=0.0), mask=mask)


def two_calls(kernel):
    x, out = torch.ones(100, device=device.DEVICE), torch.zeros(100, device=device.DEVICE)
    results = []
    for _ in range(2):
        out.zero_()
        kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100)
        results.append(out[0].item())
    return results


jitted = triton.jit(accumulate_kernel)
tune = dict(configs=configs, key=["n"], do_bench=pretended_clock)
print(two_calls(triton.autotune(**tune)(jitted)))  # → [4.0, 1.0]
print(two_calls(triton.autotune(**tune, reset_to_zero=["out_ptr"])(jitted)))  # → [1.0, 1.0]
print(two_calls(triton.autotune(**tune, restore_value=["out_ptr"])(jitted)))  # → [1.0, 1.0]
# --8<-- [end:mutated]


# --8<-- [start:pruned]
def fitting(configs, named_args, **meta):
    """Keep the blocks that are not mostly padding."""
    return [c for c in configs if c.kwargs["BLOCK"] < 2 * named_args["n"]] or configs[:1]


trials.clear()
pruned = triton.autotune(**tune, prune_configs_by={"early_config_prune": fitting})(triton.jit(double_kernel.fn.fn))
x = torch.ones(20, device=device.DEVICE)
pruned[lambda meta: (triton.cdiv(20, meta["BLOCK"]),)](x, torch.empty_like(x), 20)
print(len(trials), pruned.best_config.kwargs)  # → 2 {'BLOCK': 32}
# --8<-- [end:pruned]


# --8<-- [start:academy]
kernel = device.autotune(configs, key=["n"])(jitted)
print(len(kernel.configs) == (1 if device.INTERPRET else 3))  # → True
# --8<-- [end:academy]
