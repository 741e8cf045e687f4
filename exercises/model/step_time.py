"""# When Python is too slow

A step makes `launches` launches. Each takes Python `launch_us` microseconds, and all of their kernels together take the
GPU `gpu_ms` milliseconds. Write `step_time(launches, launch_us, gpu_ms)`: the milliseconds that a step takes without a
CUDA graph, and with one. Python doesn't wait for the kernels that it launches, the GPU never waits for anything but
Python, and a graph costs nothing to launch.

[[figure: host/short_kernels]]
"""


# %% solution
def step_time(launches, launch_us, gpu_ms):
    # <<<
    return max(launches * launch_us / 1e3, gpu_ms), gpu_ms
    # >>>


# %% checks
PAGE = "learn/from_profile.py"
KIND = "fill in"
ORDER = 3
HINTS = (
    "While the GPU runs one kernel, Python launches the next ones. Do the two times add up?",
    "Over many steps the slower of the two decides: either the GPU waits for launches, or launches wait in a queue.",
    "A millisecond has 1000 microseconds.",
)
WHY = """Launches run ahead of the kernels, so the slower of the two decides. Faster kernels don't help a step that
waits for Python: its time stays. That is why the ladder of the chapter is measured with graphs."""


def check(t):
    t.value("step_time", (1000, 20, 12.0), (20.0, 12.0), note="1000 launches take 20 ms: the GPU waits for Python.")
    t.value("step_time", (100, 20, 12.0), (12.0, 12.0), note="100 launches take 2 ms, while the GPU is busy for 12.")
    t.value("step_time", (1000, 20, 6.0), (20.0, 6.0), note="Kernels twice as fast don't change what Python takes.")
    t.value("step_time", (10, 25, 0.1), (0.25, 0.1), note="10 launches take a quarter of a millisecond.")
    t.value("step_time", (0, 20, 5.0), (5.0, 5.0), note="Nothing is launched from Python.")
    t.value("step_time", (100, 20, 2.0), (2.0, 2.0), note="Both take 2 ms.")
    t.value("step_time", (7, 30, 0.0), (0.21, 0.0))
    for _ in range(10):
        launches, launch_us = t.random.randint(1, 10 ** t.random.randint(1, 6)), 10 ** t.random.uniform(-1, 3)
        python = launches * launch_us / 1e3
        gpu = python * t.random.choice(
            [t.random.uniform(0.1, 0.9), t.random.uniform(1.1, 5), 1 - 1e-6, 1 + 1e-6, 1e-4, 1e4]
        )
        t.value("step_time", (launches, launch_us, gpu), (max(python, gpu), gpu), note=f"Python takes {python:.4g} ms.")


WRONG = (
    (
        "10 launches take a quarter of a millisecond",
        "launches * launch_us / 1e3",
        "launches * launch_us // 1e3",
    ),
    ("step_time(1000, 20, 12) is None, should be (20, 12)",),
    (
        "1000 launches take 20 ms: the GPU waits for Python",
        "max(launches * launch_us / 1e3, gpu_ms)",
        "launches * launch_us / 1e3 + gpu_ms",
    ),
    (
        "step_time(1000, 20, 12) is (20000, 12), should be (20, 12)",
        " / 1e3",
        "",
    ),
    (
        "100 launches take 2 ms, while the GPU is busy for 12",
        "max(launches * launch_us / 1e3, gpu_ms)",
        "launches * launch_us / 1e3",
    ),
)
RIGHT = (
    ("python_ms = launches * launch_us / 1000\nreturn (python_ms if python_ms > gpu_ms else gpu_ms), gpu_ms",),
    ("return [gpu_ms + max(0, launches * launch_us / 1e3 - gpu_ms), gpu_ms]",),
)
