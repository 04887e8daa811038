# SPDX-License-Identifier: BSD-3-Clause
"""Losses, comparison, protocols, sources and tables of documents, from results that are known."""
import json
import os
import tempfile
import types
import unittest

from example import results

from message_sides import MessageSides
from report import documents, report_tables, text
from report.cells import Cell, chance_apart, is_apart, mark
from report.comparison import Comparison, as_text
from report.errors import ReportError
from report.micro import read_benchmarks
from report.perf import PerfRun, PerfSource, add_rows
from report.protocols import chosen, parse_protocols, worse_choices
from report.results import load
from report.tasks import Outcome

SLOWER = ("dh", "gpushm", "latency", 8192)


def cell(values, unit="us", **more):
    return Cell(**{**{"source": "messages", "row": "dd", "title": "dd", "side": "gpushm", "test": "latency", "size": 8,
                      "unit": unit, "values": values, "command": "", "note": ""}, **more})


class Marks(unittest.TestCase):
    def test_slower_beyond_and_within_the_spread(self):
        self.assertEqual(mark(cell([3, 4]), cell([1, 2])), "!")
        self.assertEqual(mark(cell([2, 4]), cell([1, 3])), "~")
        self.assertEqual(mark(cell([1]), cell([2])), "")

    def test_more_of_a_rate_is_better(self):
        self.assertEqual(mark(cell([3, 4], "MB/s"), cell([1, 2], "MB/s")), "")
        self.assertEqual(mark(cell([1, 2], "MB/s"), cell([3, 4], "MB/s")), "!")

    def test_one_launch_is_no_spread(self):
        self.assertFalse(is_apart(cell([1]), cell([5, 6, 7])))
        self.assertTrue(is_apart(cell([1, 2, 3]), cell([5, 6, 7])))

    def test_chance(self):
        self.assertAlmostEqual(chance_apart(3, 3), 0.1)


class Losses(unittest.TestCase):
    def test_worst_first_and_with_cause(self):
        table = report_tables.losses_table(results({SLOWER: 5, ("dd", "gpushm", "window", 8): 2}))
        self.assertEqual([row[:3] for row in table.rows[:2]],
                         [["device to host", "latency", "8K"], ["device to device, mapped", "window", "8"]])
        self.assertTrue(table.rows[0][3].endswith("!"))
        self.assertIn("unexplained", table.rows[0][-1])
        self.assertRegex(table.rows[1][-1], r"^raw copies in flight take [0-9.]+ us each")

    def test_text_has_every_table(self):
        said = text.report_text(results({SLOWER: 5}))
        for words in ("Where gpushm is slower", "device to host: latency", "alpha + beta n", "sum of its parts",
                      "standby kernel is the quicker", "Where UCP does not choose", "How to measure a cell again",
                      "VARIABLE=value program --row=dh"):
            self.assertIn(words, said)


class Change(unittest.TestCase):
    def test_only_what_is_outside_both_spreads(self):
        change = Comparison(results(), results({SLOWER: 1.3, ("dd", "gpushm", "window", 65536): 0.7,
                                                ("dd", "gpushm", "latency", 8): 1.001}))
        self.assertEqual([one.new.key[1:] for one in change.significant(1)], [SLOWER])
        self.assertEqual([one.new.key[1:] for one in change.significant(-1)], [("dd", "gpushm", "window", 65536)])
        said = as_text(change)
        self.assertIn("1 of 132 cells are slower, 1 are faster", said)
        self.assertIn("by chance in at most about 13 of 132 cells", said)

    def test_single_launches_never_count(self):
        change = Comparison(results(), results({SLOWER: 9}, launches=1))
        self.assertEqual(change.significant(1), [])
        self.assertIn("132 cells have one launch on a side", change.rule())

    def test_another_machine_is_said(self):
        other = results()
        other.node["host"] = "another"
        self.assertIn("two machines", as_text(Comparison(results(), other)))

    def test_nothing_in_common(self):
        other = results()
        other.cells.by_key.clear()
        with self.assertRaises(ReportError):
            Comparison(results(), other)


UCX_SAYS = """[17.1] [vm:1:0]   +------------+-------------------------------------------+---------------+
[17.1] [vm:1:0]   | ucp_context_0 intra-node cfg#1                                         |
[17.1] [vm:1:0]   | tagged message by ucp_tag_send* from host memory                       |
[17.1] [vm:1:0]   +------------+-------------------------------------------+---------------+
[17.1] [vm:1:0]   |   Range    |                Description                |    Config     |
[17.1] [vm:1:0]   +------------+-------------------------------------------+---------------+
[17.1] [vm:1:0]   |     0..104 | eager short                               | gpushm/gpushm |
[17.1] [vm:1:0]   | 105..18973 | eager copy-in copy-out                    | gpushm/gpushm |
[17.1] [vm:1:0]   |   256K..inf | (?) rendezvous zero-copy read from remote | gpushm/gpushm |
[17.2] [vm:1:0]   | ucp_context_0 self cfg#0                         |
[17.2] [vm:1:0]   | tagged message by ucp_tag_send* from cuda/1b:00.0 |
[17.2] [vm:1:0]   | Range | Description |           Config           |
[17.2] [vm:1:0]   +-------+-------------+----------------------------+
[17.2] [vm:1:0]   |     0 | eager short | gpushm/gpushm |
"""

