"""Partitions, asynchronous units, and what orders them: a scheduler and vector clocks.

Every partition of `warp_specialize` is an *agent*, and so is every copy and every product that runs asynchronously. An
agent counts its own steps, and knows which steps of the others come before its next one: its *clock*. Arriving at a
barrier leaves the clock there; waiting takes it along. Two accesses of the same memory are ordered if the later
agent's clock contains the earlier step. If not, nothing orders them on a GPU either, whatever the order was this time.
So a race is found in any schedule that reaches both accesses.

A second clock knows which ordinary accesses a `fence_async_shared` came after: the async proxy sees no others.

Source: Lamport, "Time, clocks, and the ordering of events in a distributed system" (1978); Flanagan and Freund,
"FastTrack: efficient and precise dynamic race detection" (2009); the PTX manual on proxies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from academy.gluon.errors import Deadlock, GluonError, InFlight, MissingFence, Place, Race, WrongUse, place
from academy.gluon.watching import Party, Watcher

Clock = dict["Agent", int]
#: So often the same number is polled before it counts as a deadlock.
POLLS = 2000
#: What the partition that started others waits for in the end.
PARTITIONS = "its partitions"


class Agent:
    """A partition or an asynchronous operation. what: as messages name it. partition: who issued it."""

    def __init__(self, what: str, parent: Agent | None = None, partition: Agent | None = None, warps: int = 4):
        self.what, self.warps = what, warps
        self.partition = partition or self
        self.clock: Clock = dict(parent.clock) if parent else {}
        self.fenced: Clock = dict(parent.fenced) if parent else {}
        self.code: Generator | None = None
        self.blocked: tuple[Callable[[], bool], Place | None, Callable[[], str]] | None = None
        self.issued: Place | None = None
        self.number: int | None = None  # of an asynchronous operation, counted from 0
        self.finished = False
        self.last_wait: str = parent.last_wait if partition and parent else ""
        self.products: list[Any] = []  # issued and not waited for: wgmma, copies to global memory, groups of cp.async
        self.stores: list[Agent] = []
        self.on_their_way: list[Agent] = []  # copies that may not have arrived in global memory
        self.gate: Gate | None = None
        self.reads: list[str] = []  # buffers that an asynchronous operation reads
        self.parities: dict[Any, int] = {}  # what a partition has waited for last, at each barrier
        self.polled: tuple[Any, int] = (None, 0)  # what an atomic operation with `acquire` found, and how often
        self.copies: list[Agent] = []
        self.groups: list[list[Agent]] = []
        self.priority = 0.0
        self.tick()

    @property
    def lane(self) -> str:
        """What executes it: a partition, the TMA or the tensor cores."""
        return self.what if self.number is None else "tensor cores" if self.what == "wgmma" else "TMA"

    def end(self) -> None:
        """An asynchronous operation is complete."""
        self.finished = True
        machine().note(self.lane, "end", operation=self.number)

    def polls(self, operation: str, memory: str, found: Any) -> None:
        """Who asks the same question again lets the others go first. Raises Deadlock at the thousandth time."""
        here = place()
        seen, times = self.polled
        self.polled = (here, found), times + 1 if seen == (here, found) else 1
        if self.polled[1] > 1:
            self.priority = -machine().random.random()
        if self.polled[1] > POLLS:
            raise Deadlock(
                f"{self.what} polls {memory} at {here} by {operation}, and finds {found} again and again. Programs are "
                "simulated one after another, so one that came before it must have set the number",
                Party(here, self.what, operation, self.last_wait),
            )

    def tick(self) -> None:
        self.clock[self] = self.clock.get(self, 0) + 1

    def join(self, clock: Clock, fenced: Clock) -> None:
        """What another agent had done by then comes before whatever this one does next."""
        for mine, theirs in ((self.clock, clock), (self.fenced, fenced)):
            for agent, time in theirs.items():
                if mine.get(agent, 0) < time:
                    mine[agent] = time

    def fence(self) -> None:
        self.fenced = dict(self.clock)
        self.tick()  # what comes after the fence isn't covered by it


@dataclass(frozen=True)
class Gate:
    """The barrier that a partition has waited for last: its name and count, and the arrivals that have opened it."""

    name: str
    count: int
    arrivals: tuple[tuple[str, Place | None], ...]


@dataclass(frozen=True)
class Access:
    """One access of shared memory. time: the agent's step. ordinary: by loads and stores, not by the async proxy. gate:
    what its partition had waited for last."""

    agent: Agent
    time: int
    write: bool
    ordinary: bool
    what: str
    at: Place | None
    view: np.ndarray
    waited: str
    gate: Gate | None = None

    @property
    def party(self) -> Party:
        return Party(self.at, self.agent.partition.what, self.what, self.waited)

    def __str__(self) -> str:
        who = self.agent.partition.what
        after = f", after waiting for {self.waited}" if self.waited else ""
        return f"{self.what} at {self.at} (partition {who}{after})"


class Machine:
    """One program: its agents, its shared memory's accesses, and a seeded scheduler.

    Even seeds choose among all that can go on; odd seeds let one agent run on until it has to wait, which shows other
    faults. events: what happened, for whoever draws it, or None.
    """

    def __init__(self, seed: int, program: tuple[int, ...], grid: tuple[int, ...]):
        self.program, self.grid = program, grid
        self.random, self.strict = random.Random(f"{seed} {program}"), seed % 2 == 1
        self.agents: list[Agent] = []
        self.pending: list[Callable[[], None]] = []
        self.accesses: dict[str, list[Access]] = {}
        self.started: list[Agent] = []
        self.names: dict[str, int] = {}
        self.shared_bytes = 0
        self.now: Agent
        self.named_barriers: dict[str, Any] = {}
        self.events: list[dict] | None = None
        self.moment = -1
        self.suspicious: list[str] = []
        self.watcher: Watcher | None = None

    def note(self, lane: str, kind: str, **more: Any) -> None:
        """One step for whoever draws the run; what becomes of a barrier belongs to the step that did it."""
        if self.events is not None:
            here = place()
            self.moment += kind not in ("phase", "barrier")
            event = dict(step=max(0, self.moment), lane=lane, kind=kind, line=here and here.line, **more)
            self.events.append(event if here is None else {**event, "file": here.file})

    def add(self, agent: Agent, code: Generator) -> None:
        agent.code, agent.priority = code, self.random.random()
        self.agents.append(agent)

    def suspect(self, what: str) -> None:
        """No mistake by itself, but the likely cause of one: a message ends with the first of them."""
        self.suspicious.append(what)

    def run(self, main: Agent) -> None:
        """Raises GluonError."""
        try:
            self._run(main)
        except GluonError as error:
            error.message += f"\nLook here first: {self.suspicious[0]}" if self.suspicious else ""
            raise

    def _run(self, main: Agent) -> None:
        while self.agents or self.pending:
            able = [agent for agent in self.agents if agent.blocked is None or agent.blocked[0]()]
            if not able and not self.pending:
                raise self._deadlock()
            self._step(able)
        for agent in self.started:
            if agent not in main.clock:
                raise InFlight(
                    f"the kernel ends, and nothing has waited for the {agent.what} that partition "
                    f"{agent.partition.what} issued at {agent.issued}. The next program gets the same shared memory. "
                    "Wait for it before the end",
                    Party(agent.issued, agent.partition.what, agent.what, agent.last_wait),
                )

    def _step(self, able: list[Agent]) -> None:
        choice = self.random.random()
        if self.pending and (
            not able or choice < (0.1 if self.strict else len(self.pending) / (len(able) + len(self.pending)))
        ):
            self.pending.pop(self.random.randrange(len(self.pending)))()
            return
        agent = self.random.choice(able)
        if self.strict:
            agent = max(able, key=lambda each: each.priority)
            if self.random.random() < 0.05:
                agent.priority = self.random.random()
        self.now = agent
        assert agent.code is not None
        try:
            agent.blocked = next(agent.code)
        except StopIteration:
            agent.finished = True
            self.agents.remove(agent)

    def _deadlock(self) -> GluonError:
        waits = [(agent.what, agent.blocked[1], agent.blocked[2]()) for agent in self.agents if agent.blocked]
        waits.sort(key=lambda each: each[2] == PARTITIONS)  # who waits for a barrier comes first: there the fault is
        lines = [f"  {who} waits at {here}: for {what}" for who, here, what in waits]
        parties = [Party(here, who, f"waits for {what}") for who, here, what in waits]
        return Deadlock("deadlock: no partition can go on.\n" + "\n".join(lines), *parties)

    def start(self, what: str) -> Agent:
        """An asynchronous operation, issued by the partition that is running, after all that this one knows."""
        agent = Agent(what, self.now, self.now.partition)
        agent.issued, agent.number = place(), len(self.started)
        self.now.tick()
        self.started.append(agent)
        return agent

    def access(self, agent: Agent, buffer: Any, write: bool, ordinary: bool, what: str) -> None:
        """Check an access of shared memory against all earlier ones of the same bytes, and remember it.

        Raises: Race, MissingFence, WrongUse (a read of what nothing has written).
        """
        log = self.accesses.setdefault(buffer.allocation, [])
        new = Access(
            agent, agent.clock[agent], write, ordinary, what, place(), buffer.array, agent.partition.last_wait,
            agent.partition.gate,
        )  # fmt: skip
        filled = False
        for old in log:
            if not np.shares_memory(old.view, new.view):
                continue
            filled = filled or old.write
            if not (old.write or write):
                continue
            if agent.clock.get(old.agent, 0) < old.time:
                raise self._race(buffer.name, new, old)
            if old.ordinary and not ordinary and agent.fenced.get(old.agent, 0) < old.time:
                raise MissingFence(
                    f"missing fence on {buffer.name}: {new}\n  goes through the async proxy, and {old} doesn't. They "
                    "are ordered, but without fence_async_shared() between them the TMA and the tensor cores may "
                    "not see it. Put the fence after the ordinary access, before the arrival or the call that leads "
                    "here",
                    new.party, old.party,
                )  # fmt: skip
        if not write and not filled:
            raise WrongUse(
                f"{new} reads {buffer.name}, and nothing has been written there yet. Is a wait missing, or does it "
                "wait for the wrong phase?",
                new.party,
            )
        low, high = np.lib.array_utils.byte_bounds(new.view)
        if write and high - low == new.view.nbytes:
            log[:] = [old for old in log if not _inside(old.view, low, high)]
        log.append(new)
        if not write and agent.number is not None:
            agent.reads.append(buffer.name)
        kind = "write" if write else "read"
        self.note(agent.lane, kind, what=what, buffer=buffer.name, of=agent.partition.what, operation=agent.number)

    def _race(self, name: str, new: Access, old: Access) -> Race:
        verbs = {True: "writes", False: "reads"}
        mine, theirs = new.agent.partition, old.agent.partition
        if mine is not theirs or old.agent is new.agent:
            advice = f"{mine.what} must wait, before this line, for a barrier (or for the operation itself) that "
            advice = f"Nothing orders them. {advice}{theirs.what} completes after it"
        elif new.write and old.write and len(self.agents) > 1:
            advice = f"{mine.what} overwrites a tile that nobody has given back: before this line it must wait for the "
            advice += f"barrier at which those who read {name} arrive when they have read it"
        else:
            advice = f"{theirs.what} must wait for the {old.agent.what} before this line"
        if not self.suspicious:
            advice = _given_back(name, new, old) or _given_back(name, old, new) or advice
        return Race(
            f"race on {name}: {new}\n  {verbs[new.write]} what {old}\n  {verbs[old.write]}. {advice}.",
            new.party,
            old.party,
        )


def _given_back(name: str, writer: Access, reader: Access) -> str:
    """What is wrong with the arrivals that made the writer go on; "" if it wasn't arrivals."""
    who, gate = reader.agent.partition, writer.gate
    if not writer.write or reader.write or who is writer.agent.partition or gate is None or not gate.arrivals:
        return ""
    came, waits = dict(gate.arrivals), f"{gate.name}, which {writer.agent.partition.what} has waited for,"
    twice = next((other for other in came if [other for other, _ in gate.arrivals].count(other) > 1), None)
    if twice:
        lines = " and ".join(str(at) for other, at in gate.arrivals if other == twice)
        return f"{waits} was completed by two arrivals of {twice}, at {lines}: one is too many"
    if who.what not in came:
        others = " and ".join(f"{other} at {at}" for other, at in came.items())
        return (
            f"{waits} has a count of {gate.count}, and the arrival of {others} completed it alone. {who.what} reads "
            f"{name} as well, so it has to arrive there, too, and be counted in mbarrier.init"
        )
    return (
        f"{who.what} gives {name} back before it has read it: {writer.agent.partition.what} goes on since {who.what} "
        f"arrived at {gate.name}, at {came[who.what]}. Arrive for the buffer that has been read; one that a product "
        "reads, when warpgroup_mma_wait has covered that product"
    )


def _inside(view: np.ndarray, low: int, high: int) -> bool:
    first, last = np.lib.array_utils.byte_bounds(view)
    return low <= first and last <= high


#: The program that is being simulated.
_RUNNING: list[Machine] = []


def machine() -> Machine:
    if not _RUNNING:
        raise RuntimeError("no kernel is being simulated")
    return _RUNNING[-1]


class running:
    """`with running(machine):` makes it the one that Gluon's functions act upon."""

    def __init__(self, new: Machine):
        self.new = new

    def __enter__(self) -> Machine:
        _RUNNING.append(self.new)
        return self.new

    def __exit__(self, *_: object) -> None:
        _RUNNING.pop()
