"""`python -m academy.site.worker`: makes what `academy.site.background` asks for, a line of JSON at a time, until that
process ends.

What goes wrong is no answer: the process that asks makes it again, and says what is wrong.
"""

from __future__ import annotations

import json
import logging
import os

from academy.book.layout import ROOT
from academy.command import garbage, parent
from academy.site import language_index, markdown_copies, project_parts
from academy.site.library import Library

#: Kind -> what makes it. All but `copy` keep it, and needn't send it back.
MAKES = {
    "marks": project_parts.marks,
    "verified": lambda docs: project_parts.verified(Library.read(ROOT, docs)),
    "taught": lambda docs: language_index.taught(Library.read(ROOT, docs)),
    "results": project_parts.results,
    "ladder": project_parts.ladder,
    "copy": markdown_copies.converted,
}


def main() -> None:
    logging.disable()  # warnings are said by the process that asks
    garbage.rarely()
    out = os.fdopen(os.dup(1), "wb")  # answers alone: what anything else prints is dropped
    os.dup2(2, 1)
    for line in parent.asked():
        kind, about = json.loads(line)
        try:
            made = MAKES[kind](about)
        except Exception:  # of any maker
            made = None
        out.write(json.dumps(made if kind == "copy" else None).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    main()
