"""`WatchedMemory`: the backend of `memory.Memory` for where this runs, natively or in a browser."""

from __future__ import annotations

import sys

if sys.platform == "emscripten":
    from academy.traces.browser_memory import BrowserMemory as WatchedMemory
else:
    from academy.traces.native_memory import NativeMemory as WatchedMemory

__all__ = ["WatchedMemory"]
