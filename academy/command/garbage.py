"""Python's collector of cycles, for processes that make millions of small objects."""

from __future__ import annotations

import atexit
import gc


def rarely(objects: int = 20_000) -> None:
    """Collect less often: few of the objects are in cycles, and looking for those took a tenth of all time.

    What is there now stays, so that no collection need look at it. Nor does one look at anything when the process ends,
    which takes half a second where PyTorch was imported: its memory is given back in any case.

    Args:
        objects: how many new ones a collection waits for.
    """
    gc.freeze()
    gc.set_threshold(objects, 20, 100)
    atexit.register(gc.freeze)
