# SPDX-License-Identifier: BSD-3-Clause
"""The sections of a report, what was lost first."""
import dataclasses

from . import plots, report_tables
from .cells import mark, ratio
from .paths import explain
from .report_tables import RAW

BRIEF = {"latency": "latency", "window": "many in flight"}
SHOWN = 20  # of the losses, before the rest is folded away


def losses(page, results):
    page.section("losses", "Where gpushm is slower")
    table = report_tables.losses_table(results)
    page.table(dataclasses.replace(table, caption="", rows=table.rows[:SHOWN]))
    page.hidden(f"The other {len(table.rows) - SHOWN} cells", [dataclasses.replace(table, rows=table.rows[SHOWN:], note="")])


def heat_map(results, side, test):
    """(figure, caption) or None. Only beside the peer a longer time is a loss."""
    pairs = [(cell, beside) for cell, beside in report_tables.pairs(results, side)
             if cell.source == "messages" and cell.test == test]
    if not pairs:
        return None
    rows = list(dict.fromkeys(cell.row for cell, _ in pairs))
    sizes = sorted({cell.size for cell, _ in pairs})
    ratios = {(cell.row, cell.size): (ratio(cell, beside), mark(cell, beside) if side == "peer" else "")
              for cell, beside in pairs}
    other = "the peer" if side == "peer" else "the raw operation"
    return (plots.heat_map(rows, sizes, ratios, worse=1 if side == "peer" else 3),
            f"{'Latency' if test == 'latency' else 'Many in flight'}: time of gpushm by time of {other}")


def heat_maps(page, results):
    page.section("ratios", "gpushm beside another UCX and the raw operation")
    if report_tables.compared_side(results) is None:
        page.text("There is no other UCX to compare with: --peer names one.", "soft")
    maps = [heat_map(results, side, test) for side in ("peer", "raw") for test in ("latency", "window")]
    page.figures([one for one in maps if one], wide=True)
    page.text("Below 1 gpushm is faster. Beside the peer, bold is slower, and a frame is slower beyond the spread of the "
              "launches.", "note")
    page.add('<dl class="facts">' + "".join(
        f"<dt>{plots.escape(row)}</dt><dd>{plots.escape(results.cells.select(source='messages', row=row)[0].title)}</dd>"
        for row in results.cells.names("row", source="messages")) + "</dl>")


def curve_points(cells, convert=lambda size, time: time):
    return sorted((cell.size, convert(cell.size, cell.median), *sorted(convert(cell.size, time) for time in cell.spread))
                  for cell in cells)


def message_curves(page, results):
    page.section("curves", "Latency and bandwidth")
    figures = []
    for row in results.cells.names("row", source="messages"):
        title = results.cells.select(source="messages", row=row)[0].title
        for test, label, convert in (("latency", "us one way", lambda size, time: time),
                                     ("window", "GB/s", lambda size, time: size / time / 1e3)):
            sides = results.cells.names("side", source="messages", row=row, test=test)
            named = {side: curve_points(results.cells.select(source="messages", row=row, side=side, test=test), convert)
                     for side in sorted(sides, key=lambda side: (side in RAW, side != "gpushm"))}
            if named:
                figures.append((plots.curves(named, label, rate=test == "window"), f"{title}: {BRIEF[test]}"))
    page.figures(figures)
    page.text("Points: median of the launches. Bands: from the smallest to the largest launch.", "note")
    page.hidden("Figures of the curves", report_tables.message_tables(results))


def others(page, results):
    tables = list(report_tables.side_tables(results, "steps", "Steps of a program"))
    tables += report_tables.side_tables(results, "mpi", "Operations of MPI")
    if tables:
        page.section("programs", "Programs and operations of MPI")
        for table in tables:
            page.table(table)


def perf(page, results):
    if not results.cells.select(source="perf"):
        return
    page.section("perf", "Situations, unified memory, copies by hand")
    page.figures([figure for group in report_tables.perf_groups(results) for figure in perf_figures(*group)])
    for table in report_tables.perf_tables(results):
        page.table(table)


