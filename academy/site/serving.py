"""Before `mkdocs serve` builds anything: whether the place where it would serve is free."""

from __future__ import annotations

import os
import socket


def problem(host: str, port: int) -> str:
    """Why nothing can be served there, and what to do; "" if it can. MkDocs would find out after the build."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        other = f"or serve elsewhere: make serve ADDRESS={host}:{port + 1}"
        return f"{host}:{port} can't be used: {why}. Stop what runs there, perhaps another `make serve`, {other}"
    return ""
