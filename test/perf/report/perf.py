# SPDX-License-Identifier: BSD-3-Clause
"""gpushm-perf and gpushm-perf-mpi: OSU's tests, situations, unified memory and manual staging, by the
JSON that both write."""
import dataclasses
import json
import os
import shutil
import tempfile

from launches import placement_arguments
from sides import Side

from .cells import Cell
from .programs import run_to_file
from .tasks import Task, command_text, missing_programs, needs_gpus

START = 2            # seconds that a launch takes beside its rows
ROW_OVERHEAD = 0.15  # and a row beside its samples, mostly for contents and their check
# What Open MPI needs for a UCX that brings transports which it does not know.
PEER_MPI = ["-x", "LD_LIBRARY_PATH", "--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any",
            "--mca", "pml_ucx_devices", "any"]
BY_HAND = ("staged", "staged-pipelined")


@dataclasses.dataclass(frozen=True)
class PerfRun:
    """What one start of a program measures."""
    program: str
    arguments: tuple
    tables: int        # that it prints
    peer: bool = True  # whether the peer is measured, too


class PerfSource:
    """`sides`: message_sides.MessageSides; `runs`: {title: PerfRun}; `sizes`: as on the programs' command line."""
    name = "perf"

    def __init__(self, sides, runs, sizes):
        self.sides = sides
        self.options = sides.options
        self.runs = runs
        self.sizes = sizes
        self.refused = {}  # what is left out: why

    def folder(self, program):
        """Where it is: where --programs says, or beside gpushm-run; None where it is not."""
        beside = os.path.dirname(shutil.which(self.sides.started["gpushm"].command[0]) or "")
        return next((folder for folder in (self.options.programs, beside) if not missing_programs(folder, [program])), None)

    def can_start(self, run, devices):
        mpirun = Side(f"mpirun={self.options.mpirun}").command[0]
        needed = max(self.options.devices) + 1
        if devices < needed:
            self.refused[run.program] = needs_gpus(needed, devices)
        elif self.folder(run.program) is None:
            self.refused[run.program] = "it is not there: built without mpicxx" if is_mpi(run) else "it is not there"
        elif is_mpi(run) and shutil.which(mpirun) is None:
            self.refused[run.program] = f"{mpirun} is not there (--mpirun)"
        return run.program not in self.refused

    def tasks(self, launch, devices):
        for title, run in self.runs.items():
            names = list(self.sides.started) + (["peer"] if self.options.peer and run.peer else [])
            for name in names if launch % 2 == 0 else reversed(names):
                if self.can_start(run, devices):
                    yield Task(f"perf/{title}/{name}", launch, f"{title}: {name}", self.seconds(run),
                               lambda limit, title=title, run=run, name=name: self.measure(title, run, name, limit))

    def seconds(self, run):
        rows = run.tables * len(self.sizes.split(","))
        return START + rows * (1.3 * self.options.seconds + ROW_OVERHEAD)

    def environment(self, name):
        if name == "peer":
            return {"LD_LIBRARY_PATH": self.sides.peer_library_path}
        return self.sides.started[name].environment

    def command(self, run, name):
        command = [] if name == "peer" else list(self.sides.started[name].command)
        if is_mpi(run):
            command += Side(f"mpirun={self.options.mpirun}").command + (PEER_MPI if name == "peer" else [])
        return command + [os.path.join(self.folder(run.program), run.program), *run.arguments, f"--sizes={self.sizes}",
                          f"--seconds={self.options.seconds}",
                          *placement_arguments(self.options.devices, [] if is_mpi(run) else self.options.cpus)]

    def measure(self, title, run, name, limit):
        command, environment = self.command(run, name), self.environment(name)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "json")
            outcome = run_to_file(command, environment, [f"--json={path}"], limit)
            # What was measured before a failure counts, too.
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    add_rows(outcome, json.load(file), title, name, command_text(command, environment))
        return outcome


def is_mpi(run):
    return run.program == "gpushm-perf-mpi"


def add_rows(outcome, said, title, name, command):
    """`name`: of the side. Copies by hand are sides of the messages that they stand for."""
    for row in said["rows"]:
        what = f"{title}: {describe(row)}"
        side = row["situation"] if row["situation"] in BY_HAND else name
        outcome.cells.append(Cell("perf", what, what, side, row["test"], row["size"], row["unit"], [row["value"]],
                                  command, faults_text(row.get("page_faults"))))
    if said["ucx"]:
        outcome.versions[name] = said["ucx"]
    texts = [f"{error['test']}, {error['situation']}: {error['text']}" for error in said["errors"]]
    if texts:
        outcome.failure = next((text for text in texts if "WRONG DATA" in text), texts[0])


def describe(row):
    situation = row["situation"]
    if situation.startswith("M"):
        return situation  # a placement of managed memory
    kinds = f"{row['from']} to {row['to']}"
    return kinds if situation in ("normal", *BY_HAND) else f"{situation}, {kinds}"


def faults_text(faults):
    """Means of a message and its answer, a window or an operation."""
    if not faults:
        return ""
    if faults["gpu"] is None:
        return f"page faults: CPU {faults['cpu']:.1f}; managed memory: not counted"
    return f"page faults: CPU {faults['cpu']:.1f} ({faults['managed_cpu']:.1f} in managed memory), GPU {faults['gpu']:.1f}"