def perf_figures(title, test, rows):
    """(figure, caption) of so many rows each that all sides of a row are in one figure."""
    curves = {row: {f"{row.partition(': ')[2]}, {side}": curve_points(cells) for side, cells in sides.items()
                    if len(cells) > 1} for row, sides in rows.items()}
    at_once = max(1, plots.SERIES // max(map(len, rows.values())))
    unit = next(iter(next(iter(rows.values())).values()))[0].unit
    names = [row for row in curves if curves[row]]
    for start in range(0, len(names), at_once):
        named = {}
        for row in names[start:start + at_once]:
            named.update(curves[row])
        yield plots.curves(named, unit, rate=unit != "us"), f"{title}: {test}"


def copies(page, results):
    """Figures 4 and 5 of Ji et al.: three ways to copy a buffer of unknown kind."""
    cells = results.cells
    figures = []
    for direction in ("host_to_device", "device_to_host", "host_to_host"):
        ways = [row for row in cells.names("row", source="micro") if row.startswith(f"copy/{direction}/")]
        named = {way.rpartition("/")[2].replace("_", " "): curve_points(
            cells.select(source="micro", row=way), lambda size, time: size / time / 1e3) for way in ways}
        if named:
            title = f"Copy, {direction.replace('_', ' ')}"
            figures.append((plots.curves(named, "GB/s", rate=True), title))
    if figures:
        page.section("copies", "Three ways to copy")
        page.text("The driver's copy for any two addresses; a question to the driver before the copy; the kind of memory "
                  "known beforehand, as gpushm knows it.")
        page.figures(figures)
    page.hidden("All micro-benchmarks", report_tables.micro_tables(results))


def model(page, results):
    page.section("model", "Model")
    figures = []
    parts = list(explain(results.cells))
    for row in dict.fromkeys(part.row for part in parts):
        of_row = [part for part in parts if part.row == row and part.size <= 1 << 16]
        if len(of_row) > 1:
            title = f"{of_row[0].title}: parts"
            shown = {"messages": [part.hops for part in of_row], "copy": [part.copy for part in of_row]}
            figures.append((plots.stacked([part.size for part in of_row], shown, [part.whole for part in of_row]), title))
    table = report_tables.parts_table(results)
    page.figures(figures)
    page.text(table.note, "note")
    page.hidden(table.caption, [dataclasses.replace(table, note="")])
    page.hidden("Fits: alpha + beta n", [report_tables.model_table(results)])
    page.table(report_tables.thresholds_table(results))
    page.table(report_tables.rendezvous_table(results))
    page.table(report_tables.choices_table(results))
    page.hidden("What UCP says that it chooses", report_tables.protocol_tables(results))


def node(page, results):
    page.section("node", "The node")
    said = results.node
    facts = [(f"GPU {i}", f"{gpu['name']}, {gpu['memory_bytes'] / 2**30:.0f} GiB, PCI {gpu['pci_id']}, NUMA node "
              f"{'unknown' if gpu['numa_node'] is None else gpu['numa_node']}, reaches GPUs "
              f"{', '.join(map(str, gpu['reaches']))}") for i, gpu in enumerate(said["gpus"])]
    facts += [("CUDA driver", said["cuda_driver"] or "none"), ("NVIDIA driver", said["driver"] or "unknown"),
              ("processor", said["cpu"]), ("processors", said["cpus"]), ("system", said["system"])]
    page.add('<dl class="facts">' + "".join(f"<dt>{plots.escape(name)}</dt><dd>{plots.escape(value)}</dd>"
                                            for name, value in facts) + "</dl>")
    if said["drawing"]:
        page.drawing(said["drawing"])
    else:
        page.text("lstopo is not there to draw the node (Debian and Ubuntu: hwloc).", "soft")
    if said["links"]:
        page.add(f"<pre>{plots.escape(said['links'])}</pre>")
    else:
        page.text("Links between GPUs: nvidia-smi is not there to name them.", "soft")


def repeat(page, results):
    page.section("repeat", "How to measure it again")
    page.table(report_tables.problems_table(results))
    page.hidden("The command of each cell", [report_tables.commands_table(results)])


ALL = (losses, heat_maps, message_curves, others, perf, copies, model, node, repeat)
