#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares what ucx_perftest measures on several sides (transports, UCX versions), in one run.

Launches of the sides alternate, so that a busy moment of the machine hits all of them; each figure is
the median over the launches with the smallest and the largest. Latencies are the median one way in
us, rates the whole test's in MB/s.

  compare.py --side gpushm='UCX_TLS=gpushm gpushm-run ucx_perftest' \\
             --side ucx='UCX_TLS=posix,cma ucx_perftest' --sizes 8,4096,1M
  compare.py --side gpushm='UCX_TLS=gpushm gpushm-run ucx_perftest' \\
             --side peer='LD_LIBRARY_PATH=/peer/lib /peer/bin/ucx_perftest' \\
             --kinds cuda,cuda/cuda,host --server-env CUDA_VISIBLE_DEVICES=1 \\
             --client-env CUDA_VISIBLE_DEVICES=0
"""
import argparse
import itertools
import json
import os
import shlex
import statistics
import subprocess
import sys
import time

UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_size(text):
    unit = UNITS.get(text[-1].lower())
    return int(text[:-1]) * unit if unit else int(text)


def iterations(test, size, kinds):
    """About a tenth of a second, at 10 GB/s and 1 us a message (10 us with a GPU)."""
    limit = 100000 if test.endswith("_lat") else 500000
    if kinds != "host":
        limit //= 10
    return max(20, min(limit, int(1e9 / max(size, 1))))


class Side:
    """One program with its environment: VAR=VALUE words, then the command."""

    def __init__(self, text):
        self.name, _, command = text.partition("=")
        words = shlex.split(command)
        split = next((i for i, w in enumerate(words) if "=" not in w), len(words))
        self.environment = dict(w.split("=", 1) for w in words[:split])
        self.command = words[split:]
        if not self.command:
            sys.exit(f"compare.py: --side {text}: no command")

    def start(self, cpu, extra, arguments):
        environment = dict(os.environ, **self.environment, **extra)
        pinned = ["taskset", "-c", str(cpu)] if cpu is not None else []
        return subprocess.Popen(pinned + self.command + arguments, env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def listens(port):
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as lines:
            for line in lines:
                columns = line.split()
                if columns[1].endswith(wanted) and columns[3] == "0A":
                    return True
    return False


def wait_for_server(server, port, limit=30):
    end = time.monotonic() + limit
    while time.monotonic() < end and server.poll() is None:
        if listens(port):
            return True
        time.sleep(0.02)
    return False


def measure(side, test, size, kinds, options, port):
    """One launch; (figure, None) or (None, why not)."""
    count = iterations(test, size, kinds)
    arguments = ["-p", str(port), "-t", test, "-s", str(size), "-n", str(count),
                 "-w", str(max(10, count // 10))]
    if kinds != "host":
        arguments += ["-m", kinds]
    cpus = options.cpus or [None, None]
    server = side.start(cpus[0], dict(options.server_env), arguments)
    try:
        if not wait_for_server(server, port):
            server.kill()
            return None, server.communicate()[0].strip().splitlines()[-1:]
        client = side.start(cpus[1], dict(options.client_env), arguments + ["localhost"])
        output = client.communicate(timeout=options.timeout)[0]
    except subprocess.TimeoutExpired:
        client.kill()
        return None, ["timeout"]
    finally:
        server.kill()
        server.wait()
    for line in output.splitlines():
        if line.startswith("Final:"):
            columns = line.split()
            return float(columns[2] if test.endswith("_lat") else columns[6]), None
    return None, output.strip().splitlines()[-1:]


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "launches": len(values)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", action="append", required=True, help="NAME='VAR=VALUE ... COMMAND'")
    parser.add_argument("--tests", default="tag_lat", help="of ucx_perftest, comma separated")
    parser.add_argument("--sizes", default="8,1k,4k,64k,1M,4M")
    parser.add_argument("--kinds", default="host", help="-m of ucx_perftest, separated by /")
    parser.add_argument("--launches", type=int, default=10)
    parser.add_argument("--cpus", type=lambda s: [int(c) for c in s.split(",")],
                        help="CPU of the server and of the client, e.g. 0,1")
    parser.add_argument("--server-env", action="append", default=[],
                        type=lambda s: tuple(s.split("=", 1)), help="VAR=VALUE for servers only")
    parser.add_argument("--client-env", action="append", default=[],
                        type=lambda s: tuple(s.split("=", 1)), help="VAR=VALUE for clients only")
    parser.add_argument("--timeout", type=float, default=120, help="seconds a launch")
    parser.add_argument("--port", type=int, default=23400)
    parser.add_argument("--json", help="file to write all figures to")
    options = parser.parse_args()

    sides = [Side(text) for text in options.side]
    ports = itertools.cycle(range(options.port, options.port + 200))
    results = []
    print(f"{'test':12} {'kinds':20} {'size':>10}  " +
          "  ".join(f"{side.name:>28}" for side in sides))
    for test, kinds, size in itertools.product(options.tests.split(","), options.kinds.split("/"),
                                               map(parse_size, options.sizes.split(","))):
        figures = {side.name: [] for side in sides}
        reasons = {}
        for _ in range(options.launches):
            for side in sides:
                if side.name in reasons:
                    continue
                value, why = measure(side, test, size, kinds, options, next(ports))
                if value is None:
                    reasons[side.name] = why
                else:
                    figures[side.name].append(value)
        cells = []
        for side in sides:
            values = figures[side.name]
            if not values or side.name in reasons:
                cells.append(f"{'failed':>28}")
                continue
            s = summary(values)
            cells.append(f"{s['median']:10.3f} ({s['min']:.3f}-{s['max']:.3f})".rjust(28))
            results.append(dict(side=side.name, test=test, kinds=kinds, size=size, **s))
        print(f"{test:12} {kinds:20} {size:10}  " + "  ".join(cells), flush=True)
        for name, why in reasons.items():
            print(f"  {name}: {' '.join(why)}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
