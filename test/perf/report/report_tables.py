# SPDX-License-Identifier: BSD-3-Clause
"""The tables of a report, for the page and for text alike."""
import dataclasses
import math

from gpu_rows import ROWS
from measured_row import number_text
from sides import size_text

from . import limits
from .cells import mark, ratio
from .model import crossing, fit
from .paths import cause, explain
from .perf import BY_HAND
from .protocols import FORCED, chosen, takes_rendezvous_from, worse_choices

RAW = ("raw", "standby")
CAPTIONS = {"latency": "latency, us one way", "window": "many in flight, us a message"}


@dataclasses.dataclass
class Table:
    caption: str
    header: list
    rows: list
    note: str = ""
    words: int = 1  # columns of words, from the left; the others hold numbers


def spread(cell):
    if cell is None:
        return "-"
    low, high = cell.spread
    if len(cell.values) == 1 or number_text(low) == number_text(high):
        return number_text(cell.median)
    return f"{number_text(cell.median)} ({number_text(low)}..{number_text(high)})"


def ratio_text(cell, other):
    if not cell or not other:
        return "-"
    value = ratio(cell, other)
    return (f"{value:.2f}" if value < 9.995 else f"{value:.0f}") + mark(cell, other)


def compared_side(results):
    """What gpushm is compared with: the peer, where there is one."""
    return "peer" if results.cells.select(side="peer") else None


def pairs(results, other):
    """(gpushm's cell, the other's) of every cell that both have."""
    for cell in results.cells.select(side="gpushm"):
        beside = results.cells.beside(cell, other)
        if beside and cell.source != "protocol":
            yield cell, beside


def losses(results):
    """Cells in which gpushm is slower than what it is compared with, the worst first."""
    found = []
    for other in ("peer", *BY_HAND, "by host memory", "NCCL"):
        found += [(ratio(cell, beside), cell, beside) for cell, beside in pairs(results, other)
                  if ratio(cell, beside) > 1]
    return sorted(found, key=lambda one: (mark(one[1], one[2]) != "!", -one[0]))


def losses_table(results):
    rows = [[cell.title, cell.test, size_text(cell.size) if cell.size else "-", ratio_text(cell, beside), spread(cell),
             spread(beside), beside.side, cause(results.cells, cell)] for _, cell, beside in losses(results)]
    return Table("Where gpushm is slower", ["what", "test", "size", "ratio", "gpushm", "the other", "than", "why"],
                 rows, "Ratio: time by time: above 1 gpushm is slower. \"!\": its best launch is slower than the other's "
                 "worst one. \"~\": the launches of both overlap.", 3)


def message_tables(results):
    cells = results.cells
    for row in cells.names("row", source="messages"):
        for test in cells.names("test", source="messages", row=row):
            of_test = cells.select(source="messages", row=row, test=test)
            sides = list(dict.fromkeys(cell.side for cell in of_test))
            sides.sort(key=lambda side: (side not in RAW, side != "gpushm"))
            others = [side for side in sides if side not in RAW + ("gpushm",)]
            rows = []
            for size in sorted({cell.size for cell in of_test}):
                at = {side: cells.get("messages", row, side, test, size) for side in sides}
                mine = at.get("gpushm")
                line = [size_text(size)] + [spread(at[side]) for side in sides]
                line += [ratio_text(mine, at[side]) for side in others]
                line += [f"{mine.median / at['raw'].median:.2f}" if mine and at.get("raw") else "-"]
                line += [number_text(size / mine.median / 1e3) if mine and size >= 1024 else "-"]
                rows.append(line)
            yield Table(f"{of_test[0].title}: {CAPTIONS.get(test, test)}",
                        ["size"] + sides + [f"gpushm/{side}" for side in others] + ["gpushm/raw", "GB/s"], rows)


def side_tables(results, source, caption):
    """Rows of other programs: a column for each side."""
    cells = results.cells
    for test in cells.names("test", source=source):
        sides = cells.names("side", source=source, test=test)
        sides.sort(key=lambda side: side != "gpushm")
        keys = dict.fromkeys((cell.row, cell.size) for cell in cells.select(source=source, test=test))
        rows = []
        for row, size in keys:
            at = {side: cells.get(source, row, side, test, size) for side in sides}
            mine = at.get("gpushm")
            rows.append([row, size_text(size) if size else "-"] + [spread(at[side]) for side in sides] +
                        [ratio_text(mine, at[side]) for side in sides if side not in ("gpushm", "none")])
        yield Table(f"{caption}: {test}, us", ["what", "size"] + sides +
                    [f"gpushm/{side}" for side in sides if side not in ("gpushm", "none")], rows)


