# SPDX-License-Identifier: BSD-3-Clause
"""gpushm's table of costs (core/copy/cost_table.hpp): what it says, and what it would say of the machine
that was measured."""
import math
import os
import re

from .errors import ReportError
from .model import crossing

HERE = os.path.dirname(os.path.abspath(__file__))
PLACES = (os.path.join(HERE, "..", "..", "..", "src", "core", "copy", "cost_table.hpp"),
          os.path.join(HERE, "..", "cost_table.hpp"))
TABLE = re.compile(r"constexpr \w+ (k\w+) = \{(.*?)\n\};", re.S)
ENTRY = re.compile(r"/\*(\w+)=\*/([^,}]+)")

# Which row tells a limit of the standby kernel.
ROW_OF = {"between_gpus": "dd", "within_gpu": "one-gpu", "to_host": "dh", "from_host": "hd"}
# core/copy/standby_policy.hpp: the kernel is given no longer copy.
LARGEST = {"between_gpus": 768 << 10, "within_gpu": 1 << 20, "to_host": 768 << 10, "from_host": 768 << 10}
TEST_OF = {"alone": "latency", "in_traffic": "window"}


def header():
    for place in PLACES:
        if os.path.exists(place):
            with open(place, encoding="ascii") as file:
                return file.read()
    raise ReportError(f"cost_table.hpp is not in {os.path.dirname(PLACES[1])}: gpushm-report is not installed whole")


def number(text):
    """Of "96u << 10" or "2e9"."""
    value, _, shift = text.strip().partition("<<")
    return int(value.strip().rstrip("u")) << int(shift) if shift else float(value)


def generation(node):
    """Name of the table of this machine's GPUs; without nvidia-smi, that of the newer ones."""
    capability = node.get("compute_capability")
    return "kBlockCosts" if capability and float(capability) < 9 else "kClusterCosts"


def used(table):
    """{(kind of traffic, name): bytes} of a table of standby limits."""
    found = TABLE.findall(header())
    body = dict(found)[table]
    values = {}
    groups = re.findall(r"\{([^{}]*)\}", body)
    for traffic, group in zip(TEST_OF, groups):
        values.update({(traffic, name): number(text) for name, text in ENTRY.findall(group)})
    return values


def measured(cells):
    """The same, as measured: None where it was not, or where the kernel is never the quicker one."""
    values = {}
    for traffic, test in TEST_OF.items():
        for name, row in ROW_OF.items():
            standby = cells.points("messages", row, "standby", test)
            raw = cells.points("messages", row, "raw", test)
            if standby and raw:
                values[traffic, name] = crossing(standby, raw)
    return values


def transfer_costs(cells):
    """Of kTransferCosts, what a row shows: seconds. The others depend on how UCP compares protocols, which
    'gpushm-report explore --sweeps eager' shows."""
    starts = [cells.points("messages", row, "raw", "latency") for row in ("dh", "hd")]
    starts = [points[0][1] for points in starts if points]
    return {"gpu_copy_start": min(starts) * 1e-6} if starts else {}


def round_down(size):
    """A limit that one would write: a power of two, or half as much more."""
    power = 1 << max(10, int(math.log2(size)))
    return power * 3 // 2 if size >= power * 1.5 else power


def size_source(size):
    """C++ of a size in bytes, KiB or MiB."""
    return f"{size >> 20}u << 20" if size % (1 << 20) == 0 else f"{size >> 10}u << 10"


def replaced(body, values):
    return ENTRY.sub(lambda found: f"/*{found[1]}=*/{values.get(found[1], found[2])}", body)


def standby_body(body, values):
    """The table's text with measured limits; those in traffic are at most those alone."""
    alone = {}
    groups = re.findall(r"\{[^{}]*\}", body)
    for traffic, group in zip(TEST_OF, groups):
        sources = {}
        for name, text in ENTRY.findall(group):
            limit = values.get((traffic, name))
            size = number(text) if limit is None else round_down(min(limit, LARGEST[name]))
            size = min(size, alone.get(name, size))
            alone.setdefault(name, size)
            sources[name] = size_source(size)
        body = body.replace(group, replaced(group, sources), 1)
    return body


def candidate(results):
    """The header with what this machine has shown in its generation's table; the rest as it is."""
    text = header()
    table = generation(results.node)
    values = measured(results.cells)
    costs = {name: f"{value:.2g}" for name, value in transfer_costs(results.cells).items()}
    bodies = dict(TABLE.findall(text))
    text = text.replace(bodies[table], standby_body(bodies[table], values), 1)
    text = text.replace(bodies["kTransferCosts"], replaced(bodies["kTransferCosts"], costs), 1)
    note = " the simulated driver: these figures mean nothing" if results.node["simulated"] else ""
    gpu = results.node["gpus"][0]["name"] if results.node["gpus"] else "no GPU"
    return (f"// {table} and kTransferCosts as measured on {gpu}, {results.node['date'][:10]};{note}\n"
            f"// {len(values)} of 8 limits of the standby kernel, {len(costs)} of 6 costs of transfers; the rest is as it "
            "was.\n" + text)
