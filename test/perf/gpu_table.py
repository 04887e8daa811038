#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints the speed of messages between processes with GPU memory: the raw operation, gpushm, and
another UCX that has CUDA (the peer), in one run, row by row as they are measured.

  gpu_table.py --peer /path/libucx/bin/ucx_perftest
  gpu_table.py --also n='UCX_GPUSHM_STANDBY=n gpushm-run' --standby --rows dd,dh,hd,one-gpu \\
               --sizes 8,1K,8K,64K
  gpu_table.py --gpushm 'UCX_TLS=gpushm /prefix/bin/gpushm-run' --programs BUILD/test/perf \\
               --rows dd,one-gpu --sizes 8,4M --launches 5 --json table.json

README in this folder says what the columns mean.
"""
import argparse
import sys
import time

sys.dont_write_bytecode = True  # the tree may not be ours to write to

from gpu_rows import ROWS, select_rows
from launches import (LAUNCH_LIMIT, Launch, add_common_options, alternate, look_at_driver,
                      print_versions, write_json)
from measured_row import TESTS, MeasuredRow
from message_sides import FIXED_SIDES, MessageSides, add_message_options
from perftest import Perftest
from sides import Side, parse_size


class Table:
    def __init__(self, options):
        self.options = options
        self.deadline = time.monotonic() + options.budget
        self.sides = MessageSides(options)
        self.perftest = Perftest(options.cpus if len(options.cpus) == 2 else None,
                                 timeout=LAUNCH_LIMIT, port=23600)
        self.facts = {}
        self.rows = []

    def remaining(self):
        return self.deadline - time.monotonic()

    def launch(self, side, row):
        limit = max(5, min(LAUNCH_LIMIT, self.remaining()))
        return Launch(self.sides.command(side, row, limit), self.sides.environment(side, row), limit)

    def has_devices_for(self, row):
        known = self.facts["gpu"].get("devices", 0)
        return row.between_hosts or known > max(self.sides.devices_of(row))

    def measure_row(self, row, share):
        """As many rounds as fit into `share` seconds, one at least."""
        sides = self.sides.of_row(row)
        measured = MeasuredRow(row, sides)

        def launch(side):
            if side not in measured.failures:
                self.add_launch(measured, side, self.launch(side, row))

        measured.launches = alternate(sides, self.options.launches, share, launch)
        return measured

    def add_launch(self, measured, side, launch):
        for cell in launch.cells:
            measured.add(side, cell["test"], cell["size"], cell["us"], cell.get("window"))
        if launch.failure:
            measured.failures[side] = launch.failure
        if "ucx" in launch.facts:
            self.facts[side] = {"ucx": launch.facts["ucx"]}

    def perftest_row(self, row):
        """The same by ucx_perftest, which needs two launches for each figure."""
        sides = {side.name: side for side in
                 (Side(f"{text} {self.options.perftest}")
                  for text in [f"gpushm={self.options.gpushm}"] + self.options.also)}
        if self.options.peer:
            sides["peer"] = Side(f"peer={self.options.peer}")
        measured = MeasuredRow(row, list(sides), source="ucx_perftest")
        for _ in range(self.options.launches):
            for test, size in ((t, s) for t in self.options.tests
                               for s in map(parse_size, self.options.sizes.split(","))):
                for name, side in sides.items():
                    if name not in measured.failures and self.remaining() > 0:
                        self.add_perftest(measured, side, test, size)
            measured.launches += 1
            if self.remaining() <= 0:
                break
        return measured

    def add_perftest(self, measured, side, test, size):
        row = measured.row
        client, server = (
            {**self.sides.environment(side.name, row), "CUDA_VISIBLE_DEVICES": str(device)}
            for device in self.sides.devices_of(row))
        self.perftest.client_env, self.perftest.server_env = client, server
        figures, why = self.perftest.measure(
            side, "tag_lat" if test == "latency" else "tag_bw", size, row.perftest)
        if figures is None:
            measured.failures[side.name] = " ".join(why) or "no output"
        elif test == "latency":
            measured.add(side.name, test, size, figures["latency_us"])
        elif figures["messages_per_second"] > 0:
            measured.add(side.name, test, size, 1e6 / figures["messages_per_second"])

    def report(self, measured):
        self.rows.append(measured)
        print(measured.text(self.options.markdown), flush=True)
        if self.options.json:
            write_json(self.options.json, {"facts": self.facts, "options": vars(self.options),
                                           "rows": [row.as_json() for row in self.rows]})

    def run(self, rows):
        self.facts["gpu"] = look_at_driver(self.options.programs)
        self.sides.simulated = self.facts["gpu"].get("simulated", False)
        for i, row in enumerate(rows):
            if not self.has_devices_for(row):
                print(f"{row.title}: left out, the machine has not the devices that --devices "
                      "names\n", flush=True)
                continue
            if self.remaining() <= 0:
                print(f"{row.title}: left out, the time is over (--budget)\n", flush=True)
                continue
            self.report(self.measure_row(row, self.remaining() / (len(rows) - i)))
            if self.options.perftest and row.perftest:
                self.report(self.perftest_row(row))
        self.print_summary()
        return 1 if not self.rows or any(row.failures for row in self.rows) else 0

    def print_summary(self):
        print_versions(self.facts)
        marks = [cell.slower() for row in self.rows for cell in row.cells.values()]
        if self.options.peer:
            print(f"gpushm slower than the peer: {marks.count('!')} of {len(marks)} cells beyond "
                  f"the spread (marked !), {marks.count('~')} within it (~)")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add_message_options(parser)
    add_common_options(parser, seconds=0.05, cpus=2)
    add("--rows", type=lambda s: s.split(","), default=[],
        help="of " + ",".join(row.name for row in ROWS) + ", or all (default: the first nine)")
    add("--sizes", default="8,1K,8K,64K,512K,4M,64M")
    add("--tests", type=lambda s: s.split(","), default=list(TESTS), help="latency,window")
    add("--standby", action="store_true",
        help="what gpushm's standby kernel takes for the bytes alone, in a column beside raw")
    add("--warm-up", type=float, default=0.3, help="seconds a launch (default: %(default)s)")
    add("--perftest", metavar="COMMAND",
        help="measure with ucx_perftest too; gpushm's side starts this one, the peer's its own")
    options = parser.parse_args()
    taken = [text.partition("=")[0] for text in options.also]
    if len(set(taken + FIXED_SIDES)) < len(taken + FIXED_SIDES):
        parser.error(f"--also: names other than {', '.join(FIXED_SIDES)}, each once")
    try:
        return options, select_rows(options.rows)
    except ValueError as error:
        parser.error(str(error))


def main():
    options, rows = parse_options()
    return Table(options).run(rows)


if __name__ == "__main__":
    sys.exit(main())
