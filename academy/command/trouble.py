"""What of the machine is in the way, and no mistake of anybody's code: a full disk, a folder that can't be written.

Whoever turns an exception of a kernel, a page or an answer into a verdict asks `let_through` first. A `Trouble` ends
the command with one sentence and exit status 2, and nothing is remembered of it.
"""

from __future__ import annotations

import errno
import os
import signal
import tempfile
import traceback
from collections.abc import Iterator

from academy.files.textfiles import in_words

#: Of every command; each says in its help what "wrong" means.
STATUS = """Exit status: 0 if nothing is wrong, 1 if something is, 2 if that can't be found out: for a wrong command
line, a file that can't be run, or what of the machine is in the way, such as a full disk."""
#: What no code can be blamed for, wherever it is raised.
_MACHINE = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EAGAIN
}  # fmt: skip
#: Signals that a process gets from outside: from somebody who ends it, or for want of memory or of room in a file.
OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ}
#: Why such a signal comes, as the end of a sentence.
_WHY: dict[int, str] = {
    signal.SIGKILL: ", as the system does when memory runs out",
    signal.SIGXFSZ: ": a file would have been larger than is allowed (ulimit -f)",
}
_CACHE = "where Triton keeps what it has compiled; TRITON_CACHE_DIR names another folder"


class Trouble(Exception):
    """Says in a sentence what is in the way, and where."""

    @classmethod
    def of_process(cls, what: str, number: int) -> Trouble:
        """A process was ended by one of the signals OUTSIDE."""
        return cls(f"{what} was ended by {signal.Signals(number).name}{_WHY.get(number, '')}")


def of(error: BaseException) -> Trouble | None:
    """The trouble that an exception, or one behind it, comes from; None if it may be a mistake of the code that ran."""
    for each, raised in _chain(error):
        if isinstance(each, Trouble):
            return each
        if -getattr(each, "returncode", 0) in OUTSIDE:  # a CalledProcessError
            return Trouble.of_process(str(each.cmd[0]), -each.returncode)  # type: ignore[attr-defined]
        if isinstance(each, RuntimeError) and "Failed to find C compiler" in str(each):
            return Trouble(f"{each}")
        if isinstance(each, OSError):
            asks = _asks(each)
            # What was only handled where this one was raised, such as a file that isn't in a cache yet, says little.
            if each.errno in _MACHINE or raised and each.errno and asks in ("academy", "triton"):
                return Trouble(_said(each, asks))
    return None


def _said(error: OSError, asks: str) -> str:
    cached = asks == "triton"
    if error.filename or error.errno == errno.ENOENT:  # without a name: tempfile, which says where it has looked
        return in_words(error) + (f", {_CACHE}" if cached and error.filename else "")
    temporary = tempfile.tempdir or "a folder for temporary files"
    where = os.environ.get("TRITON_CACHE_DIR", "~/.triton/cache") if cached else temporary
    other = f", {_CACHE}," if cached else ", or standard output,"
    return f"a file in {where}{other} can't be written: {in_words(error)}"


def let_through(error: BaseException) -> None:
    """Raise the `Trouble` that an exception comes from, if it does."""
    if found := of(error):
        raise found from error


def _chain(error: BaseException | None) -> Iterator[tuple[BaseException, bool]]:
    """The exceptions behind this one; and whether it was raised from them, and not just while they were handled."""
    raised, seen = True, set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error, raised
        raised = raised and error.__cause__ is not None
        error = error.__cause__ or error.__context__


def _asks(error: BaseException) -> str:
    """The package that asked Python's library for what failed."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = (str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame in reversed(frames))
    return next((name for name in names if name not in _LIBRARY), "")


_LIBRARY = {"os", "shutil", "tempfile", "pathlib", "genericpath", "posixpath", "contextlib", "subprocess"}


def causes(error: BaseException) -> list[BaseException]:
    """An exception, and each that the one before it was raised from. What went wrong first comes last: Triton's
    compiler and its interpreter put one around it for each function, whose own texts are lines of code."""
    found = [error]
    while (cause := found[-1].__cause__) is not None:
        found.append(cause)
    return found


def said(error: BaseException) -> str:
    """What went wrong first, in one line."""
    first = causes(error)[-1]
    return f"{type(first).__name__}: {' '.join(str(first).split())}"


def first_cause(error: BaseException, file: str) -> tuple[BaseException, int | None]:
    """What went wrong first, and the line of `file` where it did, as the innermost exception that passed there says."""
    chain = causes(error)
    frames = [frame for each in chain for frame in traceback.extract_tb(each.__traceback__)]
    return chain[-1], next((frame.lineno for frame in reversed(frames) if frame.filename == file), None)
