# A cube with a second derivative of its own.
import torch, triton, triton.language as tl
INPUTS = {"x": "rows cols"}


@triton.jit
def kernel(x_ptr, g_ptr, h_ptr, out_ptr, n, ORDER: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    g = tl.load(g_ptr + offs, mask=mask).to(tl.float32)
    h = tl.load(h_ptr + offs, mask=mask).to(tl.float32)
    if ORDER == 0:
        out = x * x * x
    elif ORDER == 1:
        out = 3 * x * x * g
    else:
        out = 6 * x * g * h
    tl.store(out_ptr + offs, out, mask=mask)


def launch(order, x, g=None, h=None):
    x = x.contiguous()
    g, h = (x if each is None else each.contiguous() for each in (g, h))
    out = torch.empty_like(x)
    if x.numel():
        kernel[(triton.cdiv(x.numel(), 1024),)](x, g, h, out, x.numel(), ORDER=order, BLOCK=1024)
    return out


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return launch(0, x)

    @staticmethod
    def backward(ctx, g):
        return Gradient.apply(ctx.saved_tensors[0], g)


class Gradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, g):
        ctx.save_for_backward(x, g)
        return launch(1, x, g)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, h):
        x, g = ctx.saved_tensors
        return launch(2, x, g, h), launch(1, x, h)


def cube(x):
    return Cube.apply(x)


def cube_reference(x):
    return x * x * x
