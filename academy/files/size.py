"""How much there is to read: statements of Python and lines of data, by folder, of any commit.

    python -m academy.files.size                    of HEAD
    python -m academy.files.size v0.2.0 HEAD        of two commits, side by side
    python -m academy.files.size --alike 4d3a2404 HEAD     what both had to do; then what other issues added
    python -m academy.files.size --without academy/exact --without tests/exact

A statement is what Python's grammar calls one; docstrings don't count, nor comments, nor how a line is broken. Data is
TOML, YAML and JSON, in lines that aren't empty. Left out are what others wrote, checksums, what was measured, what npm
pins, and what stands in for something outside: the browser's torch, and Gluon's simulator with its kernels.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from academy.book.layout import ROOT

LEFT_OUT = [
    "academy/playground/runtime/torch", "academy/playground/vendor", "academy/site/vendor", "academy/gluon",
    "annotated_examples/gluon", "tests/gluon", "benchmarks/results", "package-lock.json", "academy/files/vendored.json",
    "academy/vendored.json", "tests/site/cff-1.2.0.schema.json",
]  # fmt: skip
#: The house was to become smaller than this at the same work: together by 12 %, the tests by 25 %.
BEFORE = "4d3a2404"
OPERATIONS = [
    "token_logprobs", "linear_token_logprobs", "policy_loss", "kda", "kda_step", "adamw", "muon", "hyper_connections",
    "mla", "mla_decode", "indexer", "select_keys", "indexer_loss", "sparse_mla", "sparse_decode",
    "selected_probabilities", "quantized_cache", "quantized_decode", "sinkhorn", "stream_coefficients",
]  # fmt: skip
CAPSTONE = ["generate", "optimizers"]
#: What it has been given to do since, by the issue that asked for it: what matches here and wasn't there, under this
#: name or another. What the old code did in another way is not here: facts of operations, the judge, one verdict, the
#: site's writing, what older lessons lent to common/. Nor is what these issues needed inside of other files.
ADDED = {
    "the attention that is served, what trains a model": [
        *(f"{place}{op}.py" for place in ("annotated_*/*/", "operations/", "tests/*/test_") for op in OPERATIONS),
        *(f"annotated_examples/common/{name}.py" for name in ("codes", "frobenius", "halves", "latents")),
        *(f"annotated_examples/common/{name}.py" for name in ("optimizers", "selected", "streams", "windows")),
        *(f"{place}{name}.py" for place in ("annotated_examples/capstone/", "tests/*/test_") for name in CAPSTONE),
        "benchmarks/capstone_generate.py", "benchmarks/capstone_optimizers.py", "benchmarks/reward.py",
        "benchmarks/bytes_per_token.py", "tests/bench/test_bytes_per_token.py", "tests/bench/test_reward.py",
        "docs/figures/fewer.py", "docs/learn/fewer_bytes.py",
        *(f"docs/figures/{name}.py" for name in ("indexer", "kda", "latent", "logprobs", "muon", "optimizers")),
        "docs/figures/policy.py", "docs/figures/quantized.py", "docs/figures/selected.py", "docs/figures/streams.py",
        "docs/figures/training.py", "docs/learn/reward.py",
        "tests/bench/test_capstone_optimizers.py",
        "exercises/cache/*",
        *(f"exercises/{stage}/*" for stage in ("attention", "model", "operations", "recurrences", "selection")),
    ],
    "without a tolerance": [
        "academy/exact/*", "academy/*/without_rounding.py", "academy/formulas/comparing/*.py",
        "academy/judge/exactly.py", "academy/formulas/mutation/seen.py", "academy/results/changes.py",
        "backprop_math/*.json",
        "docs/figures/exact.py", "docs/learn/same_function.py", "operations/_exact.py", "tests/exact/*",
        "tests/formulas/test_without_rounding.py", "tests/judge/test_exactly.py",
    ],
    "a verdict on the card, a scoreboard of judges": [
        "academy/compiler/instrumented.py", "academy/judge/batch.py", "academy/judge/replay.py",
        "academy/judge/sanitized.py", "academy/judge/sanitizers.py", "academy/results/experiments.py",
        "benchmarks/batch_invariance.py", "benchmarks/corpus.py", "benchmarks/fpsan.py", "benchmarks/peers.py",
        "benchmarks/sanitizers.py", "benchmarks/scoreboard.py",
        "docs/guides/disagreements/*", "docs/guides/judged/*", "tests/corpus/*", "tests/bench/test_batch_invariance.py",
        "tests/bench/test_experiments.py", "tests/bench/test_fpsan.py", "tests/bench/test_sanitizers.py",
        "tests/bench/test_scoreboard.py", "tests/guides/test_disagreements.py", "tests/judge/test_batch.py",
        "tests/judge/test_replay.py", "tests/judge/test_sanitizers.py",
    ],
    "read it and understand": [
        "academy/compiler/advice.py", "academy/compiler/errors.*", "academy/site/error_page.py", "docs/guides/races/*",
        "docs/learn/write_the_difference.py", "tests/guides/printed_errors.py", "tests/guides/test_error_messages.py",
        "tests/guides/test_for_assistants.py", "tests/guides/test_statements.py",
    ],
    "every version": [
        ".ci/canary.py", ".github/workflows/canary.yml", "academy/site/with_zensical.py",
        "tests/learn/newer_language.py", "tests/site/test_engines.py",
    ],
    "what a call costs": [
        "academy/results/record.py", "academy/runtime/replay.py", "benchmarks/record.py", "tests/bench/test_record.py",
    ],
    "right everywhere": [
        "academy/command/grids.py", "academy/command/parent.py", "academy/command/trouble.py",
        "academy/compiler/tuning.py", "academy/exercises/classes.py",
        *(f"academy/judge/{name}.py" for name in ("calls", "causes", "compiled", "configurations", "special", "steps")),
        "academy/judge/unbacked.py", "academy/judge/writes.py",
        "annotated_examples/common/carried.py", "annotated_examples/common/exponential.py",
        "tests/command/test_stopped.py", "tests/command/test_trouble.py", "tests/integrations/test_as_unpatched.py",
        "tests/judge/*",
        "tests/kernels/*fp8_*.py", "tests/kernels/test_changed_arguments.py", "tests/kernels/test_grids.py",
        "tests/kernels/test_operators.py", "tests/kernels/test_relative_error.py", "tests/traces/*language*.py",
    ],
}  # fmt: skip
DATA = {".toml", ".yml", ".yaml", ".json"}
#: Folders that are counted one by one below, and not as a whole.
WIDE = {"academy", "tests"}


def statements(text: str) -> int:
    """How many statements a module has, docstrings left out."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    return sum(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in nodes)


