#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints what the steps and passes of a program take that computes on its GPU and exchanges halos by
MPI: by device pointers with gpushm and with another UCX, by copies of its own through page-locked
memory, and without communication.

  program_steps.py --gpushm PREFIX/bin/gpushm-run --json steps.json
  program_steps.py --cells wait,rows --launches 5
      --peer 'LD_LIBRARY_PATH=DIR/lib mpirun -n 2 -x LD_LIBRARY_PATH --mca pml ucx
              --mca pml_ucx_tls any --mca pml_ucx_devices any'

README in this folder says what the cells and columns mean.
"""
import argparse
import os
import statistics
import sys
import time

sys.dont_write_bytecode = True  # the tree may not be ours to write to

from launches import Launch, add_common_options, alternate, look_at_driver, write_json
from measured_row import Cell, number_text, spread_text, table_lines
from sides import Side

LAUNCH_LIMIT = 120  # seconds
PARTS = ("launch", "wait", "exchange", "copies", "reduce")
PASS_PARTS = ("allocate", "first", "second", "free")


class StepCell(Cell):
    """One cell: besides the figure of each launch, what the launches say of its parts."""

    def __init__(self, said):
        super().__init__(said["test"], said["size"])
        self.name = said["cell"]
        self.said = {}  # side: what its launches printed

    def add(self, side, said):
        self.values.setdefault(side, []).append(said["us"])
        self.said.setdefault(side, []).append(said)

    def part(self, side, name):
        """Median over the launches; None where the side has no such part."""
        found = [said.get("parts", {}).get(name, said.get(name)) for said in self.said.get(side, [])]
        found = [value for value in found if value is not None]
        return statistics.median(found) if found else None

    def slow_steps(self, side):
        """(in percent of the steps, us beyond a step of the usual length, causes) of all launches."""
        slow = [said["slow"] for said in self.said.get(side, []) if "slow" in said]
        steps = sum(one["of"] for one in slow)
        causes = {}
        for one in slow:
            for part, count in one["by"].items():
                causes[part] = causes.get(part, 0) + count
        number = sum(causes.values())
        return 100 * number / steps if steps else 0, sum(one["us"] for one in slow), causes

    def as_json(self):
        return dict(super().as_json(), cell=self.name, launches=self.said)


def part_text(value):
    return "-" if value is None else number_text(value)


class Table:
    def __init__(self, options):
        self.options = options
        self.deadline = time.monotonic() + options.budget
        mpirun = options.mpirun
        self.modes = {"gpushm": "device", "staged": "staged", "none": "none"}
        texts = [f"gpushm={options.gpushm} {mpirun}", f"staged={mpirun}", f"none={mpirun}"]
        if options.peer:
            texts.append(f"peer={options.peer}")
        texts += [f"{text} {mpirun}" for text in options.also]
        self.sides = {side.name: side for side in map(Side, texts)}
        self.cells, self.failures, self.facts, self.notes = {}, {}, {}, []

    def launch(self, name):
        if name in self.failures:
            return
        side, options = self.sides[name], self.options
        command = side.command + [os.path.join(options.programs, "program_steps"),
                                  f"--mode={self.modes.get(name, 'device')}",
                                  f"--seconds={options.seconds}", f"--passes={options.passes}",
                                  "--devices=" + ",".join(map(str, options.devices)),
                                  f"--cells={options.cells}"]
        said = Launch(command, side.environment,
                      max(10, min(LAUNCH_LIMIT, self.deadline - time.monotonic())))
        for line in said.cells:
            self.cells.setdefault(line["cell"], StepCell(line)).add(name, line)
        if said.failure:
            self.failures[name] = said.failure
        if "mpi" in said.facts:
            self.facts[name] = {"mpi": said.facts["mpi"]}
        self.notes += [note for note in said.notes if note not in self.notes]

    def names(self):
        """Of the sides, gpushm's first."""
        return ["gpushm"] + [name for name in self.sides if name != "gpushm"]

    def print_lines(self, caption, header, rows):
        print(("### " if self.options.markdown else "== ") + caption + "\n")
        for line in table_lines(header, rows, self.options.markdown):
            print(line)
        print(flush=True)

    def print_totals(self):
        others = [name for name in self.names() if name not in ("gpushm", "none")]
        for test, caption in (("step", "Steps, us a step"), ("pass", "Passes, us a step")):
            rows = [[cell.name] + [spread_text(cell.figure(name)) for name in self.names()] +
                    [cell.ratio_text("gpushm", name) for name in others]
                    for cell in self.cells.values() if cell.test == test]
            if rows:
                self.print_lines(caption, ["cell"] + self.names() + [f"gpushm/{name}" for name in others], rows)

    def print_parts(self):
        for test, parts in (("step", PARTS), ("pass", PASS_PARTS)):
            for name in self.names():
                rows = [[cell.name] + [part_text(cell.part(name, part)) for part in parts]
                        for cell in self.cells.values() if cell.test == test and name in cell.said]
                if rows:
                    self.print_lines(f"Parts, {name}, us", ["cell"] + list(parts), rows)

    def print_slow(self):
        rows = []
        for cell in self.cells.values():
            for name in self.names():
                percent, beyond, causes = cell.slow_steps(name)
                if causes:
                    rows.append([cell.name, name, f"{percent:.2f}", number_text(beyond),
                                 " ".join(f"{part}:{count}" for part, count in causes.items())])
        if rows:
            self.print_lines("Steps of more than 5 times the median", ["cell", "side", "%", "us beyond", "by"], rows)

    def print_calls(self):
        rows = [[cell.name] + [part_text(cell.part(name, "calls")) for name in self.names()]
                for cell in self.cells.values() if cell.part("gpushm", "calls") is not None]
        if rows:
            self.print_lines("Calls of the driver a step, the program's own included",
                             ["cell"] + self.names(), rows)

    def print_verdict(self):
        for name in self.names():
            if name in ("gpushm", "none"):
                continue
            marks = [cell.slower("gpushm", name) for cell in self.cells.values()]
            print(f"{marks.count('!')} of {len(marks)} cells slower than {name} beyond the spread, "
                  f"{marks.count('~')} within it")

    def run(self):
        facts = look_at_driver(self.options.programs)
        rounds = alternate(list(self.sides), self.options.launches, self.options.budget, self.launch)
        print(f"{rounds} launch{'es' if rounds != 1 else ''} of each side\n")
        self.print_totals()
        if self.options.parts:
            self.print_parts()
        self.print_slow()
        self.print_calls()
        self.print_verdict()
        for line in self.notes + [f"{name} FAILED: {why}" for name, why in self.failures.items()]:
            print(line)
        if self.options.json:
            write_json(self.options.json, {
                "facts": dict(self.facts, gpu=facts), "options": vars(self.options), "notes": self.notes,
                "launches": rounds, "failures": self.failures,
                "cells": [cell.as_json() for cell in self.cells.values()]})
        return 1 if self.failures or not self.cells else 0


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, seconds=0.1, cpus=2)
    add = parser.add_argument
    add("--mpirun", default="mpirun -n 2", metavar="COMMAND",
        help="how two ranks are started (default: %(default)s)")
    add("--peer", metavar="'VAR=VALUE ... COMMAND'",
        help="another UCX that takes device pointers: how two ranks on it are started")
    add("--cells", default="", metavar="NAMES", help="those whose names begin so (default: all)")
    add("--passes", type=int, default=8, help="of each cell that is a pass (default: %(default)s)")
    add("--parts", action="store_true", help="the parts of each cell, too")
    options = parser.parse_args()
    names = ["gpushm", "staged", "none", "peer"] + [text.partition("=")[0] for text in options.also]
    if len(set(names)) < len(names):
        parser.error("--also: each name once, and none of gpushm, staged, none, peer")
    return options


if __name__ == "__main__":
    sys.exit(Table(parse_options()).run())
