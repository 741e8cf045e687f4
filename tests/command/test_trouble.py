"""What of the machine is in the way ends each command with one sentence and status 2: 1 means "wrong", and nothing
else. And nothing of it is remembered."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from academy import cli
from academy.book import exercise_files
from academy.command import trouble
from academy.files import cache
from tests.command.test_stopped import COMMANDS, ROOT

CORPUS = ROOT / "tests/corpus"
MISSING = "/dev/null/x"


def said_once(error: str, command: str) -> str:
    (line,) = error.splitlines()
    assert line.startswith(f"academy {command}: ") and "Traceback" not in line
    return line


# ---------------------------------------------------------------- in this process
@pytest.mark.parametrize("option", ["--json", "--html"])
@pytest.mark.parametrize("command", ["judge", "trace", "simulate"])
@pytest.mark.parametrize("place", ["missing/r", MISSING, "."])
def test_what_can_not_be_written_is_said_before_the_work(command, option, place, tmp_path, monkeypatch, capsys):
    if (command, option) == ("simulate", "--html"):
        pytest.skip("simulate writes no HTML")
    monkeypatch.chdir(tmp_path)
    assert cli.main([command, str(ROOT / COMMANDS[command][0]), option, place]) == 2
    said = capsys.readouterr()
    assert not said.out and place in said_once(said.err, command)


def output(kind: str):
    """Standard output that takes nothing."""
    if kind == "full":
        return open("/dev/full", "w")
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")


@pytest.mark.parametrize("kind", ["full", "unread"])
@pytest.mark.parametrize(
    "words",
    [
        ["exercise", "list"],
        ["exercise", "hint", "first_kernel/reverse"],
        ["trace", "--no-compile", "vector_add"],  # with rich, which ends a process by itself
        ["check", str(CORPUS / "rows_that_are_left_out_fixed.py")],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_output_that_nobody_takes(kind, words, monkeypatch, capsys):
    with output(kind) as taken_by_nobody:
        monkeypatch.setattr(sys, "stdout", taken_by_nobody)
        status = cli.main(words)
        monkeypatch.undo()
    if kind == "full":
        assert status == 2
        said = said_once(capsys.readouterr().err, words[0])
        assert "standard output" in said and "can't be written: No space left on device" in said
    else:
        assert status == 141


def test_a_device_is_written_to_and_not_replaced(capsys):
    command = ["simulate", str(ROOT / COMMANDS["simulate"][0]), "--seeds", "1", "--json"]
    assert cli.main([*command, "/dev/full"]) == 2
    assert "/dev/full was not written: No space left on device" in capsys.readouterr().err
    assert Path("/dev/full").is_char_device()


def in_this_process(work, jobs, *_, **__):
    """As `process.stream`, where the test sees what happens."""
    return [(job, item) for job in jobs for item in work(job)]


def test_nothing_is_remembered(tmp_path, monkeypatch, capsys):
    """A right answer, where Triton can't write its cache; and again where it can."""
    path, exercise = tmp_path / "an answer.py", exercise_files.named("first_kernel/reverse")
    path.write_text(f"# Exercise: {exercise.name}\n\n{exercise.solution}\n# {os.getpid()}\n")
    kinds, put = [], cache.put
    monkeypatch.setattr(cache, "put", lambda kind, *rest: (kinds.append(kind), put(kind, *rest)))
    monkeypatch.setattr("academy.exercises.limited.stream", in_this_process)
    monkeypatch.setattr("academy.compiler.service._kept", None)
    with monkeypatch.context() as here:
        here.setenv("TRITON_CACHE_DIR", MISSING)
        assert cli.main(["exercise", "check", str(path)]) == 2
        line = said_once(capsys.readouterr().err, "exercise")
        assert f"{MISSING}: Not a directory" in line and "TRITON_CACHE_DIR" in line
        assert "compiled" not in kinds
    monkeypatch.setattr("academy.compiler.service._kept", None)
    assert cli.main(["exercise", "check", str(path)]) == 0, capsys.readouterr()
    assert "compiled" in kinds


def test_a_suggested_command_can_be_copied(tmp_path, capsys):
    path = tmp_path / "two words.py"
    assert cli.main(["exercise", "start", "first_kernel/reverse", "--to", str(path)]) == 0
    assert cli.main(["exercise", "check", str(path)]) == 1
    assert capsys.readouterr().out.count(f"academy exercise check '{path}'") == 2


