"""How much there is to read: statements of Python and lines of data, by folder, of any commit.

    python -m academy.files.size                    of HEAD
    python -m academy.files.size v0.2.0 HEAD        of two commits, side by side
    python -m academy.files.size --alike 4d3a2404 HEAD     what both had to do: without what has been added since
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
from pathlib import Path

from academy.book.layout import ROOT

LEFT_OUT = [
    "academy/playground/runtime/torch", "academy/playground/vendor", "academy/site/vendor", "academy/gluon",
    "annotated_examples/gluon", "tests/gluon", "benchmarks/results", "package-lock.json", "academy/files/vendored.json",
    "academy/vendored.json",
]  # fmt: skip
#: What the code of 4d3a2404 had nothing of, by what it does: files and folders that are there for this alone. The house
#: was to become smaller at the same work, so `--alike` leaves them out. What the old code did in another way counts:
#: facts of operations, the judge, the site's writing, tests of kernels. So is what these need inside of other files.
ADDED = {
    "the same function, without a tolerance": [
        "academy/exact", "academy/exercises/without_rounding.py", "academy/formulas/comparing/decided.py",
        "academy/formulas/comparing/exactly.py", "academy/formulas/mutation/seen.py",
        "academy/playground/without_rounding.py", "backprop_math/decided.json", "backprop_math/fine_mutants.json",
        "backprop_math/seen_mutants.json", "docs/figures/exact.py", "docs/learn/same_function.py",
        "operations/_exact.py", "tests/exact", "tests/formulas/test_without_rounding.py", "tests/judge/test_exactly.py",
    ],
    "what a call costs": ["academy/runtime/replay.py", "tests/kernels/replayed_without_gpu.py"],
    "an answer for every error message": [
        "academy/compiler/errors.py", "academy/compiler/errors.toml", "docs/guides/races",
        "tests/guides/printed_errors.py",
        "tests/guides/test_error_messages.py", "tests/guides/test_for_assistants.py", "tests/guides/test_statements.py",
    ],
    "a verdict on the card, and a scoreboard of judges": [
        "academy/judge/batch.py", "academy/judge/replay.py", "academy/judge/sanitized.py",
        "academy/judge/sanitizers.py", "benchmarks/batch_invariance.py", "benchmarks/corpus.py", "benchmarks/fpsan.py",
        "benchmarks/peers.py", "benchmarks/sanitizers.py", "benchmarks/scoreboard.py", "docs/guides/disagreements",
        "docs/guides/judged/scoreboard.json", "tests/bench/test_batch_invariance.py", "tests/bench/test_fpsan.py",
        "tests/bench/test_sanitizers.py", "tests/bench/test_scoreboard.py", "tests/corpus",
        "tests/guides/test_disagreements.py", "tests/judge/test_batch.py", "tests/judge/test_corpus.py",
        "tests/judge/test_replay.py", "tests/judge/test_sanitizers.py",
    ],
    "another engine for the site": ["academy/site/with_zensical.py", "tests/site/test_engines.py"],
    "further operations": [
        "annotated_examples/attention/mla.py", "annotated_examples/attention/mla_decode.py",
        "annotated_examples/classics/linear_token_logprobs.py", "annotated_examples/classics/policy_loss.py",
        "annotated_examples/classics/token_logprobs.py", "annotated_examples/common/halves.py",
        "annotated_examples/recurrences/kda.py", "annotated_examples/recurrences/kda_step.py", "docs/figures/kda.py",
        "docs/figures/latent.py",
        "docs/figures/logprobs.py",
        "docs/figures/policy.py", "exercises/attention/decompress_or_absorb.py",
        "exercises/attention/fold_into_the_output.py", "exercises/attention/one_key_for_all_heads.py",
        "exercises/attention/scale_of_a_latent.py", "exercises/attention/tokens_and_heads.py",
        "exercises/operations/clip_by_sign.py", "exercises/operations/dpo_slope.py",
        "exercises/operations/entropy_of_two.py", "exercises/operations/entropy_slope.py",
        "exercises/operations/impossible_token.py", "exercises/operations/lane_of_zero.py",
        "exercises/operations/masked_by_product.py", "exercises/operations/moments_of_halves.py",
        "exercises/operations/never_negative.py", "exercises/operations/passes_over_logits.py",
        "exercises/operations/which_mean.py", "operations/kda.py", "operations/kda_step.py",
        "exercises/recurrences/first_overflow.py", "exercises/recurrences/reads_the_future.py",
        "exercises/recurrences/rows_fade.py", "exercises/recurrences/up_to_and_after.py",
        "exercises/recurrences/what_crosses.py", "exercises/recurrences/which_halves.py",
        "operations/linear_token_logprobs.py",
        "operations/mla.py",
        "operations/mla_decode.py", "operations/policy_loss.py", "operations/token_logprobs.py",
        "tests/kernels/test_kda.py", "tests/kernels/test_kda_step.py",
        "tests/kernels/test_linear_token_logprobs.py", "tests/kernels/test_mla.py",
        "tests/kernels/test_mla_decode.py",
        "tests/kernels/test_policy_loss.py", "tests/kernels/test_token_logprobs.py",
    ],
}  # fmt: skip
DATA = {".toml", ".yml", ".yaml", ".json"}
#: Folders that are counted one by one below, and not as a whole.
WIDE = {"academy", "tests"}


def statements(text: str) -> int:
    """How many statements a module has, docstrings left out."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    return sum(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in nodes)


