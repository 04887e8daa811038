# SPDX-License-Identifier: BSD-3-Clause
"""Launches of the programs in this folder that print a JSON object a line, and what tables of their
figures have in common on the command line."""
import json
import os
import subprocess
import sys
import time

from sides import parse_cpus

LAUNCH_LIMIT = 40  # seconds


def default_cpus(count):
    """Apart from the first, which serves interrupts, and, as CPUs are mostly numbered, not on one
    core."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[2:2 * count + 1:2] if len(usable) > 2 * count else usable[:count]


def default_programs():
    """Where the programs were built: below the current folder, or in this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    built = os.path.join(os.getcwd(), "test", "perf")
    return built if os.path.exists(os.path.join(built, "raw_copies")) else here


class Launch:
    """What one start of a program of ours printed. `run`: like subprocess.run()."""

    def __init__(self, command, environment, limit, run=subprocess.run):
        self.cells, self.facts, self.notes, self.failure = [], {}, [], None
        try:
            done = run(command, env=dict(os.environ, **environment), text=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       timeout=limit + 10)
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
            elif "note" in said:
                self.notes.append(said["note"])
            else:
                self.facts = said
        if done.returncode != 0 and not self.failure:
            self.failure = f"status {done.returncode} {' '.join(other[-2:])}".strip()


def alternate(sides, launches, seconds, launch):
    """Calls launch(side) for all sides again and again, `launches` rounds or as many as fit into
    `seconds`, one at least. The number of rounds."""
    end = time.monotonic() + seconds
    longest = rounds = 0
    while rounds < launches:
        start = time.monotonic()
        if rounds > 0 and start + longest > end:
            break
        # Not always the same one after the same other.
        for side in sides if rounds % 2 == 0 else sides[::-1]:
            launch(side)
        rounds += 1
        longest = max(longest, time.monotonic() - start)
    return rounds


def ask_driver(programs):
    """The quickest launch that tells which driver and devices there are."""
    return Launch([os.path.join(programs, "raw_copies"), "--operations=d2h", "--sizes=8",
                   "--tests=latency", "--seconds=0.001"], {}, LAUNCH_LIMIT)


def look_at_driver(programs):
    """Which driver and devices there are; said, too. Ends the program where there is nothing to launch."""
    program = os.path.join(programs, "raw_copies")
    if not os.path.exists(program):
        sys.exit(f"{os.path.basename(sys.argv[0])}: {program} is not there: run this in the build folder, after "
                 "'make check TESTS=', or name the folder of the programs by --programs")
    launch = ask_driver(programs)
    if launch.failure:
        print(f"No CUDA driver to measure with: {launch.failure}")
    else:
        print(launch.facts["driver"])
    if launch.facts.get("simulated"):
        print("That is the simulated driver: its times say nothing about speed.")
    print(flush=True)
    return launch.facts


def placement_arguments(devices, cpus):
    """Devices and CPUs of the two processes."""
    arguments = ["--devices=" + ",".join(map(str, devices))]
    if len(cpus) >= 2:
        arguments.append("--cpus=" + ",".join(map(str, cpus)))
    return arguments


def print_versions(facts):
    print("; ".join(f"{side} on UCX {said['ucx']}" for side, said in facts.items()
                    if "ucx" in said))


def write_whole(path, text):
    """Who looks meanwhile finds the old file or the new one. OSError where it cannot be written."""
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".part", path)


def write_json(path, content):
    write_whole(path, json.dumps(content, indent=1))


def add_side_options(parser, cpus):
    """What is started, and where."""
    add = parser.add_argument
    add("--gpushm", default="gpushm-run", metavar="'VAR=VALUE ... COMMAND'",
        help="how gpushm's side is started (default: %(default)s)")
    add("--also", action="append", default=[], metavar="NAME='VAR=VALUE ... COMMAND'",
        help="one more side that is started like that")
    add("--programs", default=default_programs(), metavar="DIR",
        help="where the programs were built (default: %(default)s)")
    add("--devices", type=parse_cpus, default=[0, 1],
        help="ordinals of the two GPUs (default: 0,1)")
    add("--cpus", type=parse_cpus, default=default_cpus(cpus),
        help="for the two processes (default: %(default)s)")


def add_common_options(parser, seconds, cpus):
    add_side_options(parser, cpus)
    add = parser.add_argument
    add("--launches", type=int, default=3, help="of each side (default: %(default)s)")
    add("--budget", type=float, default=330,
        help="seconds; there are fewer launches when they do not fit (default: %(default)s)")
    add("--seconds", type=float, default=seconds,
        help="for each cell of a launch (default: %(default)s)")
    add("--json", metavar="FILE", help="all figures, after each row")
    add("--markdown", action="store_true", help="tables for a web page")