def test_a_mistake_of_academy_is_no_verdict(monkeypatch, capsys):
    monkeypatch.setattr("academy.exercises.command._list", lambda _: 1 / 0)
    assert cli.main(["exercise", "list"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("academy exercise: this is a mistake in academy itself")


def raised(source: str, name: str) -> BaseException:
    try:
        exec(compile(source, name, "exec"), {"__name__": name})
    except Exception as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("source", "name", "found"),
    [
        ("open('/dev/null/x')", "triton.runtime.cache", True),
        ("open('/dev/null/x')", "mine", False),  # what somebody's own code opens is theirs
        ("open('/dev/full', 'w', 1).write('x\\n')", "mine", True),
        ("try:\n  open('/dev/null/x')\nexcept OSError as error:\n  raise RuntimeError from error", "triton", True),
        ("try:\n  open('/dev/null/x')\nexcept OSError:\n  raise ValueError", "triton", False),  # not in a cache yet
        ("import subprocess\nsubprocess.run(['sh', '-c', 'kill -KILL $$'], check=True)", "triton", True),
        ("import subprocess\nsubprocess.run(['sh', '-c', 'kill -SEGV $$'], check=True)", "triton", False),
    ],
)
def test_whose_it_is(source, name, found):
    assert (trouble.of(raised(source, name)) is not None) is found


def test_no_folder_for_temporary_files(monkeypatch, capsys):
    def nowhere(*_, **__):
        return tempfile._get_default_tempdir()

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [MISSING])
    monkeypatch.setattr("academy.exercises.command._list", nowhere)
    assert cli.main(["exercise", "list"]) == 2
    assert f"No usable temporary directory found in ['{MISSING}']" in said_once(capsys.readouterr().err, "exercise")


# ---------------------------------------------------------------- every command, as a shell runs it
#: What a shell does before, and what of it the commands say.
TROUBLES = {
    "stdout closed": ("exec >&-", "standard output is closed"),
    "stdout full": ("exec >/dev/full", "standard output"),
    "nothing may be written": ("ulimit -f 0", ""),
    "no folder for caches": (f"export HOME={MISSING} XDG_CACHE_HOME={MISSING} TRITON_CACHE_DIR={MISSING}", MISSING),
    "no folder for temporary files": (f"export TMPDIR={MISSING}", ""),
}
#: Each right, so that status 1 is a lie.
RIGHT = {
    "check": "tests/corpus/rows_that_are_left_out_fixed.py",
    "mutate": "--only equations backprop_math/vector_add.md",
    "judge": "--only sizes tests/corpus/rows_that_are_left_out_fixed.py",
    "trace": "annotated_examples/tutorials/softmax.py",
    "compile": "annotated_examples/tutorials/vector_add.py",
    "simulate": "annotated_examples/gluon/flash_attention.py",
    "exercise": "list",
}


def test_what_is_right_is_there():
    files = [word for call in RIGHT.values() for word in call.split() if "/" in word]
    assert len(files) == len(RIGHT) - 1 and all((ROOT / file).exists() for file in files)


@pytest.mark.nightly
@pytest.mark.parametrize("name", TROUBLES)
@pytest.mark.parametrize("command", RIGHT)
def test_every_command(command, name, tmp_path):
    before, words = TROUBLES[name]
    script = f"{before}; exec {sys.executable} -m academy.cli {command} {RIGHT[command]}"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode in (0, 2) and "Traceback" not in done.stderr, done
    if done.returncode == 2:
        line = done.stderr.splitlines()[-1]
        assert line.startswith(f"academy {command}: ") and words in line
    else:
        assert not words or name == "no folder for caches", done


@pytest.mark.nightly
@pytest.mark.parametrize("command", RIGHT)
def test_somebody_reads_one_line_only(command):
    script = f"{sys.executable} -m academy.cli {command} {RIGHT[command]} | head -1; exit ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", script], cwd=ROOT, timeout=500).returncode in (0, 141)


HELP = [*sorted({*cli._PASSED_ON} - {"exercise"}), "check", "mutate", "exercise", "exercise check"]


@pytest.mark.parametrize("command", HELP)
def test_each_help_says_what_the_status_means(command, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([*command.split(), "--help"])
    said = " ".join(capsys.readouterr().out.partition("Exit status: ")[2].split())
    assert ended.value.code == 0 and said.startswith("0 ") and " 1 " in said and " 2 " in said


def test_the_page_lists_every_command():
    table = (ROOT / "docs/reference/academy.md").read_text("utf-8").partition("## Exit status")[2].partition("\n## ")[0]
    assert all(f"| `{command}" in table for command in [*cli._PASSED_ON, "check", "mutate"])
