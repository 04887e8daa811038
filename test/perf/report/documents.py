# SPDX-License-Identifier: BSD-3-Clause
"""Tables of documents, which stand between two lines and are made again from the figures of a report:

  <!-- gpushm-report: latency rows=dd,dh sizes=8,8K,64K -->      in Markdown
  <!-- gpushm-report: end -->
  [gpushm-report: latency rows=dd,dh sizes=8,8K,64K]             in plain text
  [gpushm-report: end]

The first word is one of WHAT. Options may be left out: then everything that was measured is in the table.
"""
import re

from gpu_rows import ROWS
from launches import write_whole
from sides import parse_size, size_text

from .errors import ReportError

BLOCK = re.compile(r"(?P<begin>^(?P<open><!-- |\[)gpushm-report: (?P<what>(?!end\b)[^\n]*?)(?: -->|\])\n).*?"
                   r"(?P<end>^(?:<!-- |\[)gpushm-report: end(?: -->|\])$)", re.S | re.M)
BEGIN = re.compile(r"^(?:<!-- |\[)gpushm-report: (?!end\b)", re.M)

NAMES = {"host": "host -> host", "dd": "GPU -> other GPU", "dd-unmapped": "without peer mapping", "dh": "GPU -> host",
         "hd": "host -> GPU", "one-gpu": "GPU -> same GPU", "managed-gpu-stays": "managed, on the GPUs",
         "managed-gpu": "managed, after a synchronize", "managed-cpu": "managed, on the CPUs"}
SIDES = {"gpushm": "gpushm", "peer": "UCX"}
# (source, test, {side: its name in documents}).
WHAT = {"latency": ("messages", "latency", SIDES), "window": ("messages", "window", SIDES),
        "raw": ("messages", "latency", {"raw": "the driver"}),
        "standby": ("messages", "latency", {"standby": "the standby kernel"}),
        "steps": ("steps", "step", {"gpushm": "gpushm", "staged": "staged", "none": "none"}),
        "passes": ("steps", "pass", {"gpushm": "gpushm", "staged": "staged", "none": "none"}),
        "collectives": ("mpi", "collective", {"gpushm": "gpushm", "by host memory": "by host", "NCCL": "NCCL"}),
        "datatypes": ("mpi", "datatype", {"gpushm": "gpushm"})}
FIELD = 8  # letters of a column in plain text


class Request:
    """What the first line of a table asks for."""

    def __init__(self, text, path):
        words = text.split()
        where = f"{path}: 'gpushm-report: {text}'"
        options = dict(word.partition("=")[::2] for word in words[1:])
        if not words or words[0] not in WHAT or set(options) - {"rows", "sizes"}:
            raise ReportError(f"{where}: known are {', '.join(WHAT)}, with rows=... and sizes=...")
        self.source, self.test, self.sides = WHAT[words[0]]
        self.rows = options["rows"].split(",") if "rows" in options else None
        unknown = set(self.rows or []) - {row.name for row in ROWS}
        if self.source == "messages" and unknown:
            raise ReportError(f"{where}: there is no row {', '.join(sorted(unknown))}")
        try:
            self.sizes = [parse_size(size) for size in options["sizes"].split(",")] if "sizes" in options else None
        except ValueError:
            raise ReportError(f"{where}: sizes are such as 8,64K,4M") from None

    def cells(self, results):
        """Those that are wanted."""
        return [cell for cell in results.cells.select(source=self.source, test=self.test)
                if cell.side in self.sides and (self.rows is None or cell.row in self.rows) and
                (self.sizes is None or cell.size in self.sizes)]


def named_size(size):
    text = size_text(size)
    return f"{text[:-1]} {text[-1]}B" if text[-1] in "KM" else f"{text} B"


def time_text(value):
    return f"{value:.{2 if value < 1 else 1 if value < 100 else 0}f}"


def table_of(cells, request):
    """{(row, side): {size: text}}, in the wanted order of rows, with the sides of the request below each other."""
    rows = request.rows or list(dict.fromkeys(cell.row for cell in cells))
    found = {(row, side): {} for row in rows for side in request.sides}
    for cell in cells:
        found[cell.row, cell.side][cell.size] = time_text(cell.median)
    return {key: by_size for key, by_size in found.items() if by_size}


