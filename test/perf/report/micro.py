# SPDX-License-Identifier: BSD-3-Clause
"""What messages are made of: micro_benchmarks, by the JSON of Google Benchmark."""
import json
import os
import subprocess

from .cells import Cell
from .programs import has_program
from .tasks import Outcome, Task, command_text, finished

TO_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
LIMIT = 300  # seconds a launch


class MicroSource:
    """`groups`: {title: filter of Google Benchmark}; `seconds` for each benchmark."""
    name = "micro"

    def __init__(self, options, groups, seconds):
        self.options = options
        self.groups = groups
        self.seconds = seconds
        self.refused = {}
        built = os.path.join("micro", "micro_benchmarks")  # in the build folder
        self.program = built if os.path.exists(os.path.join(options.programs, built)) else "micro_benchmarks"

    def tasks(self, launch, devices):
        if not has_program(self, self.program):
            return
        for title, (pattern, count) in self.groups.items():
            yield Task(f"micro/{title}", launch, title, 1 + 2.5 * count * self.seconds,
                       lambda limit, pattern=pattern: self.measure(pattern, limit))

    def measure(self, pattern, limit):
        command = [os.path.join(self.options.programs, self.program),
                   f"--benchmark_filter={pattern}", f"--benchmark_min_time={self.seconds}",
                   "--benchmark_format=json"]
        done, failure = finished(command, {}, min(limit, LIMIT), subprocess.PIPE)
        return read_benchmarks(done, command_text(command, {})) if done else Outcome(failure=failure)


def read_benchmarks(done, command):
    try:
        said = json.loads(done.stdout)["benchmarks"]
    except (ValueError, KeyError):
        problems = done.stderr.strip().splitlines()
        return Outcome(failure=f"status {done.returncode} {problems[-1] if problems else 'no JSON'}")
    outcome = Outcome()
    for one in said:
        if one.get("error_occurred"):
            # "Too long for this operation" is no failure: there is no such cell.
            if "too long" not in one["error_message"]:
                outcome.failure = f"{one['name']}: {one['error_message']}"
        elif one.get("run_type", "iteration") == "iteration":
            outcome.cells.append(cell_of(one, command))
    return outcome


def cell_of(one, command):
    """A benchmark's name ends with its size, if it has one: operation/d2h/4096/real_time."""
    words = [word for word in one["name"].split("/") if word not in ("real_time", "manual_time")]
    size = words[-1].rpartition(":")[2]
    has_size = size.isdigit()
    row = "/".join(words[:-1] if has_size else words)
    calls = one.get("driver_calls")
    return Cell("micro", row, row, "micro", "micro", int(size) if has_size else None, "us",
                [one["real_time"] * TO_US[one["time_unit"]]], command,
                f"{calls:g} calls of the driver" if calls is not None else "")
