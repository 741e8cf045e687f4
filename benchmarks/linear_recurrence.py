"""What is measured of the linear recurrence, and against whom."""

import torch

LESSON = "recurrences.linear_recurrence"
FAST = "fast.linear_recurrence"
FUNCTION = "linear_recurrence"
AXES = ("batch", "tokens", "channels")


# Forward reads gates and inputs and writes states; backward reads upstream, gates and states and writes two gradients.
# Final states are float32. An element takes about twenty operations in the rounds of a scan.
def cost(shape, dtype):
    n, states = torch.Size(shape).numel(), 4 * shape[0] * shape[2]
    size = dtype.itemsize
    return {
        "forward": dict(bytes_read=2 * n * size, bytes_written=n * size + states, operations=20 * n),
        "backward": dict(bytes_read=3 * n * size + states, bytes_written=2 * n * size + states, operations=22 * n),
    }


# With an initial state, which both passes read. Of the states the backward pass reads all but the last.
def example_cost(shape):
    costs, state = cost(shape, torch.float32), 4 * shape[0] * shape[2]
    costs["forward"]["bytes_read"] += state
    return costs


def inputs(shape, dtype, device):
    return dict(a=torch.rand(shape, dtype=dtype, device=device), x=torch.randn(shape, dtype=dtype, device=device))


def eager(a, x):
    from annotated_examples.recurrences.linear_recurrence import linear_recurrence_reference

    return linear_recurrence_reference(a, x)


def fla():
    from fla.ops.hgrn import chunk_hgrn

    return lambda a, x: chunk_hgrn(x, a.float().log())[0]


EXAMPLES = {name: example_cost((1, 6, 2)) for name in (LESSON, FAST)}
BENCH = dict(
    shapes=[(8, 4096, 2048), (1, 65536, 2048), (64, 1, 4096)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    time_eager=False,
    peers={"flash-linear-attention": fla},
    passes=["forward", "backward"],
    differentiable=["a", "x"],
    compile=False,
)
