"""Cards that kernels are compiled for, and what a program may use on them.

The limits are those of the table "Technical Specifications per Compute Capability" in NVIDIA's CUDA C++ Programming
Guide; the number of SMs is that of the data sheet of the card named first. Shared memory is the most that one program
may ask for: the SM has 1 KiB more for each program that it holds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """One compute capability. shared: bytes that a program may use. threads, programs: that an SM holds at a time.

    registers: 32-bit registers of an SM. sms: of the first card named, which a launcher may ask for.
    """

    arch: int
    names: str
    shared: int
    threads: int
    programs: int
    sms: int
    registers: int = 65536

    @property
    def capability(self) -> tuple[int, int]:
        return divmod(self.arch, 10)

    def __str__(self) -> str:
        return f"sm_{self.arch} ({self.names})"


_KIB = 1024
#: sm_100's and sm_120's numbers have three digits: compute capabilities 10.0 and 12.0.
CARDS = {
    card.arch: card
    for card in (
        Card(80, "A100, A30", 163 * _KIB, 2048, 32, 108),
        Card(86, "RTX 3090, A40, A10", 99 * _KIB, 1536, 16, 82),
        Card(89, "RTX 4090, L40, L4", 99 * _KIB, 1536, 24, 128),
        Card(90, "H100, H200", 227 * _KIB, 2048, 32, 132),
        Card(100, "B200", 227 * _KIB, 2048, 32, 148),
        Card(120, "RTX 5090, RTX PRO 6000", 99 * _KIB, 1536, 24, 170),
    )
}
#: What is compiled for unless something else is asked.
DEFAULT = 90


def card(arch: int) -> Card:
    """Raises ValueError for an architecture that isn't in the table."""
    if arch not in CARDS:
        raise ValueError(f"arch must be one of {', '.join(map(str, CARDS))}, got {arch}")
    return CARDS[arch]
