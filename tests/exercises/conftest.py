"""With a GPU these tests are left out: exercises are checked in the interpreter, whatever the machine has."""

from academy.runtime import device

if not device.INTERPRET:
    collect_ignore_glob = ["test_*.py"]
