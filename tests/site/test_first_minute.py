"""From the home page to a kernel that was changed, run and watched, the first time somebody is there."""

import time

import pytest

from tests.site.browser import Browser, served
from tests.site.test_home import LIVE, OUT, STATE

pytestmark = pytest.mark.site_check

#: Lighthouse's phone: 150 ms to the host and back, 1.6 Mbit/s, a processor a quarter as fast.
PHONE = {"latency": 0.15, "rate": 1.6 * 1024 * 1024 / 8}
SLOWDOWN = 4
MINUTE = 60
#: What else runs on the machine makes it slower, never faster: the best of this many tries counts.
TRIES = 3
TYPE = "(field => {{ field.value = {!r}; field.dispatchEvent(new Event('input')) }})(document.querySelector('{}'))"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("width, height, network", [(1440, 900, {}), (390, 844, PHONE)], ids=["desktop", "phone"])
def test_a_kernel_is_changed_run_and_watched_within_a_minute(site, width, height, network):
    pytest.importorskip("triton", reason="without triton nothing is recorded")
    with served(site, "/triton-academy/", **network) as address:
        taken = []
        while len(taken) < TRIES and min(taken, default=MINUTE) >= MINUTE:
            taken.append(_minute(address, width, height, SLOWDOWN if network else 1))
    print(f"\n{width} x {height}: " + "; ".join(f"{seconds:.1f} s" for seconds in taken))
    assert min(taken) < MINUTE


def _minute(address: str, width: int, height: int, slowdown: int) -> float:
    """Seconds from asking for the page until the changed kernel's result stands in its memory. Nothing is kept from
    before."""
    own = Browser(timed=True)
    try:
        own.call("Emulation.setCPUThrottlingRate", rate=slowdown)
        begun = time.monotonic()
        own.open(address, width=width, height=height)
        own.wait(f"{STATE} === 'playing'", MINUTE)
        own.run(TYPE.format("out = x * y + 1", f"{LIVE} .p-change"))
        own.run(f"document.querySelector('{LIVE} [data-action=run]').click()")
        own.wait(f"{STATE} === 'differs'", 4 * MINUTE)
        assert own.run(OUT) == [str(10 * n * n + 1) for n in range(10)]
        lit = own.run(f"document.querySelectorAll('{LIVE} .p-strips td.t-w, {LIVE} .p-strips td.t-w0').length")
        assert lit == 10, "all of them were seen to be written"
        seconds = time.monotonic() - begun
        own.run(f"document.querySelector('{LIVE} [data-action=play]').click()")
        own.wait(f"document.querySelector('{LIVE} .p-live-now').textContent.startsWith('Program 0 of 0 to 2')")
        assert not own.errors and all(url.startswith((address, "data:", "blob:")) for url in own.requests)
        return seconds
    finally:
        own.close()
