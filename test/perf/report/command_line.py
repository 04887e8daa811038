# SPDX-License-Identifier: BSD-3-Clause
"""The command line: what the user wants, checked, and handed on."""
import os
import sys

from launches import ask_driver, write_whole
from sides import Side

from . import comparison, documents, exploration, limits, page, results, text
from .errors import ReportError, WrongData
from .node import busy_gpus, describe, same_machine
from .options import add_measuring_options, add_row_options, check, names_of, parser_for, sizes
from .plan import Plan
from .plots import need_matplotlib
from .processes import stop_by_signal
from .progress import Progress
from .runner import Runner

DESCRIPTION = """Measures what the GPUs of this node can do, what gpushm makes of it, and what another UCX
makes of it, and shows it on one page of HTML.

  gpushm-report --peer DIR/libucx/bin/ucx_perftest        measures for 7 minutes
  gpushm-report --budget 60 --output node.html            measures more
  gpushm-report show node.json --text                     the tables of such a run as text
  gpushm-report --compare old.json new.json               what a change did
  gpushm-report explore --sweeps chunk,eager              what settings are best
  gpushm-report limits node.json                          gpushm's table of costs, as measured
  gpushm-report tables --json node.json --update FILE...  tables of documents

man gpushm-report says what the page shows."""

# Options that decide, in each command that measures, whether a run continues another one.
DECISIVE = ("gpushm", "also", "peer", "devices", "cpus", "launches", "seconds", "only", "mpirun")


def look_at_node(options):
    """What there is, and the devices that are measured; ends with a line where measuring would make no sense."""
    launch = ask_driver(options.programs)
    if launch.failure and "WRONG DATA" in launch.failure:
        raise ReportError(launch.failure)
    node = describe(Side(f"gpushm={options.gpushm}"), launch.facts)
    if options.devices is None:
        options.devices = [0, 1] if launch.facts.get("devices", 0) > 1 else [0, 0]
    busy = list(busy_gpus(options.devices, node["gpus"]))
    if busy and not options.even_if_busy:
        raise ReportError(f"{busy[0]}: wait, choose others by --devices, or measure anyway by --even-if-busy")
    return node


def opened_results(options, plan, node):
    """Those of an interrupted run of the same plan, or new ones."""
    if not os.path.exists(options.json) or options.restart:
        return results.Results(options.json, plan, node)
    found = results.load(options.json)
    if found.finished:
        raise ReportError(f"{options.json} is complete: 'show' makes the page of it again, --restart measures again, "
                          "--output names another one")
    if found.plan != plan or not same_machine(found.node, node):
        raise ReportError(f"{options.json} is of a run with other options or on another machine: --restart "
                          "measures again, --output names another one")
    if any("WRONG DATA" in error["text"] for error in found.errors):
        raise ReportError(f"{options.json} is of a run that has ended with wrong data: --restart measures again")
    print(f"continuing {options.json}: {len(found.done)} launches are done", file=sys.stderr)
    found.left_out = []
    return found


def measure(options, decisive, make_plan, seconds, show):
    """Measures and writes the page, of what there is when something ends it. `decisive`: names of options."""
    need_matplotlib()
    stop_by_signal()
    node = look_at_node(options)
    found = opened_results(options, {name: getattr(options, name) for name in DECISIVE + decisive}, node)
    plan = make_plan(node["simulated"])
    tasks = plan.tasks(node["devices"])
    for what, why in plan.refused().items():
        found.leave_out(what, why)
        print(f"gpushm-report: left out: {what}: {why}", file=sys.stderr)
    found.save()
    try:
        Runner(found, tasks, seconds, Progress()).run()
    except (KeyboardInterrupt, WrongData) as end:
        show(found)
        if isinstance(end, WrongData):
            raise
        raise ReportError(f"interrupted: {options.output} has the results so far; the same command continues") from end
    show(found)
    return 1 if found.errors else 0


