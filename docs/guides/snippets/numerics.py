"""What floating point does to a kernel, each effect alone: for the guide "Numerics"."""

# --8<-- [start:imports]
from academy.judge import accuracy
from academy.runtime import device

import torch
import triton
import triton.language as tl

torch.manual_seed(0)
# --8<-- [end:imports]

# --8<-- [start:dtypes]
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn):
    info = torch.finfo(dtype)
    print(f"{str(dtype)[6:]:14} eps {info.eps:.1e}  largest {info.max:.3g}  smallest normal {info.smallest_normal:.1e}")
# → float32        eps 1.2e-07  largest 3.4e+38  smallest normal 1.2e-38
# → float16        eps 9.8e-04  largest 6.55e+04  smallest normal 6.1e-05
# → bfloat16       eps 7.8e-03  largest 3.39e+38  smallest normal 1.2e-38
# → float8_e4m3fn  eps 1.2e-01  largest 448  smallest normal 1.6e-02
# --8<-- [end:dtypes]


# --8<-- [start:rounding]
x = torch.tensor([1.0, 300.0, 70000.0])
print(x.half().tolist())  # → [1.0, 300.0, inf]
print(x.bfloat16().tolist())  # → [1.0, 300.0, 70144.0]
print((x.bfloat16() + 1).tolist())  # → [2.0, 300.0, 70144.0]
print(torch.tensor(1e-8).half().item(), (1024 * torch.tensor(1e-8)).half().item() > 0)  # → 0.0 True
# --8<-- [end:rounding]


# --8<-- [start:stuck]
@triton.jit
def sum_kernel(x_ptr, out_ptr, n, acc_dtype: tl.constexpr):
    # `tl.zeros((1,), dtype=acc_dtype)` makes a block of zeros: of one, here.
    acc = tl.zeros((1,), dtype=acc_dtype)
    for i in range(0, n):
        acc += tl.load(x_ptr + i + tl.arange(0, 1)).to(acc_dtype)
    tl.store(out_ptr + tl.arange(0, 1), acc.to(tl.float32))


ones = torch.ones(3000, dtype=torch.float16, device=device.DEVICE)
total = torch.empty(1, device=device.DEVICE)
for acc_dtype in (tl.float16, tl.float32):
    sum_kernel[(1,)](ones, total, len(ones), acc_dtype)
    print(acc_dtype, total.item())
# → fp16 2048.0
# → fp32 3000.0
# --8<-- [end:stuck]


# --8<-- [start:registers]
@triton.jit
def running_max_kernel(x_ptr, out_ptr, rows, N: tl.constexpr, FLOAT32: tl.constexpr):
    offsets = tl.arange(0, N)
    best = tl.load(x_ptr + offsets)
    if FLOAT32:
        best = best.to(tl.float32)
    for row in range(1, rows):
        x = tl.load(x_ptr + row * N + offsets)
        best = tl.where(x > best, x, best)
    tl.store(out_ptr + offsets, best)


# --8<-- [end:registers]


# --8<-- [start:order]
a, b, c = torch.tensor([1e8, -1e8, 1.0])
print(((a + b) + c).item(), (a + (b + c)).item())  # → 1.0 0.0
# --8<-- [end:order]


# --8<-- [start:fused]
@triton.jit
def square_less_one_kernel(x_ptr, out_ptr):
    x = tl.load(x_ptr)
    tl.store(out_ptr, tl.fma(x, x, 0.0) - 1)  # the square is rounded, then the difference
    tl.store(out_ptr + 1, tl.fma(x, x, -1.0))


x, out = torch.tensor([1 + 2**-12], device=device.DEVICE), torch.empty(2, device=device.DEVICE)
square_less_one_kernel[(1,)](x, out)
print([y * 2**24 for y in out.tolist()])  # → [8192.0, 8193.0]
# --8<-- [end:fused]


# --8<-- [start:tf32]
def to_tf32(x, half=0x1000):
    """Keep 10 of the 23 bits of a float32's fraction, rounded to nearest (ties away from zero); with half=0 cut off."""
    bits = x.view(torch.int32)
    return ((bits + half) & ~0x1FFF).view(torch.float32)


a, b = torch.randn(64, 512), torch.randn(512, 64)
exact = a.double() @ b.double()
print("float32", accuracy.errors(a @ b, exact).rms < 5e-7)  # → float32 True
print(f"tf32    {accuracy.errors(to_tf32(a, 0) @ to_tf32(b, 0), exact).rms:.0e}")  # → tf32    8e-04
print(f"rounded {accuracy.errors(to_tf32(a) @ to_tf32(b), exact).rms:.0e}")  # → rounded 3e-04
print(f"float16 {accuracy.errors(a.half().float() @ b.half().float(), exact).rms:.0e}")  # → float16 3e-04
# --8<-- [end:tf32]


