"""One kernel on its way into PyTorch: for the guide "From PyTorch to Triton"."""

# --8<-- [start:imports]
from academy.runtime import autograd, device

import torch
import triton
import triton.language as tl
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable
# --8<-- [end:imports]


# --8<-- [start:kernel]
@triton.jit
def scale_rows_kernel(x_ptr, scale_ptr, out_ptr, stride_xm, stride_xn, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols * stride_xn, mask=mask, other=0.0)
    tl.store(out_ptr + row * N + cols, x * tl.load(scale_ptr + row), mask=mask)


def scale_rows_forward(x, scale):
    M, N = x.shape
    out = torch.empty(M, N, dtype=x.dtype, device=x.device)
    grid = (M,)
    scale_rows_kernel[grid](x, scale.contiguous(), out, *x.stride(), N, BLOCK=triton.next_power_of_2(N))
    return out


x = torch.arange(6.0, device=device.DEVICE).view(2, 3)
scale = torch.tensor([1.0, 10.0], device=device.DEVICE)
print(scale_rows_forward(x, scale).tolist())  # → [[0.0, 1.0, 2.0], [30.0, 40.0, 50.0]]
# --8<-- [end:kernel]

# --8<-- [start:strides]
views = {"plain": x, "transposed": x.T, "every other": x[:, ::2], "expanded": x[0].expand(2, 3)}
for name, view in views.items():
    right = torch.equal(scale_rows_forward(view, scale.new_ones(len(view))), view)
    print(f"{name}: shape {tuple(view.shape)}, strides {view.stride()}, {'right' if right else 'wrong'}")
# → plain: shape (2, 3), strides (3, 1), right
# → transposed: shape (3, 2), strides (1, 3), right
# → every other: shape (2, 2), strides (3, 2), right
# → expanded: shape (2, 3), strides (0, 1), right
# --8<-- [end:strides]


# --8<-- [start:silent]
x = torch.ones(2, 3, device=device.DEVICE, requires_grad=True)
print(scale_rows_forward(x, scale).requires_grad)  # → False
# --8<-- [end:silent]


# --8<-- [start:function]
class ScaleRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return scale_rows_forward(x, scale)

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dout):
        x, scale = ctx.saved_tensors
        dx = scale_rows_forward(dout, scale) if ctx.needs_input_grad[0] else None
        dscale = (dout * x).sum(dim=1) if ctx.needs_input_grad[1] else None
        return dx, dscale


ScaleRows.apply(x, scale).sum().backward()
print(x.grad.tolist())  # → [[1.0, 1.0, 1.0], [10.0, 10.0, 10.0]]
# --8<-- [end:function]


# --8<-- [start:frame]
def scaled_rows(x, scale):
    if not autograd.needs_frame(x, scale):
        return scale_rows_forward(x, scale)
    return ScaleRows.apply(x, scale)


with forward_ad.dual_level():
    dual = forward_ad.make_dual(x.detach(), torch.ones_like(x))
    print(forward_ad.unpack_dual(scale_rows_forward(dual, scale)).tangent)  # → None
    try:
        scaled_rows(dual, scale)
    except NotImplementedError as error:
        print(str(error)[:35])  # → You must implement the jvp function
# --8<-- [end:frame]


# --8<-- [start:autocast]
kind = device.DEVICE.type  # "cuda", or "cpu" in the interpreter


class Doubled(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type=kind, cast_inputs=torch.bfloat16)
    def forward(ctx, x):
        return x * 2  # a launch stands here

    @staticmethod
    @torch.amp.custom_bwd(device_type=kind)
    def backward(ctx, dy):
        return dy * 2


weights = torch.ones(3, device=device.DEVICE, requires_grad=True)
with torch.autocast(kind, dtype=torch.bfloat16):
    y = Doubled.apply(weights)
y.sum().backward()
print(y.dtype, weights.grad.dtype, Doubled.apply(weights).dtype)  # → torch.bfloat16 torch.float32 torch.float32
# --8<-- [end:autocast]


# --8<-- [start:upstream]
class Spy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dout):
        print(tuple(dout.shape), dout.stride())
        return dout


Spy.apply(x).sum().backward()  # → (2, 3) (0, 0)
Spy.apply(x).T.contiguous().pow(2).sum().backward()  # → (2, 3) (1, 2)
# --8<-- [end:upstream]


# --8<-- [start:double]
def gradient_penalty(function, x, scale):
    (dx,) = torch.autograd.grad(function.apply(x, scale).sum(), x, create_graph=True)
    return dx.pow(2).sum()


learned = scale.clone().requires_grad_()
try:
    gradient_penalty(ScaleRows, x, learned).backward()
except RuntimeError as error:
    print(str(error).split(":")[0])  # → this kernel's gradients can't be differentiated again
# --8<-- [end:double]


# --8<-- [start:gaps]
class ScaleRowsByTorch(ScaleRows):
    @staticmethod
    @once_differentiable  # PyTorch's
    def backward(ctx, dout):
        x, scale = ctx.saved_tensors
        return scale_rows_forward(dout, scale), (dout * x).sum(dim=1)


penalty = gradient_penalty(ScaleRowsByTorch, x, learned)
print(penalty.item(), penalty.requires_grad)  # → 303.0 False
(dx,) = torch.autograd.grad(ScaleRowsByTorch.apply(x, learned).pow(2).sum(), x, create_graph=True)
loss = x.sum() + dx.pow(2).sum()
print(torch.autograd.grad(loss, x)[0].tolist())  # → [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
# --8<-- [end:gaps]


# --8<-- [start:inplace]
class DoubleInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        rows = x.new_full((len(x),), 2.0)
        x.copy_(scale_rows_forward(x, rows))  # stands for a kernel that writes into x
        ctx.mark_dirty(x)
        return x

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dout):
        return 2 * dout


x = torch.ones(2, 3, device=device.DEVICE, requires_grad=True)
y = x.exp()  # its gradient needs y, so autograd has saved it
z = DoubleInPlace.apply(y)
try:
    z.sum().backward()
except RuntimeError as error:
    print("modified by an inplace operation" in str(error))  # → True
# --8<-- [end:inplace]


# --8<-- [start:operator]
@torch.library.custom_op("guide::scale_rows", mutates_args=())
def scale_rows(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return scale_rows_forward(x, scale)


@scale_rows.register_fake
def _(x, scale):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def save_inputs(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def scale_rows_backward(ctx, dout):
    x, scale = ctx.saved_tensors
    return scale_rows(dout, scale), (dout * x).sum(dim=1)


scale_rows.register_autograd(scale_rows_backward, setup_context=save_inputs)

x = torch.randn(2, 3, device=device.DEVICE, requires_grad=True)
checks = torch.library.opcheck(scale_rows, (x, scale), test_utils=("test_schema", "test_faketensor"))
print(checks)  # → {'test_schema': 'SUCCESS', 'test_faketensor': 'SUCCESS'}
# --8<-- [end:operator]

# --8<-- [start:twice]
(gradient,) = torch.autograd.grad(scale_rows(x, scale).pow(2).sum(), x, create_graph=True)
print(torch.allclose(gradient, 2 * scale[:, None] ** 2 * x))  # → True
(second,) = torch.autograd.grad(gradient.sum(), x)
print(torch.allclose(second, (2 * scale[:, None] ** 2).expand(2, 3)))  # → True
# --8<-- [end:twice]