def run(arguments, installed):
    parser = parser_for("", "[OPTIONS]", DESCRIPTION)
    add_measuring_options(parser, installed)
    add_row_options(parser)
    options = parser.parse_args(arguments)
    budget = check(parser, options)

    def show_page(found):
        write_page(options.output, page.report_page(found))
        if options.text:
            print(text.report_text(found))

    return measure(options, ("budget", "rows", "sizes", "steps"),
                   lambda simulated: Plan(options, budget, simulated), 60 * budget.minutes, show_page)


def write_page(path, content):
    try:
        write_whole(path, content)
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror}") from error
    print(f"written: {path}", file=sys.stderr)


def show(arguments, _):
    parser = parser_for("show", " FILE.json [--output FILE.html] [--text]")
    parser.add_argument("file")
    parser.add_argument("--output", metavar="FILE", help="the page")
    parser.add_argument("--text", action="store_true", help="print the tables")
    options = parser.parse_args(arguments)
    found = results.load(options.file)
    if options.output or not options.text:
        need_matplotlib()
        write_page(options.output or os.path.splitext(options.file)[0] + ".html", page.report_page(found))
    if options.text:
        print(text.report_text(found))
    return 0


def compare(arguments, _):
    parser = parser_for("--compare", " OLD.json NEW.json [--output FILE.html]")
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--output", metavar="FILE", help="the comparison as a page")
    options = parser.parse_args(arguments)
    change = comparison.Comparison(results.load(options.old), results.load(options.new))
    print(comparison.as_text(change))
    if options.output:
        write_page(options.output, page.comparison_page(change))
    return 0


def show_limits(arguments, _):
    parser = parser_for("limits", " FILE.json")
    parser.add_argument("file")
    options = parser.parse_args(arguments)
    print(limits.candidate(results.load(options.file)), end="")
    return 0


def tables(arguments, _):
    parser = parser_for("tables", " --json FILE --update DOCUMENT...")
    parser.add_argument("--json", metavar="FILE", required=True)
    parser.add_argument("--update", metavar="DOCUMENT", nargs="+", required=True)
    options = parser.parse_args(arguments)
    found = results.load(options.json)
    for path in options.update:
        print(f"{path}: {documents.update(path, found)} tables")
    return 0


def explore(arguments, installed):
    parser = parser_for("explore", " [OPTIONS]", exploration.DESCRIPTION)
    add_measuring_options(parser, installed)
    parser.add_argument("--sweeps", type=names_of(exploration.SWEEPS), default=list(exploration.SWEEPS),
                        help="of " + ",".join(exploration.SWEEPS))
    parser.add_argument("--sizes", type=sizes, help="of messages, instead of each sweep's own")
    parser.set_defaults(output="gpushm-exploration.html", rows=[], steps="", budget=7, standby=False)
    options = parser.parse_args(arguments)
    own_sizes = options.sizes
    budget = check(parser, options)

    def show_page(found):
        write_page(options.output, page.exploration_page(found))
        if options.text:
            print(exploration.as_text(found))

    return measure(options, ("budget", "sweeps"),
                   lambda simulated: exploration.Exploration(options, own_sizes, simulated), 60 * budget.minutes, show_page)


COMMANDS = {"run": run, "show": show, "--compare": compare, "compare": compare, "explore": explore,
            "limits": show_limits, "tables": tables}


def main(arguments, **installed):
    """`installed`: where make has put what is not beside these modules: programs, gpushm; and the version."""
    version = installed.pop("version", "of the source tree")
    if arguments == ["--version"]:
        print(f"gpushm-report (gpushm) {version}")
        return 0
    command = COMMANDS.get(arguments[0]) if arguments else None
    try:
        status = command(arguments[1:], installed) if command else run(arguments, installed)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever read the text has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ReportError as error:
        print(f"gpushm-report: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gpushm-report: interrupted", file=sys.stderr)
        return 130
