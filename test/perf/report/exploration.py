# SPDX-License-Identifier: BSD-3-Clause
"""Sweeps over settings that exist: which value is best on this node, without building anything again."""
import dataclasses
import re

from gpu_rows import select_rows
from message_sides import MessageSides
from sides import size_text

from . import plots
from .cells import is_apart, ratio
from .messages import MessageSource
from .plan import with_options
from .programs import MpiSource, can_start_ranks, has_mpi4py
from .report_tables import Table, problems_table, spread
from .tasks import Task
from .text import node_lines, reservations, table_text

DESCRIPTION = """Measures messages with each value of a setting, beside the default, and draws what comes of it."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    title: str
    variable: str
    values: str
    rows: str
    sizes: str
    more: str = ""          # variables of all sides, the default's as well
    by_value: bool = True   # the setting is the axis, and sizes are the lines; or the other way round


SWEEPS = {
    "chunk": Sweep("Pieces of large messages of GPU memory (Ji et al., figure 6)", "UCX_GPUSHM_GPU_CHUNK",
                   "64k,128k,256k,512k,1m,2m", "dd-unmapped", "256K,1M,4M"),
    "host-chunk": Sweep("Pieces of large messages between hosts", "UCX_GPUSHM_HOST_CHUNK", "16k,32k,64k,128k,256k,512k",
                        "host", "256K,1M,4M", "UCX_GPUSHM_CMA=n"),
    "ring": Sweep("Size of the staging ring", "UCX_GPUSHM_RING_SIZE", "1m,2m,4m,8m,16m,32m", "dd-unmapped", "1M,4M,16M",
                  "UCX_GPUSHM_GPU_CHUNK=256k"),
    "pending": Sweep("Copies under way: the ring in pieces of 256 KiB", "UCX_GPUSHM_RING_SIZE", "1m,2m,3m,4m,6m",
                     "dd-unmapped", "4M", "UCX_GPUSHM_GPU_CHUNK=256k"),
    "eager": Sweep("From which size UCP takes a rendezvous (Ji et al., figure 7)", "UCX_RNDV_THRESH",
                   "0,1k,4k,16k,32k,64k,inf", "host,dd,dh,hd", "8,512,2K,8K,16K,32K,64K,128K", by_value=False),
    "standby": Sweep("When the standby kernel copies", "UCX_GPUSHM_STANDBY", "auto,yes,no", "dd,dh,hd,one-gpu",
                     "8,1K,8K,64K,256K,512K,1M,4M", by_value=False),
    "standby-life": Sweep("How long the standby kernel stays", "UCX_GPUSHM_STANDBY_LIFE", "100us,200us,500us,1ms,2ms,10ms",
                          "dd,dh", "8,8K,64K"),
    "cells": Sweep("Messages that can wait for a process", "UCX_GPUSHM_MAILBOX_CELLS", "16,64,256,1024", "host", "8,1K,8K"),
}
SWEEPS["ranks"] = Sweep("Ranks on one GPU", "ranks", "2,4,8", "", "8,64K,1M")
OWN = "default"  # the side without the setting
COUNT = r"(\s-np?\s+)\d+"  # of ranks, in a command of mpirun


class SweepSource(MessageSource):
    """`name` is that of the sweep, which is also where its cells are found."""

    def __init__(self, name, options, sizes, simulated):
        sweep = SWEEPS[name]
        base = f"{sweep.more} {options.gpushm}".strip()
        changed = with_options(options, gpushm=base, peer=None, standby=False, sizes=sizes or sweep.sizes, also=[
            f"{value}={sweep.variable}={value} {base}" for value in sweep.values.split(",")])
        sides = MessageSides(changed, simulated)
        sides.started = {(OWN if side == "gpushm" else side): how for side, how in sides.started.items()}
        sides.names = list(sides.started)
        super().__init__(sides, select_rows(sweep.rows.split(",")), name)


class RanksSource(MpiSource):
    """Operations of MPI with more and more ranks, all on the first GPU."""

    def __init__(self, options):
        super().__init__(options, "8,65536,1048576", options.seconds)

    def tasks(self, launch, devices):
        if not re.search(COUNT, self.options.mpirun):
            self.refused[SWEEPS["ranks"].title] = "--mpirun has no -n"
        elif can_start_ranks(self, devices) and has_mpi4py(self):
            for ranks in SWEEPS["ranks"].values.split(","):
                yield Task(f"ranks/{ranks}", launch, f"{ranks} ranks on a GPU", 20 + 100 * self.seconds,
                           lambda limit, ranks=ranks: self.measure_ranks(ranks, limit))

    def measure_ranks(self, ranks, limit):
        mpirun = re.sub(COUNT, rf"\g<1>{ranks}", self.options.mpirun, count=1)
        outcome = self.measure(limit, mpirun, "CUDA_VISIBLE_DEVICES=0 ", "--no-nccl")
        outcome.cells = [dataclasses.replace(cell, source="ranks", side=ranks) for cell in outcome.cells
                         if cell.test == "collective" and cell.side == "gpushm"]
        return outcome


class Exploration:
    def __init__(self, options, sizes, simulated):
        self.launches = options.launches
        self.sources = [RanksSource(options) if name == "ranks" else SweepSource(name, options, sizes, simulated)
                        for name in options.sweeps]

    def tasks(self, devices):
        return [task for launch in range(self.launches) for source in self.sources for task in source.tasks(launch, devices)]

    def refused(self):
        return {what: why for source in self.sources for what, why in source.refused.items()}


def best(results, name, row, test, size):
    """(the default's cell, the quickest cell) of all values."""
    found = results.cells.select(source=name, row=row, test=test, size=size)
    own = [cell for cell in found if cell.side == OWN]
    return (own[0] if own else None), min(found, key=lambda cell: cell.median, default=None)


def tables(results):
    for name in results.cells.names("source"):
        sweep = SWEEPS[name]
        for row in results.cells.names("row", source=name):
            for test in results.cells.names("test", source=name, row=row):
                yield sweep_table(results, name, sweep, row, test)


def sweep_table(results, name, sweep, row, test):
    values = ([] if name == "ranks" else [OWN]) + sweep.values.split(",")
    rows = []
    for size in sorted({cell.size for cell in results.cells.select(source=name, row=row, test=test)}):
        own, quickest = best(results, name, row, test, size)
        at = [results.cells.get(name, row, value, test, size) for value in values]
        better = own and quickest is not own and is_apart(own, quickest)
        rows.append([size_text(size)] + [spread(cell) for cell in at] +
                    [f"{quickest.side} ({ratio(quickest, own):.2f})" if better else "-"])
    title = results.cells.select(source=name, row=row)[0].title
    return Table(f"{sweep.variable}, {title}: {test}, us", ["size"] + values + ["better beyond the spread"], rows)


UNITS = {"us": 1, "ms": 1000, "k": 1 << 10, "m": 1 << 20}


def number_of(value):
    """Of a size or a time, for an axis."""
    unit = next((unit for unit in UNITS if value.endswith(unit)), "")
    return int(value.removesuffix(unit)) * UNITS.get(unit, 1)


def figures(results, name):
    sweep, cells = SWEEPS[name], results.cells
    for row in cells.names("row", source=name):
        title = cells.select(source=name, row=row)[0].title
        for test in cells.names("test", source=name, row=row):
            named = {}
            for cell in cells.select(source=name, row=row, test=test):
                convert = (lambda time, size=cell.size: size / time / 1e3) if test == "window" else (lambda time: time)
                point = (convert(cell.median), *sorted(map(convert, cell.spread)))
                if not sweep.by_value:
                    named.setdefault(cell.side, []).append((cell.size, *point))
                elif cell.side != OWN:
                    named.setdefault(size_text(cell.size), []).append((number_of(cell.side), *point))
            figure = plots.curves(named, "GB/s" if test == "window" else "us one way", rate=test == "window")
            if sweep.by_value:
                figure.axes[0].set_xlabel(sweep.variable.removeprefix("UCX_GPUSHM_"))
            yield figure, f"{title}, {'many in flight' if test == 'window' else test}"


def fill_page(page, results):
    for name in results.cells.names("source"):
        page.section(name, SWEEPS[name].title)
        page.text(f"{SWEEPS[name].variable}" + (f", with {SWEEPS[name].more}" if SWEEPS[name].more else ""), "soft")
        page.figures(figures(results, name))
        page.hidden("Figures", [table for table in tables(results) if table.caption.startswith(SWEEPS[name].variable)])
    table = problems_table(results)
    page.section("left-out", table.caption)
    page.table(dataclasses.replace(table, caption=""))


def as_text(results):
    lines = [*node_lines(results.node), *reservations(results), ""]
    return "\n".join(lines + [table_text(table) for table in tables(results)])
