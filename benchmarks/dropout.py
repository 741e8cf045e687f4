"""What is measured of dropout, and against whom."""

import torch

LESSON = "classics.dropout"
FAST = None
FUNCTION = "dropout"
AXES = ("rows", "columns")


# Each pass reads an element and writes one, and reads the seed. A word of random bits takes about 15 operations.
def cost(shape, dtype):
    n = torch.Size(shape).numel()
    one = dict(bytes_read=n * dtype.itemsize + 8, bytes_written=n * dtype.itemsize, operations=20 * n)
    return {"forward": one, "backward": one}


def inputs(shape, dtype, device):
    return dict(x=torch.randn(shape, dtype=dtype, device=device))


# PyTorch draws another mask each time, so the peers are only timed; that ours is right is for the tests to say. What
# they are compared with is our mask, made in PyTorch.
def reference(x):
    from annotated_examples.classics.dropout import dropout_reference

    return dropout_reference(x, 0.1, 7)


EXAMPLES = {"classics.dropout": cost((20,), torch.float32)}
BENCH = dict(
    shapes=[(8192, 8192), (32768, 4096), (8192, 14336), (4096, 1024), (16384, 4097)],
    dtypes=[torch.bfloat16, torch.float32],
    inputs=inputs,
    call=lambda dropout: lambda x: dropout(x, 0.1, 7),
    eager=lambda x: torch.nn.functional.dropout(x, 0.1),
    reference=reference,
    passes=["forward", "backward"],
    differentiable=["x"],
)
