"""Log-probabilities and entropies: what a temperature does to them, and a row that comes in pieces."""

import math

from draw import Control, Panel, Picture, picture
from moving import moving

#: The first row of the lesson's example, as far as it fits.
ROW, TOKEN = (-3, 2, 0, -1, -3, 3), 1


@picture
def temperature():
    return moving(
        "temperature",
        "What does a temperature do to the log-probability of a token, and to the entropy?",
        "Drag the temperature down to 0.2, then up to 5. Press a bar to ask about another token.",
        "The bars are probabilities, the amber one that of the token. The entropy lies between 0, where one entry has "
        "everything, and log 6, where all six are as likely.",
        (
            Control("tau", "Temperature", 10, 2, 50),
            Control("token", "Token", TOKEN, 0, len(ROW) - 1),
        ),
        {"row": ROW},
    )


@picture
def pieces():
    import torch

    at = torch.arange(11, dtype=torch.float32)
    row, token, chunk = [2 * x for x in (at * 5 % 13 % 7 - 3).tolist()], 4, 8  # row 0 of the lesson's example
    panel, words = Panel(330, f"{len(row)} logits over the temperature, in pieces of {chunk}"), []
    panel.cells(
        4, 34, 1, len(row), (32, 30),
        lambda r, c: "a" if c == token else "b" if c < chunk else "g", lambda r, c: f"{row[c]:g}".replace("-", "−"),
    )  # fmt: skip
    panel.text(4 + token * 32 + 16, 82, "token", "small", "middle")
    for place, end in enumerate((chunk, len(row))):
        largest = max(row[:end])
        total = sum(math.exp(x - largest) for x in row[:end])
        weighted = sum((x - largest) * math.exp(x - largest) for x in row[:end])
        state = f"M = {largest:g}, S = {total:.4f}, E = {weighted:.4f}".replace("-", "−")
        top = 104 + place * 74
        panel.box(4, top, 352, 44, "b" if place == 0 else "g")
        panel.text(14, top + 18, f"after piece {place + 1}", "bold")
        panel.text(14, top + 36, f"{state}, token's logit {row[token]:g}".replace(" -", " −"), "small")
        panel.arrow(180, top + 44, 180, top + 70)
        words.append(f"After piece {place + 1}: {state}")
    logprob, entropy = (row[token] - largest) - math.log(total), math.log(total) - weighted / total
    panel.text(4, 270, f"ℓ = (u − M) − log S = {logprob:.3f}".replace("-", "−"), "bold")
    panel.text(4, 292, f"H = log S − E / S = {entropy:.3f}".replace("-", "−"), "bold")
    panel.text(4, 316, "16 bytes a row are all that is handed on", "small")
    return Picture(
        "Four numbers are the state of a row. The second piece brings a larger logit, so both sums are scaled down, and E "
        "moves as well. Nothing is read again.",
        f"A row of {len(row)} logits over the temperature. {'. '.join(words)}. The log-probability is {logprob:.3f}, the "
        f"entropy {entropy:.3f} nats.",
        [panel],
    )


@picture
def strips():
    """The rows of the fast version's example: 20 logits each, in rows of 21."""
    pitch, width, strip = 21, 20, 4
    panel, words = Panel(210, f"Rows of {width} logits that begin anywhere, in strips of {strip}"), []
    for row in range(3):
        first = row * pitch
        head = min(-first % strip, width)
        body = (width - head) // strip * strip
        kind = lambda c, head=head, body=body: (  # noqa: E731
            "p" if c < head else "g" if c >= head + body else "ab"[(c - head) // strip % 2]
        )
        y = 34 + 56 * row
        panel.text(0, y + 8, f"row {row} begins at {first} = {strip} · {first // strip} + {first % strip}", "small")
        panel.cells(0, y + 14, 1, width, (18, 26), lambda r, c, kind=kind: kind(c), lambda r, c, first=first: first + c)
        words.append(f"Row {row}: a head of {head}, {body // strip} whole strips, a tail of {width - head - body}")
    return Picture(
        "Numbers are addresses, in elements. Whole strips (amber and blue) are one load of 16 bytes each. What stands before "
        "and behind them (purple and green) is a block of its own.",
        ". ".join(words) + ".",
        [panel],
    )
