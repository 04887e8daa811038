# SPDX-License-Identifier: BSD-3-Clause
"""Programs of MPI: steps of a program (program_steps), operations of MPI (mpi_table.py)."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from sides import Side

from .cells import Cell
from .tasks import Outcome, Task, command_text, finished, launched, missing_programs, needs_gpus

STEP_SECONDS = 0.55  # a cell, with its check
ALL_STEPS = 46       # about as many cells as there are
STEPS_LIMIT = 120    # seconds a launch


class StepSource:
    """Steps by device pointers with gpushm, by copies of the program's own, and without messages."""
    name = "steps"
    modes = {"gpushm": "device", "staged": "staged", "none": "none"}

    def __init__(self, options, cells, seconds):
        self.options = options
        self.cells = cells  # names of program_steps, separated by commas
        self.seconds = seconds
        self.refused = {}
        mpirun = options.mpirun
        self.sides = {side.name: side for side in map(Side, [
            f"gpushm={options.gpushm} {mpirun}", f"staged={mpirun}", f"none={mpirun}"])}

    def tasks(self, launch, devices):
        if not can_start_ranks(self, devices) or not has_program(self, "program_steps"):
            return
        for name in self.sides if launch % 2 == 0 else reversed(self.sides):
            yield Task(f"steps/{name}", launch, f"steps of a program: {name}",
                       2 + STEP_SECONDS * (len(self.cells.split(",")) if self.cells else ALL_STEPS),
                       lambda limit, name=name: self.measure(name, limit))

    def measure(self, name, limit):
        side, options = self.sides[name], self.options
        command = side.command + [
            os.path.join(options.programs, "program_steps"), f"--mode={self.modes[name]}",
            f"--seconds={self.seconds}", "--passes=4", f"--cells={self.cells}",
            "--devices=" + ",".join(map(str, options.devices))]
        launch = launched(command, side.environment, min(limit, STEPS_LIMIT))
        text = command_text(command, side.environment)
        return Outcome([Cell(self.name, said["cell"], said["cell"], name, said["test"], said["size"],
                             "us", [said["us"]], text) for said in launch.cells], launch.failure)


class MpiSource:
    """Derived datatypes and collectives, beside host memory and NCCL."""
    name = "mpi"

    def __init__(self, options, sizes, seconds):
        self.options = options
        self.sizes = sizes
        self.seconds = seconds
        self.refused = {}

    def tasks(self, launch, devices):
        if not can_start_ranks(self, devices) or not has_mpi4py(self):
            return
        yield Task("mpi/all", launch, "operations of MPI", 12 + 100 * self.seconds, self.measure)

    def message_sizes(self):
        """Below 64 KiB some of the datatypes have no block."""
        return ",".join(size for size in self.sizes.split(",") if int(size) >= 1 << 16)

    def measure(self, limit, mpirun=None, variables="", *more):
        side = Side(f"gpushm={variables}{self.options.gpushm} {mpirun or self.options.mpirun}")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "json")
            command = side.command + [self.options.python, os.path.join(self.options.scripts, "mpi_table.py"),
                                      f"--sizes={self.sizes}", f"--message-sizes={self.message_sizes()}",
                                      f"--seconds={self.seconds}", *more]
            outcome = run_to_file(command, side.environment, ["--json", path], limit)
            if outcome.failure is None:
                with open(path, encoding="ascii") as file:
                    outcome.cells = list(mpi_cells(json.load(file), command_text(command, side.environment)))
        return outcome


def mpi_cells(table, command):
    for said in table:
        for side, (median, _, _) in said["results"].items():
            yield Cell("mpi", said["row"], said["row"], "gpushm" if side == "us one way" else side,
                       "datatype" if side == "us one way" else "collective", said["size"], "us", [median], command)


def run_to_file(command, environment, more, limit):
    """A program that writes its figures to a file."""
    done, failure = finished(command + more, environment, limit, subprocess.STDOUT)
    if done and done.returncode != 0:
        failure = f"status {done.returncode} {reason(done.stdout, command)}".strip()
    return Outcome(failure=failure)


def reason(output, command):
    """The line in which the program says why it failed, or the first one, which is mpirun's then."""
    names = tuple(os.path.basename(word) for word in command)
    said = [line.strip() for line in output.splitlines() if any(letter.isalpha() for letter in line)]
    return next((line for line in said if line.startswith(names)), said[0] if said else "")


def can_start_ranks(source, devices):
    program = Side(f"mpirun={source.options.mpirun}").command[0]
    if shutil.which(program) is None:
        source.refused[TITLES[source.name]] = f"{program} is not there (--mpirun)"
    elif devices <= max(source.options.devices):
        source.refused[TITLES[source.name]] = needs_gpus(max(source.options.devices) + 1, devices)
    return TITLES[source.name] not in source.refused


TITLES = {"steps": "steps of a program", "mpi": "operations of MPI", "micro": "micro-benchmarks"}


def has_program(source, name):
    if missing_programs(source.options.programs, [name]):
        source.refused[TITLES[source.name]] = \
            f"{name} is not in {source.options.programs}: built without what it needs"
        return False
    return True


def has_mpi4py(source):
    python = source.options.python
    if subprocess.run([python, "-c", "import mpi4py"], check=False, capture_output=True,
                      stdin=subprocess.DEVNULL).returncode == 0:
        return True
    source.refused[TITLES["mpi"]] = f"{python} has no mpi4py (Debian and Ubuntu: python3-mpi4py)"
    return False


def default_python():
    return sys.executable or "python3"