def counted(
    files: dict[str, str], left_out: list[str], added: dict[str, str] | None = None
) -> Counter[tuple[str, str]]:
    """(folder, "statements" or "data") -> how many, of files by their path. `added` names another folder for some."""
    found: Counter[tuple[str, str]] = Counter()
    for name, text in files.items():
        path = Path(name)
        if any(path.is_relative_to(place) for place in left_out):
            continue
        parts = path.parts[:-1]
        folder = "/".join(parts[: 2 if parts[:1] and parts[0] in WIDE else 1]) or "."
        folder = (added or {}).get(name, folder)
        if path.suffix == ".py":
            found[folder, "statements"] += statements(text)
        elif path.suffix in DATA:
            found[folder, "data"] += sum(bool(line.strip()) for line in text.splitlines())
    return found


def git(*words: str, root: Path = ROOT) -> bytes:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, check=True).stdout


def at(commit: str, root: Path = ROOT) -> dict[str, str]:
    """The Python and data files of a commit. Raises CalledProcessError for one that isn't known."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, root=root))) as tar:
        members = [each for each in tar if each.isfile() and Path(each.name).suffix in DATA | {".py"}]
        return {each.name: tar.extractfile(each).read().decode() for each in members}  # type: ignore[union-attr]


def added(commit: str) -> dict[str, str]:
    """File -> "+ " and the issue that asked for it, of those that git finds in `BEFORE` under no name."""
    new = git("diff", "--find-renames", "-l0", "--diff-filter=A", "--name-only", BEFORE, commit).decode().split()
    known = [(pattern, f"+ {issue}") for issue, patterns in ADDED.items() for pattern in patterns]
    return {name: issue for name in new for pattern, issue in reversed(known) if fnmatch(name, pattern)}


def table(commits: list[str], left_out: list[str], alike: bool) -> str:
    """A line for each folder, and their sums: statements + data of each commit."""
    counts = [counted(at(commit), left_out, added(commit) if alike else None) for commit in commits]
    rows = {name: [(count[name, "statements"], count[name, "data"]) for count in counts] for name in _folders(counts)}
    house = {name: pairs for name, pairs in rows.items() if name[:1] != "+"}
    sums = {
        "tests together": _sum([pairs for name, pairs in house.items() if name.partition("/")[0] == "tests"]),
        "all": _sum([*house.values()]),
    }
    lines = ["".join([f"{'':<52}", *(f"{commit[:14]:>18}" for commit in commits)])]
    for name, pairs in [*house.items(), *sums.items(), *(each for each in rows.items() if each[0] not in house)]:
        lines.append("".join([f"{name:<52}", *(f"{f'{a:,} + {b:,}':>18}" for a, b in pairs)]))
        if name in sums and len(pairs) > 1:
            lines[-1] += f"{sum(pairs[-1]) / sum(pairs[0]) - 1:+9.1%}"
    return "\n".join(lines)


def _folders(counts: list[Counter[tuple[str, str]]]) -> list[str]:
    return sorted({folder for count in counts for folder, _ in count})


def _sum(rows: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    return [(sum(a for a, _ in column), sum(b for _, b in column)) for column in zip(*rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commits", nargs="*", default=["HEAD"], help="(default: HEAD)")
    parser.add_argument("--without", action="append", default=[], metavar="PATH", help="leave this out, too")
    parser.add_argument("--alike", action="store_true", help=f"what other issues added since {BEFORE} stands apart")
    options = parser.parse_args()
    try:
        counts = table(options.commits, LEFT_OUT + options.without, options.alike)
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr.decode().strip())
    print("Statements of Python + lines of data", counts, sep="\n\n")


if __name__ == "__main__":
    main()