def markdown(lines):
    return ["| " + " | ".join(words) + " |" for words in [lines[0], ["---"] * len(lines[0]), *lines[1:]]]


def sizes_table(table, sizes, sides):
    """A column for each size."""
    several = len(sides) > 1
    lines = [(["transfer", "transport"] if several else ["copy"]) + [named_size(size) for size in sizes]]
    last = None
    for (row, side), by_size in table.items():
        name = "" if row == last else NAMES.get(row, row)
        lines.append([name] + ([sides[side]] if several else []) + [by_size.get(size, "-") for size in sizes])
        last = row
    return [line.replace("|  |", "| |") for line in markdown(lines)]


def sides_table(table, sides):
    """A column for each side."""
    keys = dict.fromkeys((row, size) for (row, _), by_size in table.items() for size in by_size)
    used = [side for side in sides if any(side == found for _, found in table)]
    lines = [["what", "size"] + [sides[side] for side in used]]
    lines += [[row, named_size(size) if size else "-"] + [table.get((row, side), {}).get(size, "-") for side in used]
              for row, size in keys]
    return markdown(lines)


def text_table(table, sizes, sides):
    """A column for each side below each size, as in README."""
    rows = list(dict.fromkeys(row for row, _ in table))
    width = max(len(NAMES.get(row, row)) for row in rows) + 5
    used = [side for side in sides if any(side == found for _, found in table)]
    group = FIELD * len(used)
    lines = [" " * width + "".join(named_size(size).ljust(group) for size in sizes),
             "from -> to".ljust(width) + "".join(sides[side].ljust(FIELD) for side in used) * len(sizes)]
    for row in rows:
        words = [table.get((row, side), {}).get(size, "-") for size in sizes for side in used]
        lines.append(NAMES.get(row, row).ljust(width) + "".join(word.ljust(FIELD) for word in words))
    return ["    " + line.rstrip() for line in lines]


def source_line(results):
    """Where the figures are from: machine, date, versions."""
    node = results.node
    gpus = [gpu["name"] for gpu in node["gpus"]]
    gpu = f"{len(gpus)} x {gpus[0]}" if gpus else "no GPU"
    commit = f" ({node['commit']})" if node["commit"] else ""
    counts = sorted({len(cell.values) for cell in results.cells.select(source="messages")})
    launches = f"; {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} launches" if counts else ""
    ucx = results.versions.get("gpushm") or node["ucx"] or "unknown"
    peer = f", beside UCX {results.versions['peer']}" if "peer" in results.versions else ""
    return (f"{gpu}, {node['cpu']}, driver {node['driver'] or 'unknown'}; {node['date'][:10]}; gpushm "
            f"{node['gpushm'] or 'unknown'}{commit} in UCX {ucx}{peer}{launches}.")


def made(results, request, is_text):
    """Lines of a table, or None where nothing of it was measured."""
    cells = request.cells(results)
    table = table_of(cells, request)
    sizes = request.sizes or sorted({cell.size for cell in cells if cell.size})
    if not table:
        return None
    if is_text:
        return text_table(table, sizes, request.sides)
    return sizes_table(table, sizes, request.sides) if request.source == "messages" else sides_table(table, request.sides)


def updated(text, path, results):
    """(the document with its tables made again, how many). A table of which nothing was measured stays."""
    count = 0

    def make(block):
        nonlocal count
        is_text = block["open"] == "["
        lines = made(results, Request(block["what"], path), is_text)
        if lines is None:
            return block[0]
        count += 1
        return "\n".join([block["begin"], *lines, "", ("    " if is_text else "") + source_line(results), "", block["end"]])

    if len(BEGIN.findall(text)) != len(BLOCK.findall(text)):
        raise ReportError(f"{path}: a table begins by 'gpushm-report:' and has no 'gpushm-report: end'")
    return BLOCK.sub(make, text), count


def update(path, results):
    """Writes the document anew; how many tables."""
    if results.node["simulated"]:
        raise ReportError(f"{results.path} was measured on the simulated driver, whose times say nothing: {path} stays "
                          "as it is")
    if not results.finished:
        raise ReportError(f"{results.path} is not complete: {path} stays as it is")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        content, count = updated(text, path, results)
        if content != text:
            write_whole(path, content)
    except OSError as error:
        raise ReportError(f"{path} cannot be updated: {error.strerror}") from error
    return count
