#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints what gpushm's standby kernel costs calls of an application to the CUDA driver, after and
beside messages (ucp_beside): with the kernel and without it.

  standby_table.py --gpushm PREFIX/bin/gpushm-run --json standby.json
  standby_table.py --devices 0,0 --sides auto,y,n

README in this folder says what the columns mean.
"""
import argparse
import os
import shlex
import sys
import time

sys.dont_write_bytecode = True  # the tree may not be ours to write to

from launches import (LAUNCH_LIMIT, Launch, add_common_options, alternate, look_at_driver,
                      placement_arguments, print_versions, write_json)
from measured_row import Cell, number_text, spread_text, table_lines
from sides import Side

WHEN = {"idle": "Calls of a program that does not communicate",
        "large": "Calls right after messages of a program that sends only large ones",
        "small": "Calls right after small messages",
        "beside": "Calls while another thread waits for small messages"}


class Table:
    """One figure of the calls: the call, then each side's figure, then how the side with the standby
    kernel compares with the one without."""

    def __init__(self, title, belongs, field, says, ratio=True):
        self.title = title
        self.belongs = belongs  # whether a cell of the program is of this table
        self.field = field
        self.says = says        # what the figure is
        self.ratio = ratio      # whether a ratio of two of them says anything
        self.cells = {}         # by call, in the order of their arrival

    def add(self, side, said):
        if self.belongs(said) and self.field in said:
            cell = self.cells.setdefault(said["call"], Cell(said["test"], said["size"]))
            cell.values.setdefault(side, []).append(said[self.field])

    def lines(self, sides, with_it, without, markdown):
        yield ("### " if markdown else "== ") + f"{self.title}: {self.says}"
        yield ""
        header = ["call"] + sides
        if with_it != without:
            header = header + [f"{with_it}-{without}"]
            header += [f"{with_it}/{without}"] if self.ratio else []
        yield from table_lines(header, [self.columns(call, cell, sides, with_it, without)
                                        for call, cell in self.cells.items()], markdown)
        yield ""

    def columns(self, call, cell, sides, with_it, without):
        texts = [call] + [spread_text(cell.figure(side)) for side in sides]
        if with_it == without:
            return texts
        mine, other = cell.figure(with_it), cell.figure(without)
        if not mine or not other:
            return texts + ["-"] * (2 if self.ratio else 1)
        difference = mine["median"] - other["median"]
        texts.append(f"{'+' if difference >= 0 else ''}{number_text(difference)}"
                     f"{cell.slower(with_it, without):1}")
        return texts + ([cell.ratio_text(with_it, without)] if self.ratio else [])

    def as_json(self, sides):
        return {"title": self.title, "figure": self.says, "cells": [
            {"call": call,
             "us": {side: dict(cell.figure(side), values=cell.values[side])
                    for side in sides if cell.figure(side)}}
            for call, cell in self.cells.items()]}


def beside_tables():
    tables = []
    for when, title in WHEN.items():
        fields = [("us", "median, us"), ("p99", "p99, us")]
        if when != "idle":
            fields = [("over_idle", "median, us more than idle"),
                      ("p99_over_idle", "p99, us more than idle's")]
        for field, says in fields:
            tables.append(Table(
                title, lambda said, when=when: said["when"] == when and said["test"] == "call",
                field, says, ratio=when == "idle"))
    for field, says in [("us", "median, us"), ("p99", "p99, us")]:
        tables.append(Table("Round trips of the messages beside those calls",
                            lambda said: said["test"] == "round-trip", field, says))
    return tables


class Comparison:
    def __init__(self, options):
        self.options = options
        self.deadline = time.monotonic() + options.budget
        texts = [f"{mode}=UCX_GPUSHM_STANDBY={mode} {options.gpushm}" for mode in options.sides]
        self.sides = {side.name: side for side in map(Side, texts + options.also)}
        self.facts, self.failures, self.notes = {}, {}, []
        self.tables = beside_tables()

    def launch(self, name):
        if name in self.failures:
            return
        limit = max(5, min(LAUNCH_LIMIT, self.deadline - time.monotonic()))
        side = self.sides[name]
        said = Launch(
            side.command + [os.path.join(self.options.programs, "ucp_beside"), f"--limit={limit:.0f}",
                            f"--seconds={self.options.seconds}",
                            *placement_arguments(self.options.devices, self.options.cpus),
                            *shlex.split(self.options.beside)],
            side.environment, limit)
        for cell in said.cells:
            for table in self.tables:
                table.add(name, cell)
        if said.failure:
            self.failures[name] = said.failure
        if "ucx" in said.facts:
            self.facts[name] = {"ucx": said.facts["ucx"]}
        self.notes += [note for note in said.notes if note not in self.notes]

    def run(self):
        self.facts["gpu"] = look_at_driver(self.options.programs)
        names = list(self.sides)
        rounds = alternate(names, self.options.launches, self.deadline - time.monotonic(), self.launch)
        print(f"{rounds} launch{'es' if rounds != 1 else ''} of each side\n")
        for table in self.tables:
            if table.cells:
                for line in table.lines(names, self.options.sides[0], self.options.sides[-1],
                                        self.options.markdown):
                    print(line)
        if self.options.json:
            write_json(self.options.json, {
                "facts": self.facts, "options": vars(self.options), "notes": self.notes,
                "failures": self.failures, "tables": [table.as_json(names) for table in self.tables]})
        for line in self.notes + [f"{side} FAILED: {why}" for side, why in self.failures.items()]:
            print(line)
        print_versions(self.facts)
        return 1 if self.failures else 0


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, seconds=0.1, cpus=3)
    add = parser.add_argument
    add("--sides", type=lambda s: s.split(","), default=["auto", "n"],
        help="values of UCX_GPUSHM_STANDBY, the last one that the first is compared with "
        "(default: auto,n)")
    add("--beside", default="", metavar="OPTIONS", help="more options of ucp_beside")
    options = parser.parse_args()
    names = options.sides + [text.partition("=")[0] for text in options.also]
    if len(set(names)) < len(names):
        parser.error("--sides, --also: each name once")
    return options


if __name__ == "__main__":
    sys.exit(Comparison(parse_options()).run())
