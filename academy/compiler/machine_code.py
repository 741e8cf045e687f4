"""What a compiled kernel uses, and the instructions worth knowing about in its PTX and its machine code (SASS)."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from academy.files import cache, dependencies

_OPCODE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T\d]+\s+)?([A-Z][A-Z0-9_]*)((?:\.[A-Za-z0-9_:]+)*)", re.M)
_PTX = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z][a-z0-9_]*)((?:[.:]+[a-zA-Z0-9_]+)+)", re.M)
#: Names of SASS opcodes -> what they are called here.
_SASS_GROUPS = {
    "HGMMA": "wgmma", "QGMMA": "wgmma", "IGMMA": "wgmma", "BGMMA": "wgmma",
    "HMMA": "mma", "IMMA": "mma", "QMMA": "mma", "DMMA": "mma", "OMMA": "mma",
    "UTCHMMA": "tcgen05.mma", "UTCQMMA": "tcgen05.mma", "UTCIMMA": "tcgen05.mma", "UTCOMMA": "tcgen05.mma",
    "LDSM": "ldmatrix", "LDGSTS": "cp.async", "UTMALDG": "TMA load", "UTMASTG": "TMA store", "UTMAREDG": "TMA reduce",
    "UBLKCP": "bulk copy", "FFMA": "fma", "FFMA2": "fma", "DFMA": "fma (64 bit)",
    "ATOM": "atomic", "ATOMG": "atomic", "RED": "atomic", "REDG": "atomic", "SHFL": "shuffle", "BAR": "barrier",
    "LDS": "shared load", "STS": "shared store", "LDL": "local load", "STL": "local store",
}  # fmt: skip
_PTX_GROUPS = (
    ("wgmma.mma_async", "wgmma"), ("tcgen05.mma", "tcgen05.mma"), ("mma.sync", "mma"), ("ldmatrix.sync", "ldmatrix"),
    ("cp.async.bulk.tensor", "TMA"), ("cp.async.cg", "cp.async"), ("cp.async.ca", "cp.async"),
    ("fma.rn.f32", "fma"), ("ld.local", "local load"), ("st.local", "local store"),
)  # fmt: skip


def sass(cubin: bytes) -> tuple[dict[str, int], str]:
    """Resources (`registers` and bytes of `stack` a thread), and the text of the machine code.

    The stack is where registers are spilled to, and arrays that are indexed at run time. Raises OSError where Triton
    was installed without NVIDIA's cuobjdump.
    """
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", "-sass", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = dict(re.findall(r"\b(REG|STACK):(\d+)", text))
    return {"registers": int(used.get("REG", 0)), "stack": int(used.get("STACK", 0))}, text


def sass_counts(text: str) -> dict[str, int]:
    """How often the machine code has each kind of instruction; loads and stores of global memory by their width."""
    found: Counter[str] = Counter()
    for opcode, suffix in _OPCODE.findall(text):
        if opcode in ("LDG", "STG"):
            kind = "global load" if opcode == "LDG" else "global store"
            found[f"{kind}, {_sass_width(suffix)} bytes"] += 1
        elif opcode in _SASS_GROUPS:
            found[_SASS_GROUPS[opcode]] += 1
    return dict(sorted(found.items()))


def _sass_width(suffix: str) -> int:
    """Bytes that each thread moves."""
    parts = suffix.split(".")
    for name, size in (("256", 32), ("128", 16), ("64", 8), ("U16", 2), ("S16", 2), ("U8", 1), ("S8", 1)):
        if name in parts:
            return size
    return 4


def ptx_counts(text: str) -> dict[str, int]:
    """The same for PTX, which shows what was asked for; the machine code shows what became of it."""
    found: Counter[str] = Counter()
    for name, suffix in _PTX.findall(text):
        instruction = name + suffix
        if name in ("ld", "st") and suffix.startswith(".global"):
            kind = "global load" if name == "ld" else "global store"
            found[f"{kind}, {_ptx_width(suffix)} bytes"] += 1
            continue
        for prefix, group in _PTX_GROUPS:
            if instruction.startswith(prefix):
                found[group] += 1
                break
    return dict(sorted(found.items()))


def _ptx_width(suffix: str) -> int:
    lanes = re.search(r"\.v(\d)", suffix)
    bits = re.search(r"\.[busf](\d+)$", suffix)
    return (int(lanes[1]) if lanes else 1) * (int(bits[1]) if bits else 32) // 8


_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T\d]+\s+)?([A-Z][\w.]*) (.*?) ;", re.M)
_UNIFORM = re.compile(r"\bUR(\d+)\b")
#: Opcodes whose first register is what they write. All others with such a register only read it.
_WRITES = re.compile(r"(U[A-Z]|R2UR|S2UR|VOTEU|LDCU|REDUX)(?!TMA|BLK|TC|CGA)")


def never_written(text: str) -> list[str]:
    """Uniform registers that the machine code reads though nothing before has written them, each with its instruction.

    A warp has one value in such a register; `wgmma` takes the addresses of its tiles from there. The assembler must
    have lost an instruction, so what the kernel computes is anybody's guess.
    """
    written: set[int] = set()
    found = []
    for opcode, operands in _INSTRUCTION.findall(text):
        target, read = _uniform(opcode, [part.strip() for part in re.split(r",(?![^\[]*\])", operands)])
        found += [f"UR{register} in {opcode} {operands}" for register in sorted(read - written)]
        written |= target | read
    return found


def lost(cubin: bytes) -> list[str]:
    """`never_written` of a compiled kernel, kept: to take one apart costs more than to look up a kernel that Triton has
    compiled before."""
    key = [hashlib.sha256(cubin).hexdigest(), dependencies.made_by("academy.compiler.machine_code")]
    return cache.kept("lost instructions", key, lambda: never_written(sass(cubin)[1]), keep=lambda found: True)


def _uniform(opcode: str, operands: list[str]) -> tuple[set[int], set[int]]:
    """The uniform registers that an instruction writes, and those that it reads."""
    target: set[int] = set()
    if _WRITES.match(opcode):
        place = next((n for n, operand in enumerate(operands) if not re.fullmatch(r"U?P(T|\d)", operand)), 0)
        if register := re.fullmatch(r"UR(\d+)", operands[place]):
            size = 4 if ".128" in opcode else 2 if ".64" in opcode or ".WIDE" in opcode else 1
            target = set(range(int(register[1]), int(register[1]) + size))
            operands = operands[place + 1 :]
    read = set()
    for operand in operands:
        for first in map(int, _UNIFORM.findall(operand)):
            if operand.startswith("gdesc["):  # two descriptors, or only the second where the left tile is in registers
                begin = first + 2 if re.fullmatch(r"R\d+", operands[1]) else first
                read |= set(range(begin, first + 4))
            else:
                read |= {first, first + 1} if ".64" in opcode and opcode.startswith("UIADD3") else {first}
    return target, read
