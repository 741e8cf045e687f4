"""Grouped products: what is compared with formulas, and what is measured.

All experts have the same number of rows; in the variant `skewed` the first has the most, and the n-th one n-th of that.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations.router import ALL

LESSON = "moe.grouped_matmul"
FAST = "fast.grouped_matmul"
FUNCTION = "grouped_matmul"
AXES = ("rows", "experts", "K", "N")
DERIVATION = "moe"


# ---------------------------------------------------------------- public functions
def rows_of_experts(rows, width):
    """Four experts, the second without rows, and a few rows of nobody. Matrices are square where width is 40."""
    ends = torch.tensor([rows // 3, rows // 3, rows // 2, rows - rows // 8], dtype=torch.int32)
    return {"a": torch.randn(rows, width), "b": torch.randn(4, width, 40), "offsets": ends}


def counted_inside(grouped):
    """The rows of each expert are counted inside the function."""

    def call(a, b, offsets, **options):
        of_row = torch.bucketize(torch.arange(32, device=offsets.device), offsets, right=True)
        return grouped(a, b, torch.bincount(of_row, minlength=5)[:4].cumsum(0).int(), **options)

    return call


COLUMNS = dict(inputs={"a": "40 32", "b": "32 24"})
PUBLIC = [
    Public(
        "grouped_matmul", rows_of_experts, at=(32, 40), calls=[dict(inputs={"bias": "4 40"}), COLUMNS],
        more=[dict(wrap=counted_inside, out_dtype=torch.float32), COLUMNS | dict(wrap=counted_inside)],
        sizes={"width": (16, 40)}, without={"non-finite": "PyTorch's sum over rows multiplies zeros with them"},
    )
]  # fmt: skip

# ---------------------------------------------------------------- rows grouped by expert
GROUPED = (LESSON, FAST)
#: Of all rows: one expert without any, and the rest belong to nobody.
SHARES = (0.3, 0.0, 0.45, 0.1, 0.05)


def ends(rows, E):
    found, share = [], 0.0
    for each in SHARES[:E]:
        share += each
        found.append(int(rows * share))
    return found if E > 1 else [rows]


def membership(rows, E):
    u, start = torch.zeros(rows, E, dtype=torch.float64), 0
    for expert, end in enumerate(ends(rows, E)):
        u[start:end, expert] = 1
        start = end
    return {"u": u}


def of_rows(R, E):
    return membership(R, E)


def offsets(X, E):
    return torch.tensor(ends(X.shape[0], E), dtype=torch.int32, device=X.device)


def grouped(modules=GROUPED, **sizes):
    return dict(modules=modules, values=of_rows, sizes={"R": 23, "E": 5, "K": 10, "N": 7} | sizes, dtypes=ALL)


def of_product(V):
    return V


def of_sums(Q):
    return Q


ROWS = {"X": "GM-da", "W": "GM-db", "B": "GM-dbias"}


@case(returns="GM-C", gradients=ROWS, upstream=of_product, **grouped())
def grouped_rows(module, X, W, B, E):
    return module.grouped_matmul(a=X, b=W, offsets=offsets(X, E), bias=B)


@grouped_rows.pytorch
def _(module, X, W, B, E):
    return module.grouped_matmul_reference(X, W, offsets(X, E), bias=B)


@case(returns="GM-C", gradients={"X": "GM-da", "W": "GM-db"}, upstream=of_product, **grouped(GROUPED[0]))
def grouped_rows_in_small_tiles(module, X, W, B, V, E):
    at = offsets(X, E)
    C = module.grouped_rows_forward(X, W, at, B, BLOCK_M=4, BLOCK_N=4, BLOCK_K=16)
    dX = module.grouped_rows_forward(V, W.transpose(1, 2), at, BLOCK_M=4, BLOCK_N=4, BLOCK_K=16)
    dW = module.grouped_sums_forward(X.t(), V, at, BLOCK_M=4, BLOCK_N=4, BLOCK_R=16)
    return C, {"X": dX, "W": dW}


grouped_rows_in_small_tiles.pytorch(grouped_rows.said["pytorch"])
IN_TILES = grouped(GROUPED[1], R=43, K=24, N=40) | {"dtypes": ("float16",)}


@case(returns="GM-C", gradients={"X": "GM-da", "W": "GM-db"}, upstream=of_product, **IN_TILES)
def grouped_rows_by_descriptors(module, X, W, B, V, E):
    at, tiles = offsets(X, E), dict(BLOCK_M=16, BLOCK_N=16, NUM_PROGRAMS=2)
    C = module.grouped_rows_forward(X, W, at, B, BLOCK_K=16, **tiles)
    dX = module.grouped_rows_forward(V, W.transpose(1, 2), at, BLOCK_K=16, **tiles)
    dW = module.grouped_sums_forward(X.t(), V, at, BLOCK_R=16, **tiles)
    return C, {"X": dX, "W": dW}


@case(returns="GM-C", gradients={"X": "GM-da"}, upstream=of_product, **IN_TILES)
def grouped_rows_in_turned_tiles(module, X, W, B, V, E):
    at, tiles = offsets(X, E), dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, NUM_PROGRAMS=2, TURNED=True)
    C = module.grouped_rows_forward(X, W, at, B, **tiles)
    dX = module.grouped_rows_forward(V, W.transpose(1, 2), at, **tiles)
    return C, {"X": dX}


grouped_rows_by_descriptors.pytorch(grouped_rows.said["pytorch"])
grouped_rows_in_turned_tiles.pytorch(grouped_rows.said["pytorch"])


@case(returns="GM-D", gradients={"P": "GM-D-P", "Y": "GM-D-Y"}, upstream=of_sums, **grouped())
def grouped_sums(module, P, Y, E):
    return module.grouped_matmul(P.t(), Y, offsets(P, E), out_dtype=P.dtype)


@grouped_sums.pytorch
def _(module, P, Y, E):
    return module.grouped_matmul_reference(P.t(), Y, offsets(P, E))


# ---------------------------------------------------------------- what is measured
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
    LESSON: {"forward": cost((12, 4, 6, 7), torch.float32, used=3, owned=11)["forward"]},
    FAST: {"forward": cost((24, 3, 16, 24), torch.float16, used=2, owned=22)["forward"]},
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
