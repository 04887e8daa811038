# SPDX-License-Identifier: BSD-3-Clause
"""What was measured: for each cell a figure of each launch."""
import dataclasses
import math
import statistics

from sides import loss_mark


@dataclasses.dataclass
class Cell:
    """`source`: of which program family; `side`: what is compared (gpushm, peer, raw ...)."""
    source: str
    row: str
    title: str
    side: str
    test: str
    size: int
    unit: str        # "us": lower is better; all others are rates
    values: list
    command: str     # measures it again
    note: str = ""

    @property
    def key(self):
        return self.source, self.row, self.side, self.test, self.size

    @property
    def is_time(self):
        return self.unit == "us"

    @property
    def median(self):
        return statistics.median(self.values)

    @property
    def spread(self):
        return min(self.values), max(self.values)

    def times(self):
        """The values, so that less is better: rates are turned round."""
        return self.values if self.is_time else [1 / value if value else math.inf for value in self.values]


def ratio(cell, other):
    """Time of `cell` by time of `other`; below 1: `cell` is faster."""
    return statistics.median(cell.times()) / statistics.median(other.times())


def is_apart(cell, other):
    """Whether the launches of both do not overlap; one launch alone has no spread."""
    mine, others = cell.times(), other.times()
    if min(len(mine), len(others)) < 2:
        return False
    return min(mine) > max(others) or max(mine) < min(others)


def chance_apart(count, other_count):
    """How probable it is that `count` and `other_count` launches do not overlap if nothing differs."""
    return 2 / math.comb(count + other_count, count)


def mark(cell, other):
    return loss_mark(cell.times(), other.times())


class Cells:
    """All cells of a report, found by what they are."""

    def __init__(self, cells=()):
        self.by_key = {}
        for cell in cells:
            self.add(cell)

    def __iter__(self):
        return iter(self.by_key.values())

    def __len__(self):
        return len(self.by_key)

    def add(self, cell):
        known = self.by_key.get(cell.key)
        if known:
            known.values += cell.values
        else:
            self.by_key[cell.key] = cell

    def get(self, source, row, side, test, size):
        return self.by_key.get((source, row, side, test, size))

    def beside(self, cell, side):
        """The same cell of another side, or None."""
        return self.by_key.get((cell.source, cell.row, side, cell.test, cell.size))

    def select(self, **wanted):
        return [cell for cell in self
                if all(getattr(cell, name) == value for name, value in wanted.items())]

    def names(self, attribute, **wanted):
        """What there is of this attribute, in the order of measuring."""
        return list(dict.fromkeys(getattr(cell, attribute) for cell in self.select(**wanted)))

    def points(self, source, row, side, test):
        """(size, median) of a curve, by size."""
        return sorted((cell.size, cell.median)
                      for cell in self.select(source=source, row=row, side=side, test=test))
