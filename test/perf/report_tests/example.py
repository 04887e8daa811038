# SPDX-License-Identifier: BSD-3-Clause
"""Results that follow from known alpha and beta, and what tests share."""
import os
import random
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from report.cells import Cell
from report.results import Results

SIZES = [8, 1024, 8192, 65536, 524288, 4 << 20]

# (row, side): us at once, ns for each byte.
COSTS = {
    ("host", "raw"): (0.02, 0.03), ("host", "gpushm"): (0.3, 0.04), ("host", "peer"): (0.4, 0.1),
    ("dd", "raw"): (6.5, 0.003), ("dd", "standby"): (4.0, 0.008), ("dd", "gpushm"): (4.6, 0.0031),
    ("dd", "peer"): (7.6, 0.003),
    ("dh", "raw"): (6.8, 0.018), ("dh", "standby"): (3.2, 0.025), ("dh", "gpushm"): (3.9, 0.019), ("dh", "peer"): (10, 0.07),
}
TITLES = {"host": "host to host", "dd": "device to device, mapped", "dh": "device to host"}

NODE = {
    "host": "example", "date": "2026-03-01T10:00:00+00:00", "cpu": "A processor", "cpus": 32, "memory_bytes": 1 << 38,
    "system": "Linux 6.1", "gpus": [
        {"name": "NVIDIA H200", "uuid": "GPU-0", "pci_id": "0000:1B:00.0", "memory_bytes": 150 << 30, "numa_node": 0,
         "compute_mode": "default", "reaches": [0, 1]}] * 2,
    "driver": "580.95", "cuda_driver": "CUDA driver 13.0, 2 devices", "simulated": False, "compute_capability": "9.0",
    "devices": 2, "gpushm": "0.1.0", "commit": None, "ucx": "1.16.0", "mpi": "4.1.6", "drawing": None, "links": None,
    "variables": {"UCX_LOG_LEVEL": "warn"},
}


def results(factor=None, launches=3, path="example.json"):
    """`factor`: {(row, side, test, size): times longer}."""
    chance = random.Random(1)
    found = Results(path, {}, dict(NODE))
    for (row, side), (alpha, beta) in COSTS.items():
        for test, part in (("latency", 1.0), ("window", 0.4)):
            for size in SIZES:
                time = part * (alpha + beta * 1e-3 * size) * (factor or {}).get((row, side, test, size), 1)
                found.cells.add(Cell("messages", row, TITLES[row], side, test, size, "us",
                                     [time * chance.uniform(0.99, 1.01) for _ in range(launches)],
                                     f"VARIABLE=value program --row={row} --of='{side} & more' <input>"))
    found.finished = True
    return found
