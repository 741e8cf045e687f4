"""What the parts of academy that make the site promise about themselves."""

import re

from tests.site.conftest import ROOT


def test_no_private_fields_of_others_no_forks_and_the_collector_stays_on():
    for path in (ROOT / "academy/site").rglob("*.py"):
        text = path.read_text("utf-8")
        assert not re.search(r"\b(?:import gc|os\.fork|gc\.disable)\b", text), path
        private = re.findall(r"\b(?:page|file|config|files|nav|md)\._(?!_)\w+", text)
        assert private == [], (path, private)


def test_directives_are_written_in_one_place():
    for path in [path for part in ("site", "bench", "traces") for path in (ROOT / "academy" / part).rglob("*.py")]:
        patterns = re.findall(r"re\.compile\([^)]*\\\[\\\[", path.read_text("utf-8"))
        assert not patterns or (path.parent.name, path.name) in (("site", "lint.py"), ("traces", "comments.py")), path
