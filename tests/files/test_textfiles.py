"""Files that a person names: read as any editor saved them, written whole or not at all."""

import errno
import os

import pytest

from academy.files.textfiles import read_text, write_text


@pytest.mark.parametrize(
    "content", [b"\xef\xbb\xbfa = 1\n", b"a = 1\r\n", b"a = 1\n"], ids=["mark", "windows", "plain"]
)
def test_what_an_editor_adds_is_left_out(tmp_path, content):
    (tmp_path / "a.py").write_bytes(content)
    assert read_text(tmp_path / "a.py") == "a = 1\n"


def test_a_file_that_is_no_utf_8_is_named_with_its_line(tmp_path):
    (tmp_path / "a.py").write_bytes("x = 1\n# größer\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"a\.py:2: this file isn't UTF-8 \(byte 0xf6\)"):
        read_text(tmp_path / "a.py")


@pytest.mark.parametrize("old", [None, "old"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, old):
    path = tmp_path / "a.py"
    if old:
        path.write_text(old)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"a\.py was not written: No space left on device"):
        write_text(path, "new")
    assert [file.name for file in tmp_path.iterdir()] == (["a.py"] if old else [])
    assert not old or path.read_text() == old


def test_a_file_is_replaced_only_where_that_is_wanted(tmp_path):
    path = tmp_path / "a.py"
    write_text(path, "first", replace=False)
    with pytest.raises(FileExistsError, match=r"a\.py already exists"):
        write_text(path, "second", replace=False)
    assert path.read_text() == "first"
    write_text(path, "third")
    assert path.read_text() == "third" and len(list(tmp_path.iterdir())) == 1
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
