"""Residual streams: Sinkhorn's rounds, four streams through a layer, and the columns of the product that mixes them."""

from draw import Control, Panel, Picture, picture
from moving import moving

LOGITS = ((2.0, 0.5, -1.0), (1.5, -0.5, 0.0), (-1.0, 1.0, 0.5))
N = 4


@picture
def rounds():
    return moving(
        "sinkhorn",
        "How many rounds does a matrix need?",
        "Step through a few divisions, then make the first logit large: the columns take more rounds to settle.",
        "The matrix after each division, with the sums of its rows and columns (bold: 1 to three digits). Each division makes one "
        "kind right and spoils the other. The curve is what ten rounds leave.",
        (
            Control("step", "Divisions", 2, 0, 20),
            Control("logit", "First logit", 20, -60, 90),
        ),
        {"logits": LOGITS},
    )


@picture
def layer():
    """One channel of four streams, by the kernels."""
    import torch

    from annotated_examples.model.hyper_connections import collapse_streams, expand_streams
    from annotated_examples.model.sinkhorn import sinkhorn

    at = torch.arange(N * N).view(1, N, N)
    res = sinkhorn((at * 7 % 5 - 2.0) * 0.9)
    x, pre, post = (
        torch.tensor([row]) for row in ([2.0, -1.0, 0.0, 4.0], [0.5, 0.25, 0.0, 0.25], [1.0, 0.0, 2.0, 0.5])
    )
    u = collapse_streams(x[..., None], pre)
    y = torch.full_like(u, 3.0)  # what the layer returned
    new = expand_streams(x[..., None], y, res, post)[0, :, 0].tolist()
    x, pre, post, u, y, M = x[0].tolist(), pre[0].tolist(), post[0].tolist(), u.item(), y.item(), res[0].tolist()
    said = lambda value: f"{value:g}".replace("-", "−")  # noqa: E731
    panel, size = Panel(352, "One channel of four streams"), 42
    for i in range(N):
        top = 52 + i * size
        panel.box(0, top, 46, size - 6, "b", said(x[i]))
        panel.box(314, top, 46, size - 6, "a", f"{new[i]:.2f}".replace("-", "−"))
        panel.arrow(276, top + 18, 310, top + 18)
    panel.cells(
        104, 49, N, N, size, lambda i, j: "g" if M[i][j] >= 0.25 else "off", lambda i, j: f"{M[i][j]:.2f}"
    )  # fmt: skip
    panel.arrow(50, 52 + 2 * size - 3, 98, 52 + 2 * size - 3)
    for place, name in ((0, "streams"), (104, "mixture M"), (288, "new streams")):
        panel.text(place, 40, name, "small")
    panel.arrow(23, 52 + N * size, 23, 262)
    panel.text(30, 246, "v = " + ", ".join(map(said, pre)), "small")
    panel.box(0, 266, 70, 34, "b", f"u = {said(u)}")
    panel.arrow(74, 283, 128, 283)
    panel.box(132, 264, 84, 38, "p", "the layer")
    panel.arrow(220, 283, 286, 283)
    panel.box(290, 266, 70, 34, "a", f"y = {said(y)}")
    panel.arrow(336, 262, 336, 52 + N * size)
    panel.text(330, 246, "s = " + ", ".join(map(said, post)), "small", "end")
    panel.text(0, 330, "u = Σ v x, and each new stream is its row of M times x, plus s y", "small")
    rows = "; ".join(", ".join(f"{value:.2f}" for value in row) for row in M)
    return Picture(
        "The layer reads u, a weighted sum of the streams (blue), and returns y. Each new stream (amber) is an average of the old "
        "ones, by a row of M, plus its share of y. Rows and columns of M add up to 1.",
        f"Four streams with the values {', '.join(map(said, x))}. With the weights {', '.join(map(said, pre))} the layer reads "
        f"{said(u)}; it returns {said(y)}. The mixture has the rows {rows}. With {', '.join(map(said, post))} of what was returned the "
        f"new streams are {', '.join(f'{value:.2f}' for value in new)}.",
        [panel],
    )


@picture
def columns():
    panel, size = Panel(240, "Which of the 24 columns is what, for four streams"), (44, 32)
    groups = (("read: v", "a", 0, 1), ("written: s", "b", N, 1), ("mixture: logits of M", "g", 2 * N, N))
    top = 30
    for name, kind, first, rows in groups:
        panel.cells(0, top, rows, N, size, lambda r, c, kind=kind: kind, lambda r, c, first=first: first + r * N + c)
        panel.text(4 * size[0] + 14, top + 20, name, "bold")
        if rows > 1:
            panel.text(4 * size[0] + 14, top + 42, "row i: into stream i", "small")
            panel.text(4 * size[0] + 14, top + 60, "column j: out of stream j", "small")
        top += rows * size[1] + 8
    return Picture(
        "The order of the columns is a convention, and weights that were trained with another one give nonsense without an error.",
        f"Columns 0 to {N - 1} of the product are for what is read, {N} to {2 * N - 1} for what is written, and {2 * N} to "
        f"{2 * N + N * N - 1} are the logits of the mixture, row by row.",
        [panel],
    )
