# SPDX-License-Identifier: BSD-3-Clause
"""What fits into 2, 7 and 60 minutes."""
import copy
import dataclasses

from gpu_rows import select_rows
from message_sides import MessageSides

from .messages import MessageSource
from .micro import MicroSource
from .perf import PerfRun, PerfSource
from .programs import MpiSource, StepSource
from .protocols import FORCED

SOURCES = ("messages", "protocol", "micro", "steps", "mpi", "perf")

# Title of a group: filter of Google Benchmark, number of benchmarks.
GROUPS = {
    "hops of messages": ("^message_and_answer/(cell/8|slot/(128|8192)|ring/(128|8192))$", 5),
    "three ways to copy": ("^copy/", 117),
    "host copies": ("^(memcpy|process_vm_readv)/", 36),
    "operations of the driver": ("^(driver/|operation/)", 52),
    "registration and mapping": ("^(cuMemHostRegister|cuIpcOpenMemHandle|registration_table|kind_of_pointer)", 20),
    "packing": ("^(pack|unpack)/", 36),
}

SHORT_ROWS = "host,dd,dd-unmapped,dh,hd,managed-gpu-stays,one-gpu"
PROTOCOL_ROWS = "host,dh,hd,dd"


@dataclasses.dataclass(frozen=True)
class Budget:
    minutes: float
    launches: int        # of the rows of messages
    rows: str            # of gpu_rows; empty: the standard ones
    sizes: str
    seconds: float       # for each cell of a launch
    protocol_sizes: str
    micro: tuple         # names of GROUPS
    micro_seconds: float
    steps: str           # cells of program_steps
    mpi_sizes: str
    perf: tuple          # names of PERF_RUNS
    perf_sizes: str
    other_launches: int  # of everything but the rows of messages


SHORT_STEPS = "wait-context-4K,wait-stream-4K,kernel-5-overlap,allreduce-4K-context"
STEPS = SHORT_STEPS + ",wait-stream-64K,wait-stream-1M,isend-4x4K,rows-4-context,pass-2M"
SIZES = "8,1K,8K,64K,512K,4M,64M"
DENSE_SIZES = "8,64,512,1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M,4M,16M,64M"

ALL_PLACEMENTS = "--situations=MH-MH,MD-MH,MH-MD,MD-MD"
PERF_RUNS = {
    "latency and bandwidth": PerfRun("gpushm-perf", ("--tests=latency,bw,bibw",), 12),
    "unified memory": PerfRun("gpushm-perf", ("--tests=latency,bw,bibw", ALL_PLACEMENTS), 12),
    "broadcast of unified memory": PerfRun("gpushm-perf-mpi", ("--tests=bcast", ALL_PLACEMENTS), 4),
    "copies by hand": PerfRun("gpushm-perf-mpi", ("--tests=latency,bw", "--situations=normal,staged,staged-pipelined"),
                              20, peer=False),
    "situations": PerfRun("gpushm-perf", ("--tests=latency", "--situations=one-gpu,unmapped,busy,late,cold,rotating"), 21),
    "kinds of memory": PerfRun("gpushm-perf", ("--tests=latency,bw", "--from=pinned,pool,vmm,managed", "--to=device"), 8),
    "message rate": PerfRun("gpushm-perf-mpi", ("--tests=mbw_mr",), 4),
    "collectives": PerfRun("gpushm-perf-mpi", (
        "--tests=bcast,reduce,allreduce,reduce_scatter,gather,scatter,allgather,alltoall", "--from=device",
        "--to=device"), 8),
}

BUDGETS = {
    2: Budget(2, 2, SHORT_ROWS, "8,8K,64K,512K,4M", 0.02, "8,16K,64K", ("hops of messages",), 0.02,
              SHORT_STEPS, "8,65536,1048576", ("latency and bandwidth",), "8,64k,4m", 1),
    7: Budget(7, 3, "", SIZES, 0.05, "8,4K,16K,64K,512K", ("hops of messages", "three ways to copy"), 0.02,
              STEPS, "8,65536,1048576,16777216",
              ("unified memory", "broadcast of unified memory", "copies by hand", "situations"), "8,8k,64k,4m", 1),
    60: Budget(60, 7, "all", DENSE_SIZES, 0.05, "8,512,2K,4K,8K,16K,32K,64K,128K,512K,4M", tuple(GROUPS), 0.1,
               "", "8,1024,65536,1048576,16777216,67108864", tuple(PERF_RUNS),
               "8,64,512,4k,8k,16k,64k,256k,1m,4m", 3),
}


def with_options(options, **changes):
    changed = copy.copy(options)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def message_source(options, rows, simulated):
    return MessageSource(MessageSides(options, simulated), select_rows(rows))


def protocol_source(options, budget, simulated):
    """The same messages as UCP sends them, all eager, and all by rendezvous."""
    forced = [f"{name}={variable} {options.gpushm}" for name, variable in FORCED.items()]
    changed = with_options(options, also=forced, peer=None, standby=False, tests=["latency"],
                           sizes=budget.protocol_sizes)
    sides = MessageSides(changed, simulated)
    sides.names = ["gpushm", *FORCED]
    return MessageSource(sides, select_rows(PROTOCOL_ROWS.split(",")), "protocol")


class Plan:
    """Tasks, in the order in which they are done: all rows once, then again, so that a run that ends
    early has something of each."""

    def __init__(self, options, budget, simulated):
        self.budget = budget
        self.devices = 0
        wanted = options.only or SOURCES
        self.messages = message_source(options, options.rows, simulated)
        sources = {
            "messages": self.messages,
            "protocol": protocol_source(options, budget, simulated),
            "micro": MicroSource(options, {name: GROUPS[name] for name in budget.micro}, budget.micro_seconds),
            "steps": StepSource(options, options.steps, options.seconds),
            "mpi": MpiSource(options, budget.mpi_sizes, options.seconds),
            "perf": PerfSource(self.messages.sides, {name: PERF_RUNS[name] for name in budget.perf}, options.perf_sizes),
        }
        self.sources = [source for name, source in sources.items() if name in wanted]
        self.has_protocols = "protocol" in wanted
        self.launches = options.launches

    def tasks(self, devices):
        found = []
        for launch in range(max(self.launches, self.budget.other_launches)):
            for source in self.sources:
                rounds = self.launches if source.name == "messages" else self.budget.other_launches
                if launch < rounds:
                    found += source.tasks(launch, devices)
            if launch == 0 and self.has_protocols:
                found += self.messages.protocol_tasks(devices)
        return found

    def refused(self):
        return {what: why for source in self.sources for what, why in source.refused.items()}
