#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares what ucx_perftest measures on several sides (transports, UCX versions), in one run.

Launches of the sides alternate, so that a busy moment of the machine hits all of them; each figure
is the median over the launches with the smallest and the largest. Latencies are the median one way
in us, rates the whole test's in MB/s.

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
import sys

sys.dont_write_bytecode = True  # the tree may not be ours to write to

from perftest import Perftest
from sides import Side, parse_cpus, parse_size, summary


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", action="append", required=True,
                        help="NAME='VAR=VALUE ... COMMAND'")
    parser.add_argument("--tests", default="tag_lat", help="of ucx_perftest, comma separated")
    parser.add_argument("--sizes", default="8,1k,4k,64k,1M,4M")
    parser.add_argument("--kinds", default="host", help="-m of ucx_perftest, separated by /")
    parser.add_argument("--launches", type=int, default=10)
    parser.add_argument("--cpus", type=parse_cpus,
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
    perftest = Perftest(options.cpus, options.server_env, options.client_env, options.timeout,
                        options.port)
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
                measured, why = perftest.measure(side, test, size, kinds)
                if measured is None:
                    reasons[side.name] = why
                else:
                    figures[side.name].append(measured["latency_us" if test.endswith("_lat")
                                                       else "megabytes_per_second"])
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
