"""What is measured of the causal convolution, and against whom."""

import torch

LESSON = "recurrences.causal_conv1d"
FAST = "fast.causal_conv1d"
FUNCTION = "causal_conv1d"
AXES = ("batch", "tokens", "channels")
TAPS = 4


# Forward reads inputs and writes outputs; the final state is small. Backward reads upstream and inputs and writes a
# gradient. Filter and bias are small, and so are their gradients. (Without an activation backward doesn't need the
# bias.) The lesson leaves these gradients in parts, which are float32, one for each `tile` of tokens.
def cost(shape, dtype, taps=TAPS, tile=None, state=False, silu=True):
    n, D = torch.Size(shape).numel(), shape[-1]
    size, states = dtype.itemsize, shape[0] * D * (taps - 1)
    sums = D * (taps + 1) * (4 * -(-n // D // tile) if tile else size)
    return {
        "forward": dict(
            bytes_read=(n + D * (taps + 1) + states * state) * size,
            bytes_written=(n + states) * size,
            operations=2 * taps * n,
        ),
        "backward": dict(
            bytes_read=(2 * n + D * (taps + silu) + states * (1 + state)) * size,
            bytes_written=(n + states * state) * size + sums,
            operations=2 * taps * (taps + 2) * n,
        ),
    }


def inputs(shape, dtype, device):
    shapes = dict(x=shape, weight=(shape[-1], TAPS), bias=shape[-1:])
    return {name: torch.randn(size, dtype=dtype, device=device) for name, size in shapes.items()}


# The upstream gradient has the layout of this result. A convolution leaves the channels of a token far apart; the next
# layer wants them side by side. Left as they are, every backward pass would be timed on a transposed gradient.
def eager(x, weight, bias):
    padded = torch.nn.functional.pad(x.transpose(1, 2), (weight.shape[1] - 1, 0))
    z = torch.nn.functional.conv1d(padded, weight[:, None], bias, groups=weight.shape[0])
    return torch.nn.functional.silu(z).transpose(1, 2).contiguous()


def fla():
    from fla.modules.convolution import causal_conv1d

    return lambda x, weight, bias: causal_conv1d(x, weight, bias, activation="silu", backend="triton")[0]


# The fast version loads the bias whether it needs it or not.
EXAMPLES = {
    "recurrences.causal_conv1d": cost((1, 5, 2), torch.float32, taps=3, tile=4, state=True, silu=False),
    "fast.causal_conv1d": cost((1, 5, 2), torch.float32, taps=3, state=True),
}
BENCH = dict(
    shapes=[(8, 4096, 4096), (1, 65536, 8192)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=lambda causal_conv1d: lambda x, weight, bias: causal_conv1d(x, weight, bias, activation="silu"),
    eager=eager,
    peers={"flash-linear-attention": fla},
    passes=["forward", "backward"],
    differentiable=["x", "weight", "bias"],
)
