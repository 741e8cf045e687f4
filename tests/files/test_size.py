"""What `academy.files.size` counts, and what not."""

import fnmatch
import subprocess

import pytest

from academy.files import size


def test_statements_are_counted_and_not_lines():
    text = '"""Words."""\nx = (\n    1,\n    2,\n)\n\n\ndef f():\n    """More."""\n    # why\n    if x: return 3\n'
    assert size.statements(text) == len(["x =", "def", "if", "return"])


def test_folders_of_a_commit(tmp_path):
    files = {
        "academy/cli.py": "x = 1\n", "academy/judge/a.py": "x = 1\ny = 2\n", "academy/gluon/b.py": "x = 1\n",
        "tests/judge/test_a.py": "assert True\n", "facts.toml": "a = 1\n\nb = 2\n", "README.md": "# Words\n",
        "benchmarks/results/card/a.json": "{}\n",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    assert size.counted(size.at("HEAD", tmp_path), size.LEFT_OUT) == {
        ("academy", "statements"): 1,
        ("academy/judge", "statements"): 2,
        ("tests/judge", "statements"): 1,
        (".", "data"): 2,
    }


def test_what_was_added_was_not_there():
    """Each pattern finds a new file, and no old one counts as new."""
    try:
        before, added = size.at(size.BEFORE), size.added("HEAD")
    except subprocess.CalledProcessError:
        pytest.skip("a copy without history")
    assert added and not added.keys() & before.keys()
    patterns = [each for each in sum(size.ADDED.values(), []) if not any(op in each for op in size.OPERATIONS)]
    assert not [each for each in patterns if not fnmatch.filter(added, each)]


def test_an_unknown_commit_is_named():
    with pytest.raises(subprocess.CalledProcessError) as caught:
        size.at("no-such-commit")
    assert b"no-such-commit" in caught.value.stderr
