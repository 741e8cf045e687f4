"""Makes the virtual environment for `make`: says beforehand what will be downloaded, shows it, and can be interrupted.

It runs in the system's Python, before anything is installed, so it uses the standard library alone, and of the language
only what an old Python knows, which then gets as far as the message that it is too old.

    python3 academy/command/setup_environment.py .venv --torch 2.13 --extras site,test,huggingface

`--cpu` takes torch without CUDA, which PyTorch publishes beside PyPI; the address can be given with `--cpu-index`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OLDEST = (3, 11)
#: Where PyTorch publishes its wheels without CUDA.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
#: GB to download, which pip's cache keeps, and GB that the environment takes, measured with torch 2.13 on Linux.
SIZES = {"cuda": (3.0, 6.0), "cpu": (0.7, 2.5)}
#: Megabits a second for which a time is given.
SPEED = 100
_TORCH = re.compile(r"^torch==([\w.]+)", re.M)


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 when everything is installed, 1 when something is missing, 130 after Ctrl-C."""
    if sys.version_info < OLDEST:
        wanted, found = (f"{version[0]}.{version[1]}" for version in (OLDEST, sys.version_info))
        return _fail(f"Python {wanted} or newer is needed; this is {found} (try make PYTHON=python3.12)")
    parser = argparse.ArgumentParser(description="Make the virtual environment, or bring it up to date.")
    parser.add_argument("venv", type=Path, help="its folder")
    parser.add_argument("--torch", default="2.13", help="which of constraints/torch-*.txt (default: %(default)s)")
    parser.add_argument("--extras", default="site,test,huggingface", help="of pyproject.toml (default: %(default)s)")
    parser.add_argument("--cpu", action="store_true", help="torch without CUDA: a quarter of the download")
    parser.add_argument("--cpu-index", default=CPU_INDEX, help="where that torch is published (default: %(default)s)")
    options = parser.parse_args(arguments)
    constraints = ROOT / "constraints" / f"torch-{options.torch}.txt"
    if not constraints.is_file():
        found = ", ".join(sorted(path.stem[6:] for path in constraints.parent.glob("torch-*.txt")))
        return _fail(f"there are no constraints for torch {options.torch}; there are some for {found}")
    if message := missing_parts():
        return _fail(message)
    # The tools that build this package are held to the same versions; old and new pips ask different variables.
    environment = {**os.environ, "PIP_CONSTRAINT": str(constraints), "PIP_BUILD_CONSTRAINT": str(constraints)}
    try:
        if not has_torch(options.venv) and (message := announce(options.venv, options.cpu)):
            return _fail(message)
        for command in commands(options.venv, constraints, options.extras, options.cpu, options.cpu_index):
            subprocess.run(command, cwd=ROOT, check=True, env=environment)
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on; what is downloaded already is kept.", file=sys.stderr)
        return 130
    except subprocess.CalledProcessError:
        return _fail("the installation failed, see above. The same command tries again; what is downloaded is kept")
    return 0


def _fail(message: str) -> int:
    sys.stderr.write(f"{message}.\n")
    return 1


def missing_parts() -> str:
    """What to install where Python comes without `venv`, as on Debian; "" if nothing is missing."""
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        return ""
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    return f"this Python has no module venv. On Debian and Ubuntu: sudo apt install {package}"


def has_torch(venv: Path) -> bool:
    return any(venv.glob("lib/python*/site-packages/torch/version.py")) or any(venv.glob("Lib/site-packages/torch"))


def announce(venv: Path, cpu: bool) -> str:
    """Say what comes, how long it takes, and what would be less. Returns why it can't be done, "" if it can."""
    with_cuda = platform.system() == "Linux" and not cpu
    download, disk = SIZES["cuda" if with_cuda else "cpu"]
    minutes = -(-download * 8000 // SPEED // 60)
    gpu = bool(shutil.which("nvidia-smi"))
    print(f"Installing into {venv}: about {download} GB to download, {disk} GB on the disk, once.")
    print(f"That takes {minutes:.0f} minutes at {SPEED} Mbit/s and a few more to unpack.", end=" ")
    print("Ctrl-C stops it; the same command goes on later.")
    if with_cuda:
        why = "for the NVIDIA GPU of this machine" if gpu else "though no NVIDIA GPU was found here"
        small, small_disk = SIZES["cpu"]
        print(f"Most of it is CUDA, {why}. Without: make CPU=1 ({small} GB to download, {small_disk} GB on the disk).")
    if platform.system() != "Linux":
        print("Triton has no wheel for this system: the site works, and kernels run in the page's own editor.")
    sys.stdout.flush()
    existing = next(folder for folder in (venv.resolve(), *venv.resolve().parents) if folder.exists())
    free = shutil.disk_usage(existing).free / 1e9
    needed = download + disk
    return "" if free > needed else f"{free:.1f} GB are free on that disk, {needed:.1f} GB are needed"


def commands(venv: Path, constraints: Path, extras: str, cpu: bool, index: str) -> list[list[str]]:
    """What is run, in order, as a person could type it."""
    python = str(venv / ("Scripts/python.exe" if platform.system() == "Windows" else "bin/python"))
    install = [python, "-m", "pip", "--disable-pip-version-check", "install"]
    found = [] if has_pip(python) else [[sys.executable, "-m", "venv", "--clear", str(venv)]]
    if cpu and platform.system() == "Linux" and not has_torch(venv):
        version = _TORCH.search(constraints.read_text("utf-8"))
        assert version, f"{constraints} has no torch"
        # Its own index has other versions of what torch needs, so that comes with the rest.
        found.append([*install, "--no-deps", "--index-url", index, f"torch=={version[1]}"])
    return [*found, [*install, "--constraint", str(constraints), "--editable", f".[{extras}]"]]


def has_pip(python: str) -> bool:
    """Whether an environment is whole: without pip it is what an interrupted or failed `venv` leaves behind."""
    if not Path(python).exists():
        return False
    return subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
