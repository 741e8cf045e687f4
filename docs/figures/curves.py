"""Activations and their slopes, as PyTorch computes them."""

from draw import Axes, Panel, Picture, picture


def _curves(function, name: str):
    import torch

    x = torch.linspace(-4, 4, 8001, dtype=torch.float64, requires_grad=True)
    y = function(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    points, values, slopes = x.tolist(), y.tolist(), slope.tolist()
    low = min(range(len(points)), key=values.__getitem__)
    high = max(range(len(points)), key=slopes.__getitem__)
    panel = Panel(284, f"{name} and its slope")
    axes = Axes(panel, (30, 34, 320, 212), (-4, -2, 0, 2, 4), (-1, 0, 1, 2, 3, 4), ("x", ""))
    panel.line([axes(-4, 0), axes(4, 0)])
    panel.line([axes(*point) for point in list(zip(points, values))[::50]], "curve b")
    panel.line([axes(*point) for point in list(zip(points, slopes))[::50]], "curve a dashed")
    panel.text(*axes(1.2, 2.6), f"{name}(x)", "bold", "end")
    panel.text(axes(0, 0)[0] + 150, axes(0, 1.5)[1], "slope", "bold", "end")
    for at, series, kind in ((low, values, "b"), (high, slopes, "a")):
        panel.dot(*axes(points[at], series[at]), kind)
    panel.text(*axes(-4, -0.72), f"least: {values[low]:.3f} at x = {points[low]:.2f}", "small")
    panel.text(
        axes(0, 0)[0] - 6, axes(0, 1.5)[1], f"steepest: {slopes[high]:.3f} at {points[high]:.2f}", "small", "end"
    )
    return (
        panel,
        f"{name}: least value {values[low]:.3f} at {points[low]:.2f}, steepest slope {slopes[high]:.3f} at {points[high]:.2f}",
    )


@picture
def gelu():
    import torch.nn.functional as F

    panel, words = _curves(F.gelu, "GELU")
    return Picture(
        "Blue the function, amber and dashed its slope. The slope is negative on the left and exceeds one on the right: "
        "neither can be read off the result, so the backward pass needs x.",
        words + ".",
        [panel],
    )


@picture
def silu():
    import torch.nn.functional as F

    panel, words = _curves(F.silu, "SiLU")
    return Picture(
        "Blue the function, amber and dashed its slope. Two x have the same SiLU and different slopes, so the backward pass "
        "needs x, not the result.",
        words + ".",
        [panel],
    )


@picture
def both():
    import torch.nn.functional as F

    panels, words = zip(*(_curves(function, name) for function, name in ((F.gelu, "GELU"), (F.silu, "SiLU"))))
    return Picture("Blue the function, amber and dashed its slope.", "; ".join(words) + ".", list(panels))