def perf_groups(results):
    """What gpushm-perf measures: (title, test, {row: {side: its cells}}) of each figure and table; the title is before
    the colon in a row's name."""
    rows = {}
    for cell in results.cells.select(source="perf"):
        title, _, _ = cell.row.partition(": ")
        rows.setdefault((title, cell.test), {}).setdefault(cell.row, {}).setdefault(cell.side, []).append(cell)
    for (title, test), found in rows.items():
        yield title, test, found


def perf_table(title, test, rows):
    """A line for each row and side, a column for each size."""
    cells = [cell for sides in rows.values() for of_side in sides.values() for cell in of_side]
    sizes = sorted({cell.size for cell in cells})
    lines = []
    for row, sides in rows.items():
        at = {side: {cell.size: cell for cell in of_side} for side, of_side in sides.items()}
        what = row.partition(": ")[2]
        for side, by_size in at.items():
            lines.append([what, side] + [number_text(by_size[size].median) if size in by_size else "-" for size in sizes] +
                         [by_size[max(by_size)].note])
        for side in at if "gpushm" in at else ():
            if side != "gpushm":
                lines.append([what, f"gpushm/{side}"] + [ratio_text(at["gpushm"].get(size), at[side].get(size))
                                                         for size in sizes] + [""])
    header = ["what", "side"] + [size_text(size) if size else "-" for size in sizes]
    if any(cell.note for cell in cells):
        header.append("at the largest")
    return Table(f"{title}: {test}, {cells[0].unit}", header, [line[:len(header)] for line in lines], words=2)


def gain_text(cell, by_hand):
    """Figure 8 of Ji et al.: how much less time, or how much more there is in a time, in percent."""
    if not cell or not by_hand:
        return "-"
    times = ratio(cell, by_hand)
    return f"{100 * (1 - times if cell.is_time else 1 / times - 1):.1f} %"


def gains_table(results):
    lines = []
    sizes = sorted({cell.size for cell in results.cells.select(source="perf") if cell.side in BY_HAND})
    for _, test, rows in perf_groups(results):
        for row, sides in rows.items():
            for side in BY_HAND:
                if side in sides and "gpushm" in sides:
                    pairs_of = {cell.size: (results.cells.beside(cell, "gpushm"), cell) for cell in sides[side]}
                    lines.append([row.partition(": ")[2], test, side] +
                                 [gain_text(*pairs_of.get(size, (None, None))) for size in sizes])
    return Table("Less time (latency) or more bandwidth (bw) than with copies by hand",
                 ["messages", "test", "than with"] + [size_text(size) for size in sizes], lines, words=3)


def perf_tables(results):
    for title, test, rows in perf_groups(results):
        yield perf_table(title, test, rows)
    gains = gains_table(results)
    if gains.rows:
        yield gains


def micro_table(results, prefix, caption):
    """Benchmarks whose names begin so: a column for each."""
    cells = [cell for cell in results.cells.select(source="micro") if cell.row.startswith(prefix)]
    names = list(dict.fromkeys(cell.row for cell in cells))
    sizes = sorted({cell.size for cell in cells if cell.size is not None})
    by_key = {(cell.row, cell.size): cell for cell in cells}
    if sizes and len(names) <= 4:
        rows = [[size_text(size)] + [spread(by_key.get((name, size))) for name in names] for size in sizes]
        return Table(f"{caption}, us", ["size"] + [name.removeprefix(prefix) for name in names], rows)
    rows = [[cell.row, size_text(cell.size) if cell.size is not None else "-", spread(cell), cell.note] for cell in cells]
    return Table(f"{caption}, us", ["what", "size", "us", "notes"], rows)


def micro_tables(results):
    rows = results.cells.names("row", source="micro")
    for direction in ("host_to_host", "host_to_device", "device_to_host"):
        if any(row.startswith(f"copy/{direction}") for row in rows):
            yield micro_table(results, f"copy/{direction}/", f"Three ways to copy, {direction.replace('_', ' ')}")
    for first in dict.fromkeys(row.split("/")[0] for row in rows):
        if first != "copy":
            yield micro_table(results, first, first.replace("_", " "))


def line_text(line):
    bandwidth = line.bandwidth()
    rate = f" ({number_text(bandwidth)} GB/s)" if math.isfinite(bandwidth) else ""
    return f"{number_text(line.alpha)} us + {line.beta * 1e3:.3g} ns/B{rate}"


def model_curves(results):
    """(row, test, side, points) of everything that a line is fitted to."""
    for source in ("messages", "micro"):
        for row in results.cells.names("row", source=source):
            for test in results.cells.names("test", source=source, row=row):
                for side in results.cells.names("side", source=source, row=row, test=test):
                    points = results.cells.points(source, row, side, test) if all(
                        cell.size is not None for cell in results.cells.select(source=source, row=row)) else []
                    yield row, test, side, points


