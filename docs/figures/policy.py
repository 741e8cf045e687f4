"""Policy losses: which side of a clip counts."""

from draw import Control, picture
from moving import moving


@picture
def clip():
    return moving(
        "clip",
        "Which ratios still have a slope, for a good token and for a bad one?",
        "Drag the ratio across both bounds, for an advantage of either sign.",
        "The line is what one token adds to the loss, −min(ρA, CA). Where it is flat, nothing is learned from the token. "
        "A good token is held above, a bad one below, and never on the other side.",
        (
            Control("ratio", "Ratio", 130, 40, 200),
            Control("advantage", "Advantage", 1, -2, 2),
            Control("low", "Clip below", 20, 5, 50),
            Control("high", "Clip above", 20, 5, 50),
        ),
    )
