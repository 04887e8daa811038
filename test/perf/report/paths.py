# SPDX-License-Identifier: BSD-3-Clause
"""What a message is made of: the sum of the parts beside the whole, so that what is unexplained shows."""
import dataclasses

from measured_row import number_text

EAGER = 32 << 10  # about where UCP ends to send eager messages


@dataclasses.dataclass(frozen=True)
class Path:
    """`hops`: messages of a few bytes one after the other, with UCP's work in both processes, before the
    receiver knows that its data are there: an eager message is one; a rendezvous that the receiver copies
    is one; one that the sender copies is three (announcement, request, end). `copy`: the raw operation
    beside whose time the bytes take none."""
    row: str
    hops_eager: int
    hops: int


# Who copies: doc/overview.md, "Who decides, and how the bytes go".
PATHS = [Path("host", 1, 1), Path("dd", 1, 1), Path("dd-unmapped", 1, 2), Path("dh", 1, 1), Path("hd", 1, 3),
         Path("one-gpu", 1, 1), Path("managed-gpu-stays", 1, 2)]


@dataclasses.dataclass(frozen=True)
class Explained:
    row: str
    title: str
    size: int
    whole: float
    hops: float
    copy: float
    engine: str

    @property
    def unexplained(self):
        return self.whole - self.hops - self.copy


def hop_time(cells):
    """us of a message of a few bytes between hosts, by the whole stack."""
    points = cells.points("messages", "host", "gpushm", "latency")
    return points[0][1] if points else None


def quickest_copy(cells, row, size):
    """(us, by what): the raw operation or the standby kernel's copy, whichever is quicker."""
    found = [(cell.median, side) for side in ("raw", "standby")
             for cell in [cells.get("messages", row, side, "latency", size)] if cell]
    return min(found, default=(None, None))


def explain(cells):
    """An Explained for each cell of latency whose parts were measured."""
    hop = hop_time(cells)
    if hop is None:
        return
    for path in PATHS:
        for size, whole in cells.points("messages", path.row, "gpushm", "latency"):
            copy, engine = quickest_copy(cells, path.row, size)
            if copy is not None and (path.row, size) != ("host", cells.points(
                    "messages", "host", "gpushm", "latency")[0][0]):
                title = cells.get("messages", path.row, "gpushm", "latency", size).title
                hops = path.hops_eager if size <= EAGER else path.hops
                yield Explained(path.row, title, size, whole, hops * hop, copy, engine)


def cause_of_latency(cells, cell):
    for part in explain(cells):
        if part.row == cell.row and part.size == cell.size:
            rest = part.unexplained
            engine = "the standby kernel's copy" if part.engine == "standby" else "the raw copy"
            return (f"{engine} takes {part.copy:.1f} us, messages {part.hops:.1f} us" +
                    (f", {rest:.1f} us are unexplained" if rest > 0.05 * part.whole else ""))
    return ""


def cause_of_window(cells, cell):
    found = [(beside.median, words) for side, words in (("raw", "raw copies"), ("standby", "the standby kernel's copies"))
             for beside in [cells.get("messages", cell.row, side, "window", cell.size)] if beside]
    return "; ".join(f"{words} in flight take {number_text(median)} us each" for median, words in found)


def cause(cells, cell):
    """Words on where the time of a cell goes; empty where its parts were not measured."""
    causes = {"latency": cause_of_latency, "window": cause_of_window}
    return causes[cell.test](cells, cell) if cell.source == "messages" and cell.test in causes else ""
