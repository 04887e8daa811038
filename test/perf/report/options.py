# SPDX-License-Identifier: BSD-3-Clause
"""Options of the commands that measure, and whether they make sense on this machine."""
import argparse
import os
import shutil

from gpu_rows import ROWS, select_rows
from launches import add_side_options
from message_sides import FIXED_SIDES, add_message_options
from sides import Side, parse_size

from .errors import ReportError
from .plan import BUDGETS, SOURCES
from .programs import default_python
from .tasks import missing_programs


def names_of(known):
    def parse(text):
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}: there are {', '.join(known)}")
        return names
    return parse


def sizes(text):
    try:
        parsed = [parse_size(size) for size in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no list of sizes such as 8,64K,4M") from None
    if min(parsed) <= 0:
        raise argparse.ArgumentTypeError(f"{text}: sizes are at least 1")
    return text


class Parser(argparse.ArgumentParser):
    """Wrong options are said in one line."""

    def error(self, message):
        self.exit(2, f"gpushm-report: {message}; see gpushm-report --help\n")


def parser_for(name, usage, description=None):
    return Parser(prog="gpushm-report", usage=f"gpushm-report {name}{usage}", description=description,
                  formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)


def add_measuring_options(parser, installed):
    add = parser.add_argument
    add("--output", metavar="FILE", help="the page (default: %(default)s)")
    add("--json", metavar="FILE", help="the figures, from which an interrupted run continues (default: "
        "the name of the page with .json)")
    add("--restart", action="store_true", help="measure all again instead of continuing")
    add("--even-if-busy", action="store_true", help="measure on GPUs that others use, too")
    add("--text", action="store_true", help="print the tables as well")
    add("--only", type=names_of(SOURCES), default=[], metavar="SOURCES", help="of " + ",".join(SOURCES))
    add("--mpirun", default="mpirun -n 2", metavar="COMMAND", help="how two ranks are started (default: %(default)s)")
    add("--python", default=default_python(), help="a Python with mpi4py (default: %(default)s)")
    add("--budget", type=float, default=7, metavar="MINUTES", help="2, 7 or 60 (default: %(default)s)")
    add("--launches", type=int, help="of each row of messages")
    add("--seconds", type=float, help="for each cell of a launch")
    add("--warm-up", type=float, default=0.3, help="seconds, of each launch (default: %(default)s)")
    add_message_options(parser)
    add_side_options(parser, cpus=2)
    parser.set_defaults(output="gpushm-report.html", standby=True, tests=["latency", "window"], devices=None, **installed)


def add_row_options(parser):
    add = parser.add_argument
    add("--rows", type=lambda text: text.split(","), default=None,
        help="of " + ",".join(row.name for row in ROWS) + ", or all")
    add("--sizes", type=sizes, help="of messages")
    add("--steps", metavar="NAMES", help="cells of program_steps")
    add("--version", action="store_true", help="print the version and exit")


def check(parser, options):
    """What depends on more than one option, and on the machine."""
    if options.budget not in BUDGETS:
        parser.error(f"--budget {options.budget:g}: the budgets are {', '.join(map(str, BUDGETS))} minutes")
    budget = BUDGETS[options.budget]
    options.perf_sizes = getattr(options, "sizes", None) or budget.perf_sizes
    for name in ("launches", "rows", "sizes", "steps", "seconds"):
        if getattr(options, name, None) is None:
            value = getattr(budget, name)
            setattr(options, name, [word for word in value.split(",") if word] if name == "rows" else value)
    if options.launches < 1 or options.seconds <= 0:
        parser.error("--launches and --seconds: more than 0")
    taken = [side.partition("=")[0] for side in options.also]
    if len(set(taken + FIXED_SIDES)) < len(taken + FIXED_SIDES):
        parser.error(f"--also: names other than {', '.join(FIXED_SIDES)}, each once")
    try:
        select_rows(options.rows)
    except ValueError as error:
        parser.error(f"--rows: {error}")
    if len(os.sched_getaffinity(0)) < 2:
        raise ReportError("this machine is too small: two processes need two processors")
    if len(options.cpus) != 2 or options.devices is not None and len(options.devices) != 2:
        parser.error("--devices and --cpus: two numbers, such as 0,1")
    options.json = options.json or os.path.splitext(options.output)[0] + ".json"
    options.scripts = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    check_files(options)
    return budget


def check_files(options):
    missing = missing_programs(options.programs, ["raw_copies", "ucp_latency"])
    if missing:
        raise ReportError(f"{missing[0]} is not in {options.programs}: name the folder of the programs by --programs")
    side = Side(f"gpushm={options.gpushm}")
    if shutil.which(side.command[0]) is None:
        raise ReportError(f"{side.command[0]} is not there: name gpushm-run with its path by --gpushm")
    folder = os.path.dirname(os.path.abspath(options.output))
    if not os.access(folder, os.W_OK):
        raise ReportError(f"{options.output} cannot be written: no such folder, or not yours to write to")
    if options.peer and not os.path.exists(options.peer):
        raise ReportError(f"the peer is not there: --peer {options.peer}")
