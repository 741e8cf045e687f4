"""Files that a person names on the command line: read as any editor saves them, written whole or not at all."""

from __future__ import annotations

import ast
import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without the byte order mark that some editors put in front.

    Raises:
        ValueError: the file isn't UTF-8; the message names it, the first byte that is wrong, and its line.
        OSError: the file can't be read.
    """
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        raise ValueError(f"{path}:{line}: this file isn't UTF-8 (byte 0x{byte:02x}); save it as UTF-8") from None


def read_python(path: Path) -> str:
    """The text of a Python file. Raises ValueError, with the place, if there is none or it isn't valid Python."""
    if not path.is_file() or path.suffix != ".py":
        raise ValueError(f"{path}: {'not a Python file' if path.exists() else 'no such file'}")
    text = read_text(path)
    try:
        ast.parse(text, str(path))
    except SyntaxError as error:
        error.filename = str(path)  # Python leaves it out where a null byte is wrong
        raise ValueError(in_words(error)) from None
    return text


def in_words(error: Exception) -> str:
    """An error with a file, and its place: `mine.py: Is a directory`, `mine.py:3:7: invalid syntax`."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno or 1}:{error.offset or 1}: {error.msg}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def check_writable(*paths: Path | None) -> None:
    """Before work whose result will be written there. Raises OSError, which names the file."""
    for path in paths:
        if path is not None and not _is_special(path):
            try:
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                tempfile.TemporaryFile(dir=path.parent).close()
            except OSError as error:
                raise OSError(f"{path} can't be written: {error.strerror or error}") from error


def write_text(path: Path, text: str, replace: bool = True) -> None:
    """Write a text file so that nobody ever sees half of it: after an error the old file is there, or none.

    Args:
        replace: whether a file of that name may be replaced.

    Raises:
        FileExistsError: there is such a file, and `replace` is false.
        OSError: the file can't be written; the message names it.
    """
    if not replace and path.exists():
        raise FileExistsError(f"{path} already exists")
    temporary = None
    try:
        if _is_special(path):
            path.write_text(text, "utf-8")
            return
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        _put(temporary, path, replace)
    except FileExistsError:
        raise FileExistsError(f"{path} already exists") from None
    except OSError as error:
        raise OSError(f"{path} was not written: {error.strerror or error}") from error
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """A device, or a pipe: written to, never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _put(temporary: Path, path: Path, replace: bool) -> None:
    """Give the finished file its name, in one step."""
    if not replace:
        with suppress(NotImplementedError, PermissionError):  # a file system without hard links
            os.link(temporary, path)
            return
    os.replace(temporary, path)


def _umask() -> int:
    """What a new file's permissions leave out. It can only be read by setting it."""
    os.umask(mask := os.umask(0o077))
    return mask