def counted(files: dict[str, str], left_out: list[str]) -> Counter[tuple[str, str]]:
    """(folder, "statements" or "data") -> how many, of files by their path."""
    found: Counter[tuple[str, str]] = Counter()
    for name, text in files.items():
        path = Path(name)
        if any(path.is_relative_to(place) for place in left_out):
            continue
        parts = path.parts[:-1]
        folder = "/".join(parts[: 2 if parts[:1] and parts[0] in WIDE else 1]) or "."
        if path.suffix == ".py":
            found[folder, "statements"] += statements(text)
        elif path.suffix in DATA:
            found[folder, "data"] += sum(bool(line.strip()) for line in text.splitlines())
    return found


def at(commit: str, root: Path = ROOT) -> dict[str, str]:
    """The Python and data files of a commit. Raises CalledProcessError for one that isn't known."""
    archive = subprocess.run(["git", "archive", commit], cwd=root, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = [each for each in tar if each.isfile() and Path(each.name).suffix in DATA | {".py"}]
        return {each.name: tar.extractfile(each).read().decode() for each in members}  # type: ignore[union-attr]


def table(commits: list[str], left_out: list[str]) -> str:
    """A line for each folder, and their sums: statements + data of each commit."""
    counts = [counted(at(commit), left_out) for commit in commits]
    rows = [(folder, [(c[folder, "statements"], c[folder, "data"]) for c in counts]) for folder in _folders(counts)]
    tests = [(name, pairs) for name, pairs in rows if name.partition("/")[0] == "tests"]
    sums = [(name, _sum(part)) for name, part in (("tests together", tests), ("all", rows))]
    lines = ["".join([f"{'':<28}", *(f"{commit[:14]:>18}" for commit in commits)])]
    for name, pairs in [*rows, *sums]:
        lines.append("".join([f"{name:<28}", *(f"{f'{a:,} + {b:,}':>18}" for a, b in pairs)]))
    return "\n".join(lines)


def _folders(counts: list[Counter[tuple[str, str]]]) -> list[str]:
    return sorted({folder for count in counts for folder, _ in count})


def _sum(rows: list[tuple[str, list[tuple[int, int]]]]) -> list[tuple[int, int]]:
    return [(sum(a for a, _ in column), sum(b for _, b in column)) for column in zip(*(pairs for _, pairs in rows))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commits", nargs="*", default=["HEAD"], help="(default: HEAD)")
    parser.add_argument("--without", action="append", default=[], metavar="PATH", help="leave this out, too")
    parser.add_argument("--alike", action="store_true", help="without what 4d3a2404 had nothing of")
    options = parser.parse_args()
    left_out = LEFT_OUT + options.without + (sum(ADDED.values(), []) if options.alike else [])
    try:
        print("Statements of Python + lines of data", table(options.commits, left_out), sep="\n\n")
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr.decode().strip())


if __name__ == "__main__":
    main()
