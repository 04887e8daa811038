# SPDX-License-Identifier: BSD-3-Clause
"""The file of a report. It is written anew after each launch, so it is also what a run that was cut
off continues from."""
import dataclasses
import json

from launches import write_json

from .cells import Cell, Cells
from .errors import ReportError

FORMAT = 1


class Results:
    def __init__(self, path, plan, node):
        """`plan`: options that decide what is measured; another plan does not continue this one."""
        self.path = path
        self.plan = plan
        self.node = node
        self.cells = Cells()
        self.done = {}       # task: seconds that it took
        self.errors = []     # {"task":, "family":, "text":}
        self.left_out = []   # {"what":, "why":}
        self.protocols = []  # what UCP says that it chooses
        self.versions = {}   # side: its UCX
        self.finished = False

    def record(self, task, seconds, outcome):
        for cell in outcome.cells:
            self.cells.add(cell)
        self.protocols += outcome.protocols
        self.versions.update(outcome.versions)
        if outcome.failure:
            self.errors.append({"task": task.name, "family": task.family, "text": outcome.failure})
        self.done[task.id] = seconds

    def leave_out(self, what, why):
        one = {"what": what, "why": why}
        if one not in self.left_out:
            self.left_out.append(one)

    def save(self):
        try:
            write_json(self.path, {
                "program": "gpushm-report", "format": FORMAT, "plan": self.plan, "node": self.node,
                "finished": self.finished, "done": self.done, "errors": self.errors,
                "left_out": self.left_out, "protocols": self.protocols, "versions": self.versions,
                "cells": [dataclasses.asdict(cell) for cell in self.cells]})
        except OSError as error:
            raise ReportError(f"{self.path} cannot be written: {error.strerror}") from error


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ReportError(f"{path} is no JSON: {error}") from error


def load(path):
    said = read_json(path)
    try:
        if said["program"] != "gpushm-report":
            raise ReportError(f"{path} is not of gpushm-report")
        if said["format"] != FORMAT:
            raise ReportError(f"{path} is of another version of gpushm-report: format {said['format']}, not {FORMAT}")
        results = Results(path, said["plan"], said["node"])
        results.cells = Cells(Cell(**cell) for cell in said["cells"])
        for name in ("done", "errors", "left_out", "protocols", "versions", "finished"):
            setattr(results, name, said[name])
    except (KeyError, TypeError, AttributeError) as error:
        raise ReportError(f"{path} is not a whole file of gpushm-report: {error}") from error
    return results
