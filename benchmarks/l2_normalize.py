"""What is measured of the L2 normalisation, and against whom. `shape` is (batch, tokens, heads, head dimension)."""

import torch

LESSON = "recurrences.l2_normalize"
FAST = None
FUNCTION = "l2_normalize"
AXES = ("batch", "tokens", "heads", "head dimension")


# Forward reads x and writes y, and one over the length of each row, 4 bytes; backward reads dy, x and that.
def cost(shape, dtype):
    numel, N = torch.Size(shape).numel(), shape[-1]
    size, lengths = dtype.itemsize, 4 * (numel // N)
    return {
        "forward": dict(bytes_read=numel * size, bytes_written=numel * size + lengths, operations=3 * numel),
        "backward": dict(bytes_read=2 * numel * size + lengths, bytes_written=numel * size, operations=7 * numel),
    }


def inputs(shape, dtype, device):
    return dict(x=torch.randn(shape, dtype=dtype, device=device))


def eager(x):
    return (x.float() * torch.rsqrt(x.float().pow(2).sum(-1, keepdim=True) + 1e-6)).to(x.dtype)


def fla(inputs):
    from fla.modules.l2norm import l2_norm

    return lambda x: l2_norm(x, eps=1e-6)


EXAMPLES = {"recurrences.l2_normalize": cost((3, 3), torch.float32)}
BENCH = dict(
    shapes=[(8, 4096, 16, 128), (1, 65536, 16, 128), (8, 4096, 32, 64)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    peers={"fla": fla},
    passes=["forward", "backward"],
    differentiable=["x"],
)
