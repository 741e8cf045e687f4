"""What is measured of grouped products, and against whom. All experts have the same number of rows; in the variant
`skewed` the first has the most, and the n-th one n-th of that."""

import torch

LESSON = "moe.grouped_matmul"
FAST = "fast.grouped_matmul"
FUNCTION = "grouped_matmul"
AXES = ("rows", "experts", "K", "N")


# Rows, matrices and offsets are read once, the result is written once. Backward forms both gradients.
def cost(shape, dtype, used=None, owned=None):
    rows, experts, K, N = shape
    owned, used, size = owned or rows, used or experts, dtype.itemsize
    moved = (owned * K + used * K * N) * size
    return {
        "forward": dict(bytes_read=moved + 4 * experts, bytes_written=rows * N * size, operations=2 * owned * K * N),
        "backward": dict(
            bytes_read=moved + rows * N * size + 4 * experts, bytes_written=moved, operations=4 * owned * K * N
        ),
    }


def inputs(shape, dtype, device):
    rows, experts, K, N = shape
    ends = torch.arange(1, experts + 1, device=device) * rows // experts
    return dict(
        a=torch.randn(rows, K, dtype=dtype, device=device),
        b=torch.randn(experts, N, K, dtype=dtype, device=device).transpose(1, 2),
        offsets=ends.int(),
    )


def skewed(shape, dtype, device):
    rows, experts, *_ = shape
    shares = (1 / torch.arange(1, experts + 1, device=device, dtype=torch.float64)).cumsum(0)
    return inputs(shape, dtype, device) | dict(offsets=(shares / shares[-1] * rows).round().int())


# PyTorch has no grouped product in float64, against which a script compares: there a loop takes its place.
def eager(a, b, offsets):
    if a.dtype == torch.float64:
        from annotated_examples.moe.grouped_matmul import grouped_matmul_reference

        return grouped_matmul_reference(a, b, offsets)
    return torch.nn.functional.grouped_mm(a, b, offs=offsets)


# Three of four experts have rows, and the last row is nobody's.
EXAMPLES = {
    "moe.grouped_matmul": {"forward": cost((12, 4, 6, 7), torch.float32, used=3, owned=11)["forward"]},
    "fast.grouped_matmul": {"forward": cost((24, 3, 16, 24), torch.float16, used=2, owned=22)["forward"]},
}
BENCH = dict(
    shapes=[(49152, 64, 2048, 1408), (3072, 64, 2048, 1408), (65536, 256, 2048, 768), (65536, 128, 2048, 768)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    eager_name="grouped_mm",
    compile=False,
    passes=["forward", "backward"],
    differentiable=["a", "b"],
    host_shape=(64, 4, 64, 64),
    variants={
        "": {},
        "skewed": dict(inputs=skewed, shapes=[(49152, 64, 2048, 1408), (3072, 64, 2048, 1408)]),
    },
)