def model_table(results):
    rows = []
    for row, test, side, points in model_curves(results):
        for line in fit(points):
            rows.append([row, test, side, f"{size_text(line.first)}..{size_text(line.last)}", line_text(line),
                         f"{100 * line.residual:.1f} %", f"{100 * line.worst:.0f} %", str(line.points)])
    return Table("What each operation and path takes: alpha + beta n",
                 ["what", "test", "side", "range", "fit", "residual", "worst", "points"], rows,
                 "Least squares of relative errors. Residual: root of the mean square of the relative errors; worst: "
                 "the largest one. A range is divided, at most twice, until no point is missed by more than 10 %.", 5)


def parts_table(results):
    rows = [[part.title, size_text(part.size), number_text(part.whole), number_text(part.hops), number_text(part.copy),
             part.engine, number_text(part.unexplained), f"{100 * part.unexplained / part.whole:.0f} %"]
            for part in explain(results.cells)]
    return Table("A message and the sum of its parts, us",
                 ["what", "size", "measured", "messages", "copy", "by", "unexplained", "of it"], rows,
                 "Messages: one of 8 bytes between hosts, as often as the path needs one. Copy: the raw operation or the "
                 "standby kernel's, whichever is quicker. Below 0: parts overlap.")


def limit_text(limit):
    if limit is None:
        return "never"
    return "above what was measured" if math.isinf(limit) else size_text(limits.round_down(limit))


def thresholds_table(results):
    table = limits.generation(results.node)
    measured, used = limits.measured(results.cells), limits.used(table)
    rows = [[name.replace("_", " "), traffic.replace("_", " "), limit_text(measured[traffic, name]),
             size_text(used[traffic, name])] for traffic, name in used if (traffic, name) in measured]
    return Table("Up to which size the standby kernel is the quicker one", ["copy", "traffic", "measured", "gpushm uses"],
                 rows, f"gpushm uses {table} of core/copy/cost_table.hpp; 'gpushm-report limits' prints it as measured.", 2)


def rendezvous_table(results):
    kinds = {row.name: row.source for row in ROWS}
    rows = []
    for row in results.cells.names("row", source="protocol"):
        eager, rendezvous = (results.cells.points("protocol", row, side, "latency") for side in FORCED)
        says = takes_rendezvous_from(results.protocols, row, kinds[row])
        if eager and rendezvous:
            rows.append([results.cells.select(source="protocol", row=row)[0].title,
                         limit_text(crossing(eager, rendezvous)), "not said" if says is None else size_text(says)])
    return Table("Up to which size an eager message is the quicker one",
                 ["messages", "measured", "UCP takes a rendezvous from"], rows)


def choices_table(results):
    kinds = {row.name: row.source for row in ROWS}
    rows = []
    for cell, best in worse_choices(results.cells):
        says = chosen(results.protocols, cell.row, kinds.get(cell.row, "host"), cell.size) or "not said"
        rows.append([cell.title, size_text(cell.size), says, spread(cell), best.side, spread(best), ratio_text(cell, best)])
    note = ("Each message was sent as UCP chooses, and with " + " and with ".join(FORCED.values()) + ". Cells are listed in "
            "which one of the latter is quicker by more than 5 % and beyond the spread.")
    if not results.protocols:
        note += " This UCX does not say what it chooses (UCX_PROTO_INFO, from 1.15 on)."
    return Table("Where UCP does not choose the quickest protocol",
                 ["what", "size", "UCP chooses", "us", "quicker", "us", "ratio"], rows, note, 3)


def protocol_tables(results):
    for one in results.protocols:
        if one["operation"].startswith(("tagged message by ucp_tag_send* from", "rendezvous data fetch")):
            rows = [["{}..{}".format(size_text(part["first"]), "inf" if part["last"] is None else size_text(part["last"])),
                     part["what"], part["by"]] for part in one["ranges"]]
            yield Table(f"{one['row']}: {one['operation']}", ["bytes", "UCP chooses", "transport"], rows, words=3)


def measured_together(cell):
    """What one command measures."""
    names = {"messages": cell.row, "protocol": cell.row, "perf": cell.row.partition(": ")[0]}
    return f"{cell.source}: {names.get(cell.source, cell.test)}"


def commands_table(results):
    unique = {}
    for cell in results.cells:
        unique.setdefault(cell.command, [measured_together(cell), cell.side, cell.command])
    variables = " ".join(f"{name}={value}" for name, value in results.node["variables"].items())
    return Table("How to measure a cell again", ["what", "side", "command"], list(unique.values()),
                 f"In the environment: {variables or 'nothing'}", 3)


def problems_table(results):
    rows = [[error["task"], error["text"]] for error in results.errors]
    rows += [[one["what"], one["why"]] for one in results.left_out]
    return Table("What was not measured", ["what", "why"], rows, words=2)
