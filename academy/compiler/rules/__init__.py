"""The checklist of the guide "Best practice", held against a kernel file by reading its syntax tree: nothing is run.

`kernel_rules` are those of any Triton kernel, a reader's own too; `house_rules` those of a lesson. `lint` is what
`academy check` asks. An exception from a rule stands with its reason in a `practice.toml`, in the file's folder or
above it:

    [[exempt]]
    rule = "dots say their precision"
    function = "add_block"
    reason = "its operands have 16 bits, and then there is no precision to choose"

An entry may name a `file` (as in `classics/dropout.py`), a `function` and the `code`, one or a list. It holds for what
has all of them. `house_rules = true` at the top holds a project's files to the rules of a lesson, too.
"""

from academy.compiler.rules.linter import every_rule, files, is_kernel_file, lint, problems, unused_entries

__all__ = ["every_rule", "files", "is_kernel_file", "lint", "problems", "unused_entries"]
