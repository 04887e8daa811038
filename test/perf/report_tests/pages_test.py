# SPDX-License-Identifier: BSD-3-Clause
"""pages_test.py FOLDER: writes a page with every section and one of every sweep there, from figures that are made up."""
import os
import sys

from example import SIZES, results

from report import page
from report.cells import Cell, Cells
from report.exploration import OWN, SWEEPS, number_of


def add(found, source, row, side, test, size, values, unit="us", note=""):
    found.cells.add(Cell(source, row, f"{row} <&>", side, test, size, unit, values, f"program '{row}' \"{side}\"", note))


def with_everything():
    found = results({("dh", "gpushm", "latency", 8192): 5})
    for size in SIZES:
        for side, time in (("gpushm", 5), ("eager", 4), ("rendezvous", 6)):
            add(found, "protocol", "hd", side, "latency", size, [time, time * 1.01])
        for way in ("any_addresses", "ask_before", "kind_known"):
            add(found, "micro", f"copy/host_to_device/{way}", "micro", "micro", size, [5 + size / 1e4],
                note="1 calls of the driver")
        for side, rate in (("gpushm", 900.0), ("peer", 800.0)):
            add(found, "perf", "unified memory: MD-MD", side, "latency", size, [9.5], note="page faults: CPU 4, GPU not counted")
            add(found, "perf", "unified memory: MD-MD", side, "bw", size, [rate], "MB/s")
        for side in ("gpushm", "staged", "staged-pipelined"):
            add(found, "perf", "copies by hand: device to host", side, "latency", size, [9.5])
    add(found, "micro", "driver/cuEventRecord", "micro", "micro", None, [0.7])
    for side in ("gpushm", "staged", "none"):
        add(found, "steps", "wait-stream-4K", side, "step", 4096, [40, 41])
    for side in ("gpushm", "by host memory", "NCCL"):
        add(found, "mpi", "allreduce", side, "collective", 8, [13.0])
    found.protocols = [{"row": "hd", "operation": "tagged message by ucp_tag_send* from host memory", "ranges": [
        {"first": 0, "last": 104, "what": "eager short", "by": "gpushm/gpushm"},
        {"first": 105, "last": None, "what": "(?) rendezvous zero-copy read from remote", "by": "gpushm/gpushm"}]}]
    found.node["links"] = "GPU0 X NV18 <>"
    found.node["drawing"] = ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9">'
                             '<rect id="a" width="9" height="9"/></svg>')
    found.versions = {"gpushm": "1.16.0", "peer": "1.22.0"}
    found.errors = [{"task": "a <b>", "family": "a", "text": "failed & done"}]
    found.leave_out("c", "no \"d\"")
    return found


def with_sweeps():
    found = results()
    found.cells = Cells()
    for name, sweep in SWEEPS.items():
        for side in [OWN] + sweep.values.split(","):
            for size in (8, 4096, 1 << 20):
                for test in ("latency", "window"):
                    add(found, name, "dd", side, test, size, [3 if side == OWN else 2, 4 if side == OWN else 2.5])
    return found


assert [number_of(value) for value in ("64k", "1m", "16", "500us", "10ms")] == [65536, 1 << 20, 16, 500, 10000]
for name, make, content in (("everything", page.report_page, with_everything()),
                            ("sweeps", page.exploration_page, with_sweeps())):
    with open(os.path.join(sys.argv[1], name + ".html"), "w", encoding="utf-8") as file:
        file.write(make(content))
