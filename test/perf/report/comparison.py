# SPDX-License-Identifier: BSD-3-Clause
"""What a change did: two reports, cell by cell."""
import dataclasses

from sides import size_text

from .cells import chance_apart, is_apart, ratio
from .errors import ReportError
from .node import same_machine
from .report_tables import Table, spread
from .text import node_lines, table_text

LEAST_CHANGE = 0.02  # a smaller change is none, however small the spread


@dataclasses.dataclass
class Change:
    old: object  # Cell
    new: object

    @property
    def ratio(self):
        """New time by old time."""
        return ratio(self.new, self.old)

    @property
    def is_significant(self):
        return is_apart(self.new, self.old) and abs(self.ratio - 1) > LEAST_CHANGE


class Comparison:
    def __init__(self, old, new):
        self.old, self.new = old, new
        self.changes = [Change(old.cells.by_key[cell.key], cell) for cell in new.cells
                        if cell.key in old.cells.by_key]
        if not self.changes:
            raise ReportError(f"{old.path} and {new.path} have no cell in common")

    def significant(self, sign):
        """Those that became slower (1) or faster (-1), the largest change first."""
        found = [change for change in self.changes if change.is_significant and (change.ratio - 1) * sign > 0]
        return sorted(found, key=lambda change: -abs(change.ratio - 1))

    def expected_by_chance(self):
        """In how many cells the launches would not overlap if nothing had changed."""
        return sum(chance_apart(len(change.old.values), len(change.new.values)) for change in self.changes
                   if min(len(change.old.values), len(change.new.values)) > 1)

    def rule(self):
        single = sum(min(len(change.old.values), len(change.new.values)) < 2 for change in self.changes)
        text = ("A change counts if no launch of one side is within the launches of the other, and if the medians "
                f"differ by more than {100 * LEAST_CHANGE:.0f} %. Without any change that would happen by chance in at most "
                f"about {self.expected_by_chance():.0f} of {len(self.changes)} cells, half of them slower.")
        if single:
            text += f" {single} cells have one launch on a side, which has no spread, so they never count."
        return text

    def warnings(self):
        if not same_machine(self.old.node, self.new.node):
            yield "These are two machines: the comparison is of both, not of the change alone."
        if self.old.node["simulated"] or self.new.node["simulated"]:
            yield "The driver is the simulated one: its times say nothing about speed."

    def tables(self):
        for sign, caption in ((1, "Slower"), (-1, "Faster")):
            yield Table(caption, ["what", "side", "test", "size", "old", "new", "new/old"],
                        [row_of(change) for change in self.significant(sign)], words=4)
        rest = [change for change in self.changes if not change.is_significant]
        yield Table("No change beyond the spread", ["what", "side", "test", "size", "old", "new", "new/old"],
                    [row_of(change) for change in rest], words=4)


def row_of(change):
    cell = change.new
    return [cell.title, cell.side, cell.test, size_text(cell.size) if cell.size else "-", spread(change.old),
            spread(cell), f"{change.ratio:.2f}"]


def summary(change):
    return (f"{len(change.significant(1))} of {len(change.changes)} cells are slower, {len(change.significant(-1))} are "
            "faster.")


def as_text(change):
    lines = ["old: " + "\n     ".join(node_lines(change.old.node)), "new: " + "\n     ".join(node_lines(change.new.node)),
             "", *change.warnings(), summary(change), change.rule(), ""]
    return "\n".join(lines + [table_text(table) for table in change.tables()])


def fill_page(page, change):
    page.section("changes", "What changed")
    for line in change.warnings():
        page.text(line, "warn")
    page.text(summary(change))
    page.text(change.rule(), "note")
    *shown, rest = change.tables()
    for table in shown:
        page.table(table)
    page.hidden(rest.caption, [rest])
