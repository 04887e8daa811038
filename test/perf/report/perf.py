# SPDX-License-Identifier: BSD-3-Clause
"""gpushm-perf and gpushm-perf-mpi: OSU's tests, situations, unified memory and manual staging, by the
JSON that both write."""
import json
import os
import tempfile

from sides import Side

from .cells import Cell
from .programs import TITLES, can_start_ranks, run_to_file
from .tasks import Task, command_text


class PerfSource:
    """`runs`: {title: (arguments, seconds)} of the program over MPI."""
    name = "perf"

    def __init__(self, options, runs):
        self.options = options
        self.runs = runs
        self.refused = {}

    def program(self):
        """The program for MPI, where --programs says or beside gpushm-run."""
        for folder in (self.options.programs, os.path.dirname(Side(f"gpushm={self.options.gpushm}").command[0])):
            path = os.path.join(folder, "gpushm-perf-mpi")
            if os.access(path, os.X_OK):
                return path
        self.refused[TITLES["perf"]] = "gpushm-perf-mpi is not there: built without mpicxx"
        return None

    def tasks(self, launch, devices):
        if not can_start_ranks(self, devices):
            return
        program = self.program()
        for title, (arguments, seconds) in self.runs.items() if program else ():
            yield Task(f"perf/{title}", launch, title, seconds,
                       lambda limit, arguments=arguments: self.measure(program, arguments, limit))

    def measure(self, program, arguments, limit):
        side = Side(f"gpushm={self.options.gpushm} {self.options.mpirun}")
        command = side.command + [program] + arguments
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "json")
            outcome = run_to_file(command, side.environment, [f"--json={path}"], limit)
            # What was measured before a failure counts, too.
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    add_rows(outcome, json.load(file), command_text(command, side.environment))
        return outcome


def add_rows(outcome, said, command):
    for row in said["rows"]:
        if not row.get("validated", True):
            outcome.failure = f"WRONG DATA in {row['test']} {row['from']} to {row['to']}, {row['size']} bytes"
            return
        outcome.cells.append(Cell(
            "perf", f"{row['situation']}: {row['from']} to {row['to']}",
            f"{row['from']} to {row['to']}, {row['situation']}", "gpushm", row["test"], row["size"],
            row["unit"], [row["value"]], command, faults_text(row.get("page_faults"))))
    for error in said.get("errors", []):
        outcome.failure = outcome.failure or error["text"]


def faults_text(faults):
    if not faults:
        return ""
    cpu, gpu = (("not counted" if count is None else count) for count in (faults.get("cpu"), faults.get("gpu")))
    return f"page faults: CPU {cpu}, GPU {gpu}"