UCX_1_16_SAYS = """[17.1] [vm:1:0]   +---------------------------------+--------------------------------------------+---------------+
[17.1] [vm:1:0]   | 0x5559f1e8afe0 intra-node cfg#1 | tagged message by ucp_tag_send* from host memory          |
[17.1] [vm:1:0]   +---------------------------------+-------------------------------------------+---------------+
[17.1] [vm:1:0]   |                          0..104 | eager short                               | gpushm/gpushm |
[17.1] [vm:1:0]   |                      19554..inf | (?) rendezvous zero-copy read from remote | gpushm/gpushm |
[17.2] [vm:1:0]   | 0x5559f1e8afe0 intra-node cfg#1 | tagged message by ucp_tag_send* from cuda/1b:00.0         |
[17.2] [vm:1:0]   |                          0..inf | (?) rendezvous no data fetch                      |  |
"""


class Protocols(unittest.TestCase):
    def test_tables_without_headings_of_columns(self):
        host, device = parse_protocols(UCX_1_16_SAYS)
        self.assertEqual(host["operation"], "tagged message by ucp_tag_send* from host memory")
        self.assertEqual([one["first"] for one in host["ranges"]], [0, 19554])
        self.assertEqual(device["operation"], "tagged message by ucp_tag_send* from cuda/1b:00.0")
        self.assertEqual(device["ranges"], [
            {"first": 0, "last": None, "what": "(?) rendezvous no data fetch", "by": ""}])

    def test_tables_of_ucx(self):
        host, device = parse_protocols(UCX_SAYS)
        self.assertEqual(host["operation"], "tagged message by ucp_tag_send* from host memory")
        self.assertEqual(host["ranges"][2], {"first": 256 << 10, "last": None, "by": "gpushm/gpushm",
                                             "what": "(?) rendezvous zero-copy read from remote"})
        self.assertEqual(device["ranges"][0]["last"], 0)
        said = [dict(host, row="hd")]
        self.assertEqual(chosen(said, "hd", "host", 200), "eager copy-in copy-out")
        self.assertEqual(chosen(said, "hd", "host", 1 << 30), "rendezvous zero-copy read from remote")
        self.assertIsNone(chosen(said, "hd", "device", 8))

    def test_worse_choices(self):
        found = results()
        for side, values in (("gpushm", [5, 5.1, 5.2]), ("eager", [4, 4.1, 4.2]), ("rendezvous", [6, 6.1, 6.2])):
            found.cells.add(cell(values, source="protocol", side=side))
            found.cells.add(cell([3, 4, 5], source="protocol", side=side, size=64))
        (mine, best), = worse_choices(found.cells)
        self.assertEqual((mine.size, best.side), (8, "eager"))


