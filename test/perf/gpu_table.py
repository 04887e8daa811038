#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints the speed of messages between processes with GPU memory: the raw operation, gpushm, and
another UCX that has CUDA (the peer), in one run, row by row as they are measured.

  gpu_table.py --peer /path/libucx/bin/ucx_perftest
  gpu_table.py --gpushm 'UCX_TLS=gpushm /prefix/bin/gpushm-run' --programs BUILD/test/perf \\
               --rows dd,one-gpu --sizes 8,4M --launches 5 --json table.json

README in this folder says what the columns mean.
"""
import argparse
import json
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # the tree may not be ours to write to

from gpu_rows import ROWS, select_rows
from measured_row import TESTS, MeasuredRow
from perftest import Perftest
from sides import Side, parse_cpus, parse_size

LAUNCH_LIMIT = 40  # seconds


def default_cpus():
    """Apart from the first, which serves interrupts, and, as CPUs are mostly numbered, not on one
    core."""
    usable = sorted(os.sched_getaffinity(0))
    return [usable[2], usable[4]] if len(usable) > 4 else usable[:2]


def default_programs():
    """Where the programs were built: below the current folder, or in this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    built = os.path.join(os.getcwd(), "test", "perf")
    return built if os.path.exists(os.path.join(built, "raw_copies")) else here


