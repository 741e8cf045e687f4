"""A reader's text in a process of its own, with limits of time and memory: what the terminal uses.

What is guaranteed: the verdict. Inputs are drawn, and results compared, in the process that asks; the text can't reach
it, nor end it. It sends plain data (`wire`), so no object of its own is ever compared, and a result counts only if its
numbers are right. An endless loop, a full memory, a crash or an exit is a failed check with a message.

What isn't: the text runs with the reader's own rights, and `allowed` refuses files, processes and Python's insides by
their names only. And whether a kernel has done the work is seen by the recorder, which runs beside the text: one that
gets past `allowed` could have PyTorch compute a right result and forge the record of a kernel that did. It fools only
itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from academy import trouble
from academy.exercises import watch, wire
from academy.exercises.allowed import Raised
from academy.exercises.answer import Answer
from academy.judge.process import Conversation, Died, Limits

#: For one call of the text. A kernel's first launch on a GPU is compiled for it.
LIMITS = Limits(seconds=20, megabytes=2048)


class Apart:
    """As `answer.Answer`, which it is at the other end."""

    def __init__(self, path: Path, limits: Limits = LIMITS):
        self._conversation = Conversation(_serve, str(path), limits)
        try:
            self._ask("load")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._conversation.end()

    def has(self, name: str) -> bool:
        return self._ask("has", name) is True

    def variable(self, name: str) -> Any:
        return self._ask("variable", name)

    def parameters(self, function: str) -> list[str]:
        return list(map(str, self._ask("parameters", function)))

    def run(self, function: str, arguments: tuple, lanes: float | None = None) -> watch.Run:
        run = self._ask("run", function, arguments, lanes)
        if isinstance(run, watch.Run) and all(
            isinstance(one, dict) and {"kernel", "file"} <= one.keys() for one in run.noted
        ):
            return run
        raise _forged()

    def call(self, function: str, arguments: tuple) -> Any:
        return self._ask("call", function, arguments)

    def evaluate(self, expression: str, names: dict[str, Any]) -> Any:
        return self._ask("evaluate", expression, names)

    def _ask(self, *question: Any) -> Any:
        functions: list[Callable] = []
        message = wire.pack(list(question), functions)
        while True:
            try:
                kind, content = wire.unpack(self._conversation.ask(message))
                if kind == "calls":  # one of the functions that it was given
                    number, arguments = content
                    message = wire.pack([functions[number](*arguments), list(arguments)])
                    continue
            except Died as died:
                raise Raised(f"the program {died.death.message}") from died
            except (wire.Malformed, TypeError, ValueError, IndexError, AttributeError) as error:
                raise _forged() from error
            if kind == "raised":
                message_of_it, line, stopped = content
                raise Raised(str(message_of_it), line if isinstance(line, int) else None, stopped is True)
            if kind == "trouble":
                raise trouble.Trouble(str(content))
            if kind == "syntax":
                raise SyntaxError(str(content[0]), ("answer", content[1], None, None))
            if kind != "value":
                raise _forged()
            return content


def _forged() -> Raised:
    return Raised("the program answers the checks with something of its own: it has changed what runs it")


def _serve(path: str, connection: Connection) -> None:
    """The other end: answer each question, for ever."""
    answer: Answer | None = None

    def called(number: int, arguments: tuple) -> Any:
        connection.send_bytes(wire.pack(["calls", [number, arguments]]))
        result, after = wire.unpack(connection.recv_bytes())
        for mine, theirs in zip(arguments, after):
            if isinstance(mine, torch.Tensor):
                _whole(mine).copy_(_whole(theirs))
        return result

    while True:
        question, *arguments = wire.unpack(connection.recv_bytes(), called)
        try:
            if question == "load":
                answer, content = Answer(Path(path)), None
            else:
                content = getattr(answer, question)(*arguments)
            reply = wire.pack(["value", content])
        except SyntaxError as error:
            reply = wire.pack(["syntax", [error.msg, error.lineno]])
        except Raised as raised:
            reply = wire.pack(["raised", [raised.message, raised.line, raised.stopped]])
        except trouble.Trouble as found:
            reply = wire.pack(["trouble", str(found)])
        except Exception as error:
            reply = wire.pack(["raised", [f"what it gives can't be read: {type(error).__name__}: {error}", None, True]])
        sys.stdout.flush()
        connection.send_bytes(reply)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor's memory: a launch may have written past its end."""
    return tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
