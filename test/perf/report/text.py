# SPDX-License-Identifier: BSD-3-Clause
"""A report as text."""
from measured_row import table_lines

from . import report_tables
from .cells import mark, ratio

MEANINGLESS = "The driver is the simulated one: its times say nothing about speed."
CUT_OFF = "The run was cut off: these are the results so far."


def reservations(results):
    """What a reader has to know before any figure."""
    if results.node["simulated"]:
        yield MEANINGLESS
    if not results.finished:
        yield CUT_OFF


def verdict(results):
    """How often gpushm is slower than the peer, in one sentence."""
    compared = list(report_tables.pairs(results, "peer"))
    if not compared:
        return "There is no other UCX to compare with (--peer)."
    marks = [mark(cell, beside) for cell, beside in compared]
    faster = sum(ratio(cell, beside) < 1 for cell, beside in compared)
    return (f"gpushm is faster than the peer in {faster} of {len(compared)} cells, slower beyond the spread in "
            f"{marks.count('!')}, slower within it in {marks.count('~')}.")


def node_lines(node):
    gpus = ", ".join(gpu["name"] for gpu in node["gpus"]) or node.get("cuda_driver") or "no GPU"
    yield f"{node['host']}, {node['date'][:16].replace('T', ' ')} UTC: {gpus}; driver {node['driver'] or 'unknown'}"
    yield f"{node['cpu']}, {node['cpus']} processors, {node['memory_bytes'] / 2**30:.0f} GiB; {node['system']}"
    yield (f"gpushm {node['gpushm'] or 'unknown'}" + (f" ({node['commit']})" if node["commit"] else "") +
           f", UCX {node['ucx'] or 'unknown'}, Open MPI {node['mpi'] or 'not there'}")


def head_lines(results):
    """The node, and on which UCX the sides were measured."""
    yield from node_lines(results.node)
    peer = results.versions.get("peer")
    if peer:
        yield f"the peer is UCX {peer}"


def all_tables(results):
    tables = report_tables
    yield tables.losses_table(results)
    yield from tables.message_tables(results)
    yield from tables.side_tables(results, "steps", "Steps of a program")
    yield from tables.side_tables(results, "mpi", "Operations of MPI")
    yield from tables.perf_tables(results)
    yield from tables.micro_tables(results)
    yield tables.model_table(results)
    yield tables.parts_table(results)
    yield tables.thresholds_table(results)
    yield tables.rendezvous_table(results)
    yield tables.choices_table(results)
    yield from tables.protocol_tables(results)
    yield tables.problems_table(results)
    yield tables.commands_table(results)


def table_text(table):
    lines = [f"== {table.caption}", ""]
    if not table.rows:
        lines.append("  none")
    elif table.words >= 2:
        lines += aligned_left(table.header, table.rows)
    else:
        lines += table_lines(table.header, table.rows, markdown=False)
    return "\n".join(lines + ([table.note] if table.note else []) + [""])


def aligned_left(header, rows):
    widths = [max(len(line[i]) for line in [header] + rows) for i in range(len(header))]
    for line in [header] + rows:
        yield ("  " + "   ".join(word.ljust(width) for word, width in zip(line, widths))).rstrip()


def report_text(results):
    lines = [*head_lines(results), *reservations(results), verdict(results), ""]
    return "\n".join(lines + [table_text(table) for table in all_tables(results)])
