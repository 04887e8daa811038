# SPDX-License-Identifier: BSD-3-Clause
"""What UCP says that it chooses (UCX_PROTO_INFO=y, from UCX 1.15 on), and whether that was the best."""
import math
import os
import re
import tempfile

from sides import UNITS

from .cells import is_apart, ratio
from .tasks import Outcome, launched

FORCED = {"eager": "UCX_RNDV_THRESH=inf", "rendezvous": "UCX_RNDV_THRESH=0"}

LIMIT = 30  # seconds

CELL = re.compile(r"\|\s+(.*?)\s*(?=\|)")
RANGE = re.compile(r"^(\d+[KMG]?)(?:\.\.(\d+[KMG]?|inf))?$")


def parse_bytes(text):
    if text == "inf":
        return None
    unit = UNITS.get(text[-1].lower())
    return int(text[:-1]) * unit if unit else int(text)


def parse_protocols(text):
    """The tables of UCX: a list of {"operation":, "ranges": [{"first":, "last":, "what":, "by":}]}.
    `last` None: without end."""
    tables, words = [], []
    for line in text.splitlines():
        columns = CELL.findall(line)
        if len(columns) == 1:
            words = [columns[0]]
        elif len(columns) == 2:  # UCX 1.15 to 1.17: a heading of the configuration and the operation
            tables.append({"operation": columns[1], "ranges": []})
        elif len(columns) == 3 and columns[0] == "Range":
            tables.append({"operation": words[0] if words else "", "ranges": []})
        elif len(columns) == 3 and tables:
            found = RANGE.match(columns[0])
            if found:
                first = parse_bytes(found[1])
                last = parse_bytes(found[2]) if found[2] else first
                tables[-1]["ranges"].append({"first": first, "last": last, "what": columns[1], "by": columns[2]})
    return [table for table in tables if table["ranges"]]


def read_protocols(sides, row):
    with tempfile.TemporaryDirectory() as folder:
        command = sides.command("gpushm", row, LIMIT) + [
            "--sizes=8,4m", "--tests=latency", "--seconds=0.001", "--warm-up=0.001"]
        environment = dict(sides.environment("gpushm", row), UCX_PROTO_INFO="y",
                           UCX_LOG_FILE=os.path.join(folder, "ucx.%p"))
        launch = launched(command, environment, LIMIT)
        found = {}
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                for table in parse_protocols(file.read()):
                    found.setdefault(table["operation"], table["ranges"])
    return Outcome(failure=launch.failure, protocols=[
        {"row": row.name, "operation": operation, "ranges": ranges} for operation, ranges in found.items()])


def sending(protocols, row, source):
    """UCP's ranges for a message of this row. `source`: its kind of memory."""
    kind = "host" if source.startswith("host") else "cuda"
    for one in protocols:
        if one["row"] == row and one["operation"].startswith("tagged message by ucp_tag_send* from " + kind):
            return one["ranges"]
    return []


def chosen(protocols, row, source, size):
    """What UCP says that it does with a message of this size, or None."""
    for part in sending(protocols, row, source):
        if part["first"] <= size <= (math.inf if part["last"] is None else part["last"]):
            return part["what"].removeprefix("(?) ")
    return None


def takes_rendezvous_from(protocols, row, source):
    """The size from which UCP says that it takes a rendezvous, or None."""
    return next((part["first"] for part in sending(protocols, row, source) if "rendezvous" in part["what"]), None)


def worse_choices(cells):
    """(what UCP chose, the quicker protocol) of cells in which one of the forced protocols is quicker
    beyond the spread."""
    for cell in cells.select(source="protocol", side="gpushm"):
        others = [other for other in (cells.beside(cell, side) for side in FORCED) if other]
        best = min(others, key=lambda other: other.median, default=None)
        if best and best.median < cell.median and is_apart(cell, best) and ratio(cell, best) > 1.05:
            yield cell, best