# --8<-- [start:cancellation]
x = 10000 + torch.randn(1000)
exact = x.double().var(correction=0)
short_cut = (x * x).mean() - x.mean() ** 2
two_steps = ((x - x.mean()) ** 2).mean()
print(f"exact {exact:.3f}, two steps {two_steps:.3f}")  # → exact 0.987, two steps 0.987
print(short_cut.item() % 8, abs(short_cut - exact).item() > 0.9)  # → 0.0 True
# --8<-- [end:cancellation]


# --8<-- [start:overflow]
x = torch.tensor([1000.0, 1001.0, 1002.0])
print((x.exp() / x.exp().sum()).tolist())  # → [nan, nan, nan]
shifted = (x - x.max()).exp()
print([round(p, 3) for p in (shifted / shifted.sum()).tolist()])  # → [0.09, 0.245, 0.665]
# --8<-- [end:overflow]


# --8<-- [start:online]
def online_logsumexp(chunks):
    """One pass, with the largest value so far and the sum of exponentials relative to it."""
    running_max, running_sum = torch.tensor(float("-inf")), torch.tensor(0.0)
    for chunk in chunks:
        new_max = torch.maximum(running_max, chunk.max())
        running_sum = running_sum * (running_max - new_max).exp() + (chunk - new_max).exp().sum()
        running_max = new_max
    return running_max + running_sum.log()


x = 100 * torch.randn(1000)
print(torch.allclose(online_logsumexp(x.split(64)), x.logsumexp(0)))  # → True
print(online_logsumexp([torch.full((4,), float("-inf")), x]).item())  # → nan
# --8<-- [end:online]


# --8<-- [start:growth]
x = torch.linspace(0, 1, 2**20)
exact = x.double().sum().item()
one_by_one = x.numpy().cumsum()[-1]  # each addition waits for the one before
tree = x
while len(tree) > 1:  # halves, added element by element
    tree = tree[: len(tree) // 2] + tree[len(tree) // 2 :]
print(f"{abs(one_by_one / exact - 1):.0e}", abs(tree.item() / exact - 1) < 1e-7)  # → 1e-04 True
# --8<-- [end:growth]


# --8<-- [start:budget]
def layernorm_short_cut(x):
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean
    return (x - mean) / (variance + 1e-5).sqrt()


x = torch.randn(64, 1000)
for offset in (0, 100):
    exact = torch.nn.functional.layer_norm((x + offset).double(), (1000,))
    pytorch = torch.nn.functional.layer_norm(x + offset, (1000,))
    message = accuracy.problem(layernorm_short_cut(x + offset), pytorch, exact)
    print(offset, "right" if message is None else message.split(" is ")[1].split(" PyTorch")[0])
# → 0 right
# → 100 more than twice
# --8<-- [end:budget]


# --8<-- [start:once]
x = torch.randn(64, 1000).bfloat16()
exact = x.double().softmax(dim=-1)
once = x.float().softmax(dim=-1).bfloat16()
each_step = (x - x.amax(-1, keepdim=True)).exp()
each_step = each_step / each_step.sum(-1, keepdim=True)
print(f"{accuracy.errors(once, exact).rms:.0e}, {accuracy.errors(each_step, exact).rms:.0e}")  # → 2e-03, 4e-03
# --8<-- [end:once]


# --8<-- [start:tf32x3]
def three_products(x, y):
    """What "tf32x3" does: a float32 is the sum of two tf32 numbers and a rest; of four products, three matter."""
    high_x, high_y = to_tf32(x), to_tf32(y)
    low_x, low_y = to_tf32(x - high_x), to_tf32(y - high_y)
    return low_x @ high_y + high_x @ low_y + high_x @ high_y


exact = a.double() @ b.double()
print("tf32x3", accuracy.errors(three_products(a, b), exact).rms < 5e-7)  # → tf32x3 True
# --8<-- [end:tf32x3]


# --8<-- [start:fp8]
def to_fp8(x, scale):
    """Divide by the scale, round to e4m3, multiply again."""
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale


print([round(x, 3) for x in to_fp8(torch.tensor([1.05, 17.0, 500.0]), 1.0).tolist()])  # → [1.0, 16.0, 448.0]
gradients = 1e-4 * torch.randn(256, 256)
print(f"scale 1: {accuracy.errors(to_fp8(gradients, 1.0), gradients.double()).rms:.0e}")  # → scale 1: 1e+00
scale = gradients.abs().max() / 448
print(
    f"largest / 448: {accuracy.errors(to_fp8(gradients, scale), gradients.double()).rms:.0e}"
)  # → largest / 448: 3e-02
gradients[0, 0] = 100.0  # an outlier
scale = gradients.abs().max() / 448
rows = gradients.abs().amax(1, keepdim=True) / 448
others = gradients[1:]
for name, scales in (("one scale for all", scale), ("one for each row", rows[1:])):
    print(f"{name}: {accuracy.errors(to_fp8(others, scales), others.double()).rms:.0e}")
# → one scale for all: 1e+00
# → one for each row: 3e-02
# --8<-- [end:fp8]
