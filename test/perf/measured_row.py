# SPDX-License-Identifier: BSD-3-Clause
"""The figures of one row, and their text."""
from sides import loss_mark, size_text, summary

TESTS = ("latency", "window")


def number_text(value):
    size = abs(value)
    digits = 3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:.{digits}f}"


def rate_text(rate):
    return number_text(rate) if rate >= 0.01 else "-"


def spread_text(figure):
    if figure is None:
        return "-"
    return "{} ({}..{})".format(*(number_text(figure[key]) for key in ("median", "min", "max")))


def compared(sides):
    """Those that gpushm's figure is divided by."""
    return [side for side in sides if side not in ("raw", "standby", "gpushm")]


def table_lines(header, rows, markdown):
    """Columns of text, right justified, the first `header`."""
    widths = [max(len(line[i]) for line in [header] + rows) for i in range(len(header))]
    border, join = ("| ", " | ") if markdown else ("  ", "   ")
    ruled = [header] + ([["-" * (w - 1) + ":" for w in widths]] if markdown else []) + rows
    for line in ruled:
        padded = join.join(word.rjust(width) for word, width in zip(line, widths))
        yield border + padded + (" |" if markdown else "")


class Cell:
    """One test of one size: us a message of each launch of each side."""

    def __init__(self, test, size):
        self.test = test
        self.size = size
        self.window = None
        self.values = {}

    def figure(self, side):
        return summary(self.values[side]) if self.values.get(side) else None

    def slower(self, side="gpushm", other="peer"):
        """Empty also where one of them was not measured."""
        mine, others = self.values.get(side), self.values.get(other)
        return loss_mark(mine, others) if mine and others else ""

    def ratio_text(self, side, other):
        mine, others = self.figure(side), self.figure(other)
        if not mine or not others or others["median"] == 0:
            return "-"
        return f"{mine['median'] / others['median']:.2f}{self.slower(side, other):1}"

    def columns(self, sides):
        texts = [spread_text(self.figure(side)) for side in sides]
        texts += [self.ratio_text("gpushm", side) for side in compared(sides)]
        medians = {side: self.figure(side)["median"] for side in sides if self.figure(side)}
        if "raw" in sides:
            texts.append(f"{medians['gpushm'] - medians['raw']:+.2f}"
                         if "gpushm" in medians and "raw" in medians else "-")
        if self.test == "window":
            texts += [rate_text(self.size / medians[side] / 1e3) if side in medians else "-"
                      for side in sides]
        return [size_text(self.size)] + texts

    def as_json(self):
        sides = {side: dict(self.figure(side), values=values)
                 for side, values in self.values.items() if values}
        return {"test": self.test, "size": self.size, "window": self.window, "us": sides}


class MeasuredRow:
    """`source`: the program that measured, if it is not the usual one."""

    def __init__(self, row, sides, source=None):
        self.row = row
        self.sides = sides
        self.source = source
        self.cells = {}
        self.failures = {}  # side: why
        self.launches = 0

    def add(self, side, test, size, value, window=None):
        cell = self.cells.setdefault((test, size), Cell(test, size))
        cell.values.setdefault(side, []).append(value)
        cell.window = window or cell.window

    def tables(self):
        """(caption, header, rows of text) of each test that has figures."""
        for test in TESTS:
            cells = [cell for (name, _), cell in sorted(self.cells.items()) if name == test]
            if not cells:
                continue
            header = ["size"] + list(self.sides)
            header += [f"gpushm/{side}" for side in compared(self.sides)]
            header += ["gpushm-raw"] if "raw" in self.sides else []
            caption = "latency, us one way"
            if test == "window":
                header += [f"{side} GB/s" for side in self.sides]
                caption = "messages under way together, us a message"
                windows = sorted({cell.window for cell in cells if cell.window}, reverse=True)
                if windows:
                    caption += f" (window {', '.join(map(str, windows))})"
            yield caption, header, [cell.columns(self.sides) for cell in cells]

    def heading(self):
        words = [self.row.title]
        words.append(f"by {self.source}" if self.source else f"raw: {self.row.raw_title}")
        words.append(f"{self.launches} launch" + ("es" if self.launches != 1 else ""))
        return "; ".join(words)

    def text(self, markdown):
        lines = [("### " if markdown else "== ") + self.heading(), ""]
        for caption, header, rows in self.tables():
            lines += [caption, ""] if markdown else ["  " + caption]
            lines += table_lines(header, rows, markdown)
            lines.append("")
        for side, why in self.failures.items():
            lines += [f"  {side} FAILED: {why}", ""]
        return "\n".join(lines)

    def as_json(self):
        return {"row": self.row.name, "title": self.row.title, "source": self.source,
                "launches": self.launches, "failures": self.failures,
                "cells": [cell.as_json() for cell in self.cells.values()]}