class Sources(unittest.TestCase):
    def test_google_benchmark(self):
        done = types.SimpleNamespace(returncode=0, stderr="", stdout=json.dumps({"benchmarks": [
            {"name": "copy/host_to_device/kind_known/4096/real_time", "run_type": "iteration", "real_time": 5500.0,
             "time_unit": "ns", "driver_calls": 1.0},
            {"name": "pack/device/block:4/bytes:65536/real_time", "real_time": 12.0, "time_unit": "us"},
            {"name": "driver/cuEventRecord", "real_time": 500.0, "time_unit": "ns"}]}))
        outcome = read_benchmarks(done, "command")
        self.assertEqual([(one.row, one.size, one.values) for one in outcome.cells], [
            ("copy/host_to_device/kind_known", 4096, [5.5]), ("pack/device/block:4", 65536, [12.0]),
            ("driver/cuEventRecord", None, [0.5])])
        self.assertEqual(outcome.cells[0].note, "1 calls of the driver")

    def test_google_benchmark_that_fails(self):
        done = types.SimpleNamespace(returncode=1, stderr="micro_benchmarks: no driver\n", stdout="")
        self.assertEqual(read_benchmarks(done, "").failure, "status 1 micro_benchmarks: no driver")
        done.stdout = json.dumps({"benchmarks": [{"name": "copy/a/1", "error_occurred": True,
                                                  "error_message": "WRONG DATA at byte 3"}]})
        self.assertEqual(read_benchmarks(done, "").failure, "copy/a/1: WRONG DATA at byte 3")

    def perf_row(self, situation, value, **more):
        return {**{"test": "latency", "from": "device", "to": "host", "situation": situation, "size": 8, "value": value,
                   "unit": "us", "validated": True}, **more}

    def added(self, rows, *errors, side="gpushm"):
        outcome = Outcome()
        add_rows(outcome, {"ucx": "1.16.0", "rows": rows, "errors": [
            {"test": "bw", "situation": "busy", "text": text} for text in errors]}, "a run", side, "c")
        return outcome

    def test_rows_of_gpushm_perf(self):
        faults = {"cpu": 4.25, "managed_cpu": None, "gpu": None}
        outcome = self.added([self.perf_row("normal", 9.5), self.perf_row("busy", 12), self.perf_row("staged", 19),
                              self.perf_row("MD-MD", 9, page_faults=faults)], side="peer")
        self.assertEqual([(one.row, one.side) for one in outcome.cells], [
            ("a run: device to host", "peer"), ("a run: busy, device to host", "peer"),
            ("a run: device to host", "staged"), ("a run: MD-MD", "peer")])
        self.assertEqual(outcome.cells[3].note, "page faults: CPU 4.2; managed memory: not counted")
        faults = {"cpu": 4, "managed_cpu": 1.5, "gpu": 2}
        self.assertEqual(self.added([self.perf_row("MH-MD", 9, page_faults=faults)]).cells[0].note,
                         "page faults: CPU 4.0 (1.5 in managed memory), GPU 2.0")
        self.assertEqual((outcome.failure, outcome.versions), (None, {"peer": "1.16.0"}))

    def perf_source(self, folder, **options):
        """Of programs that are in `folder`."""
        for name in ("gpushm-perf", "gpushm-perf-mpi"):
            with open(os.path.join(folder, name), "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o755)):
                pass
        sides = MessageSides(types.SimpleNamespace(**{**{
            "gpushm": "A=b env", "also": [], "peer": None, "standby": False, "programs": folder, "devices": [0, 1],
            "cpus": [2, 4], "mpirun": "env -n", "seconds": 0.05}, **options}))
        return PerfSource(sides, {"alone": PerfRun("gpushm-perf", ("--tests=bw",), 4),
                                  "ranks": PerfRun("gpushm-perf-mpi", (), 2)}, "8,4m")

    def test_commands_of_gpushm_perf(self):
        with tempfile.TemporaryDirectory() as folder:
            source = self.perf_source(folder)
            self.assertEqual([task.id for task in source.tasks(0, 2)], ["perf/alone/gpushm/0", "perf/ranks/gpushm/0"])
            alone, ranks = source.runs.values()
            common = ["--sizes=8,4m", "--seconds=0.05", "--devices=0,1"]
            self.assertEqual(source.command(alone, "gpushm"),
                             ["env", f"{folder}/gpushm-perf", "--tests=bw", *common, "--cpus=2,4"])
            self.assertEqual(source.command(ranks, "gpushm"), ["env", "env", "-n", f"{folder}/gpushm-perf-mpi", *common])
            self.assertEqual(source.environment("gpushm"), {"A": "b"})
            self.assertEqual(source.command(alone, "peer")[0], f"{folder}/gpushm-perf")
            self.assertEqual(source.command(ranks, "peer")[:4], ["env", "-n", "-x", "LD_LIBRARY_PATH"])

    def test_why_gpushm_perf_is_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            source = self.perf_source(folder, mpirun="nowhere/mpirun -n 2")
            self.assertEqual(list(source.tasks(0, 1)), [])
            self.assertEqual(source.refused["gpushm-perf"], "needs 2 GPUs, there is 1")
            source.refused.clear()
            self.assertEqual([task.name for task in source.tasks(0, 2)], ["alone: gpushm"])
            self.assertEqual(source.refused, {"gpushm-perf-mpi": "nowhere/mpirun is not there (--mpirun)"})
            source.refused.clear()
            os.unlink(os.path.join(folder, "gpushm-perf-mpi"))
            self.assertEqual([task.name for task in source.tasks(0, 2)], ["alone: gpushm"])
            self.assertEqual(source.refused, {"gpushm-perf-mpi": "it is not there: built without mpicxx"})

    def test_wrong_data_of_gpushm_perf_is_told_first(self):
        self.assertEqual(self.added([], "no memory").failure, "bw, busy: no memory")
        self.assertEqual(self.added([], "no memory", "8 bytes: WRONG DATA at byte 3").failure,
                         "bw, busy: 8 bytes: WRONG DATA at byte 3")

    def test_tables_of_gpushm_perf(self):
        found = results()
        rate = {"test": "bw", "unit": "MB/s"}
        rows = [self.perf_row("normal", 10), self.perf_row("staged", 20), self.perf_row("normal", 300, **rate),
                self.perf_row("staged", 200, **rate)]
        for one in self.added(rows).cells + self.added([self.perf_row("normal", 8)], side="peer").cells:
            found.cells.add(one)
        latency, bandwidth, gains = report_tables.perf_tables(found)
        self.assertEqual((latency.caption, latency.rows), ("a run: latency, us", [
            ["device to host", "gpushm", "10.0"], ["device to host", "staged", "20.0"], ["device to host", "peer", "8.00"],
            ["device to host", "gpushm/staged", "0.50"], ["device to host", "gpushm/peer", "1.25!"]]))
        self.assertEqual(bandwidth.rows[2], ["device to host", "gpushm/staged", "0.67"])
        self.assertEqual(gains.rows, [["device to host", "latency", "staged", "50.0 %"],
                                      ["device to host", "bw", "staged", "50.0 %"]])


class Documents(unittest.TestCase):
    page = ("Text.\n\n<!-- gpushm-report: latency rows=dd,dh sizes=8,4M -->\n\n| old |\n<!-- gpushm-report: end -->\nMore.\n"
            "<!-- gpushm-report: window rows=hd -->\nstays\n<!-- gpushm-report: end -->\n")

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "page.md")

    def written(self, content):
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(content)

    def read(self):
        with open(self.path, encoding="utf-8") as file:
            return file.read()

    def test_tables_are_made_again(self):
        self.written(self.page)
        self.assertEqual(documents.update(self.path, results()), 1)
        once = self.read()
        for words in ("| transfer | transport | 8 B | 4 MB |", "| GPU -> other GPU | gpushm | 4.6", "| | UCX |",
                      "2 x NVIDIA H200, A processor, driver 580.95; 2026-03-01; gpushm 0.1.0 in UCX 1.16.0; 3 launches.",
                      "Text.", "stays"):
            self.assertIn(words, once)
        self.assertNotIn("old", once)
        documents.update(self.path, results())
        self.assertEqual(self.read(), once)

    def test_plain_text(self):
        self.written("[gpushm-report: latency rows=dd,dh sizes=8,64K]\nold\n[gpushm-report: end]\n")
        self.assertEqual(documents.update(self.path, results()), 1)
        self.assertIn("    from -> to           gpushm  UCX     gpushm  UCX\n    GPU -> other GPU     4.6", self.read())
        self.assertNotIn("old", self.read())

    def test_other_programs(self):
        found = results()
        for side, time in (("gpushm", 38.7), ("staged", 150.2)):
            found.cells.add(cell([time], source="steps", row="wait-stream-4K", side=side, test="step", size=4096))
        self.written("<!-- gpushm-report: steps -->\n<!-- gpushm-report: end -->\n")
        documents.update(self.path, found)
        self.assertIn("| what | size | gpushm | staged |\n| --- | --- | --- | --- |\n| wait-stream-4K | 4 KB | 38.7 | 150 |",
                      self.read())

    def test_those_of_this_tree(self):
        top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
        for name, count in (("README", 1), (os.path.join("doc", "performance.md"), 4)):
            with open(os.path.join(top, name), encoding="utf-8") as file:
                self.assertGreaterEqual(documents.updated(file.read(), name, results())[1], count, name)

    def test_what_is_wrong_changes_nothing(self):
        for content in (self.page.replace("rows=dd", "rows=nowhere"), self.page.replace("latency rows", "speed rows"),
                        self.page.replace("sizes=8", "sizes=x"), self.page + "<!-- gpushm-report: latency -->\n"):
            self.written(content)
            with self.assertRaises(ReportError):
                documents.update(self.path, results())
            self.assertEqual(self.read(), content)

    def test_simulated_and_unfinished_figures_are_refused(self):
        self.written(self.page)
        for name in ("simulated", "unfinished"):
            found = results()
            found.node["simulated"], found.finished = name == "simulated", name != "unfinished"
            with self.assertRaises(ReportError):
                documents.update(self.path, found)


class Files(unittest.TestCase):
    def test_saved_and_loaded(self):
        with tempfile.TemporaryDirectory() as folder:
            found = results({SLOWER: 5}, path=os.path.join(folder, "r.json"))
            found.leave_out("a", "why")
            found.save()
            again = load(found.path)
            self.assertEqual(text.report_text(again), text.report_text(found))

    def test_no_file_of_ours(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "r.json")
            for content in ("", "[1]", '{"program": "other"}', '{"program": "gpushm-report", "format": 99}',
                            '{"program": "gpushm-report", "format": 1, "plan": {}, "node": {}, "cells": [{"a": 1}]}'):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(content)
                with self.assertRaises(ReportError):
                    load(path)
            with self.assertRaises(ReportError):
                load(os.path.join(folder, "absent.json"))


if __name__ == "__main__":
    unittest.main()