def library_path(peer):
    """LD_LIBRARY_PATH for the libraries beside .../bin/ucx_perftest."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(peer))), "lib")
    if not os.path.exists(os.path.join(folder, "libucp.so.0")):
        sys.exit(f"gpu_table.py: --peer {peer}: there is no libucp.so.0 in {folder}")
    return ":".join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")]))


class Launch:
    """What one start of a program of ours printed."""

    def __init__(self, command, environment, limit):
        self.cells, self.facts, self.failure = [], {}, None
        try:
            done = subprocess.run(command, env=dict(os.environ, **environment), text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=limit + 10)
        except (subprocess.TimeoutExpired, OSError) as error:
            self.failure = str(error)
            return
        other = []
        for line in done.stdout.splitlines():
            try:
                said = json.loads(line) if line.startswith("{") else None
            except ValueError:
                said = None
            if said is None:
                other.append(line)
            elif "us" in said:
                self.cells.append(said)
            elif "error" in said:
                self.failure = said["error"]
            else:
                self.facts = said
        if done.returncode != 0 and not self.failure:
            self.failure = f"status {done.returncode} {' '.join(other[-2:])}".strip()


class Table:
    def __init__(self, options):
        self.options = options
        self.deadline = time.monotonic() + options.budget
        self.gpushm = Side(f"gpushm={options.gpushm}")
        self.peer_library_path = library_path(options.peer) if options.peer else None
        self.sides = ["raw", "gpushm"] + (["peer"] if options.peer else [])
        self.perftest = Perftest(options.cpus if len(options.cpus) == 2 else None,
                                 timeout=LAUNCH_LIMIT, port=23600)
        self.facts = {}
        self.rows = []

    def remaining(self):
        return self.deadline - time.monotonic()

    def devices_of(self, row):
        first, second = self.options.devices
        return [first, first] if row.one_device else [first, second]

    def common_arguments(self, row):
        first, second = self.devices_of(row)
        arguments = [f"--devices={first},{second}", f"--sizes={self.options.sizes}",
                     f"--tests={','.join(self.options.tests)}",
                     f"--seconds={self.options.seconds}"]
        if len(self.options.cpus) == 2:
            arguments.append(f"--cpus={self.options.cpus[0]},{self.options.cpus[1]}")
        return arguments

    def environment(self, side, row):
        environment = {}
        if side == "gpushm":
            environment.update(self.gpushm.environment)
        if side == "peer":
            environment["LD_LIBRARY_PATH"] = self.peer_library_path
        if row.unmapped and side != "raw":
            options = {"gpushm": self.options.unmapped_env, "peer": self.options.peer_unmapped_env}
            environment.update([options[side].split("=", 1)])
        return environment

    def launch(self, side, row):
        limit = max(5, min(LAUNCH_LIMIT, self.remaining()))
        program = lambda name: os.path.join(self.options.programs, name)
        if side == "raw":
            command = [program("raw_copies"), f"--operations={row.raw}"]
        else:
            command = self.gpushm.command if side == "gpushm" else []
            command = command + [program("ucp_latency"), f"--from={row.source}",
                                 f"--to={row.destination}", f"--limit={limit:.0f}",
                                 f"--warm-up={self.options.warm_up}"]
        return Launch(command + self.common_arguments(row), self.environment(side, row), limit)

    def look_at_driver(self):
        """Which driver and devices there are, from the quickest launch that tells."""
        command = [os.path.join(self.options.programs, "raw_copies"), "--operations=d2h",
                   "--sizes=8", "--tests=latency", "--seconds=0.001"]
        launch = Launch(command, {}, LAUNCH_LIMIT)
        self.facts["gpu"] = launch.facts
        if launch.failure:
            print(f"No CUDA driver to measure with: {launch.failure}")
        else:
            print(launch.facts["driver"])
        if launch.facts.get("simulated"):
            print("That is the simulated driver: its times say nothing about speed.")
        print(flush=True)

    def has_devices_for(self, row):
        known = self.facts["gpu"].get("devices", 0)
        return row.name == "host" or known > max(self.devices_of(row))

    def measure_row(self, row, share):
        """As many rounds as fit into `share` seconds, one at least."""
        measured = MeasuredRow(row, self.sides)
        end = time.monotonic() + share
        longest = 0
        while measured.launches < self.options.launches:
            start = time.monotonic()
            if measured.launches > 0 and start + longest > end:
                break
            # Not always the same one after the same other.
            order = self.sides if measured.launches % 2 == 0 else self.sides[::-1]
            for side in order:
                if side not in measured.failures:
                    self.add_launch(measured, side, self.launch(side, row))
            measured.launches += 1
            longest = max(longest, time.monotonic() - start)
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
        sides = {"gpushm": Side("gpushm=" + " ".join(
            [self.options.gpushm, self.options.perftest]))}
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
            {**self.environment(side.name, row), "CUDA_VISIBLE_DEVICES": str(device)}
            for device in self.devices_of(row))
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
            with open(self.options.json + ".part", "w") as file:
                json.dump({"facts": self.facts, "options": vars(self.options),
                           "rows": [row.as_json() for row in self.rows]}, file, indent=1)
            os.replace(self.options.json + ".part", self.options.json)

    def run(self, rows):
        self.look_at_driver()
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
        return 1 if any(row.failures for row in self.rows) else 0

    def print_summary(self):
        versions = [f"{side} on UCX {facts['ucx']}" for side, facts in self.facts.items()
                    if "ucx" in facts]
        print("; ".join(versions))
        marks = [cell.slower() for row in self.rows for cell in row.cells.values()]
        if self.options.peer:
            print(f"gpushm slower than the peer: {marks.count('!')} of {len(marks)} cells beyond "
                  f"the spread (marked !), {marks.count('~')} within it (~)")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--peer", metavar="PATH",
        help="ucx_perftest of the UCX with CUDA; its libraries are in ../lib")
    add("--gpushm", default="gpushm-run", metavar="'VAR=VALUE ... COMMAND'",
        help="how gpushm's side is started (default: %(default)s)")
    add("--programs", default=default_programs(), metavar="DIR",
        help="where raw_copies and ucp_latency are (default: %(default)s)")
    add("--rows", type=lambda s: s.split(","), default=[],
        help="of " + ",".join(row.name for row in ROWS) + ", or all (default: the first eight)")
    add("--sizes", default="8,1K,8K,64K,512K,4M,64M")
    add("--tests", type=lambda s: s.split(","), default=list(TESTS), help="latency,window")
    add("--launches", type=int, default=3, help="of each side (default: %(default)s)")
    add("--budget", type=float, default=330,
        help="seconds; there are fewer launches when they do not fit (default: %(default)s)")
    add("--seconds", type=float, default=0.05,
        help="for each cell of a launch (default: %(default)s)")
    add("--warm-up", type=float, default=0.3, help="seconds a launch (default: %(default)s)")
    add("--devices", type=parse_cpus, default=[0, 1],
        help="ordinals of the two GPUs (default: 0,1)")
    add("--cpus", type=parse_cpus, default=default_cpus(),
        help="for the two processes (default: %(default)s)")
    add("--unmapped-env", default="UCX_GPUSHM_PEER_MAPPING=n", metavar="VAR=VALUE",
        help="keeps gpushm from mapping GPU memory (default: %(default)s)")
    add("--peer-unmapped-env", default="UCX_TLS=^cuda_ipc", metavar="VAR=VALUE",
        help="and the peer (default: %(default)s)")
    add("--perftest", metavar="COMMAND",
        help="measure with ucx_perftest too; gpushm's side starts this one, the peer's its own")
    add("--json", metavar="FILE", help="all figures, after each row")
    add("--markdown", action="store_true", help="tables for a web page")
    options = parser.parse_args()
    try:
        return options, select_rows(options.rows)
    except ValueError as error:
        parser.error(str(error))


def main():
    options, rows = parse_options()
    return Table(options).run(rows)


if __name__ == "__main__":
    sys.exit(main())
