# SPDX-License-Identifier: BSD-3-Clause
"""The fits and thresholds find what the figures were made of."""
import math
import random
import unittest

from example import SIZES, results

from report import limits, paths
from report.model import crossing, fit, fit_line


class Fit(unittest.TestCase):
    def test_line_is_found(self):
        line, = fit([(n, 4 + 0.002 * n) for n in (8, 64, 1024, 65536)])
        self.assertAlmostEqual(line.alpha, 4, places=6)
        self.assertAlmostEqual(line.beta, 0.002, places=9)
        self.assertLess(line.residual, 1e-9)
        self.assertEqual((line.first, line.last, line.points), (8, 65536, 4))

    def test_noise_is_in_the_residual(self):
        chance = random.Random(2)
        line, = fit([(n, (4 + 0.002 * n) * chance.choice((0.95, 1.05))) for n in (8, 64, 512, 4096, 32768, 262144)])
        self.assertAlmostEqual(line.residual, 0.05, delta=0.015)
        self.assertAlmostEqual(line.alpha, 4, delta=0.4)

    def test_small_sizes_count_as_much_as_large_ones(self):
        """By absolute errors the 64 MB would decide, and alpha would be anything."""
        line, = fit([(8, 4.0), (1024, 4.0), (8192, 4.1), (64 << 20, 2000.0)])
        self.assertAlmostEqual(line.alpha, 4, delta=0.2)

    def test_two_engines_are_two_lines(self):
        sizes = [8, 64, 512, 4096, 32768, 65536, 131072, 524288, 2 << 20, 8 << 20]
        lines = fit([(n, 3 + 0.0001 * n if n <= 65536 else 12 + 0.00002 * n) for n in sizes])
        self.assertEqual([(line.first, line.last) for line in lines], [(8, 65536), (131072, 8 << 20)])
        self.assertAlmostEqual(lines[0].alpha, 3, places=3)
        self.assertAlmostEqual(lines[1].alpha, 12, places=3)

    def test_no_line_through_two_points(self):
        self.assertEqual(fit([(8, 1), (1024, 2)]), [])

    def test_neither_alpha_nor_beta_is_negative(self):
        self.assertEqual(fit_line([(8, 5), (1024, 4), (8192, 3)]).beta, 0)
        line = fit_line([(1024, 1.0), (4096, 4.4), (8192, 9.0)])
        self.assertEqual(line.alpha, 0)
        self.assertGreater(line.beta, 0)

    def test_one_size_only(self):
        self.assertEqual(fit_line([(8, 2), (8, 4), (8, 2)]).beta, 0)


class Crossing(unittest.TestCase):
    def test_between_two_sizes(self):
        found = crossing([(1024, 2), (4096, 4)], [(1024, 4), (4096, 2)])
        self.assertAlmostEqual(found, 2048, places=6)

    def test_never_and_always(self):
        self.assertIsNone(crossing([(8, 2), (64, 2)], [(8, 1), (64, 1)]))
        self.assertEqual(crossing([(8, 1), (64, 1)], [(8, 2), (64, 2)]), math.inf)
        self.assertIsNone(crossing([], []))


class Limits(unittest.TestCase):
    def test_table_of_the_sources_is_read(self):
        used = limits.used("kClusterCosts")
        self.assertEqual(len(used), 8)
        self.assertEqual(used["in_traffic", "to_host"], 64 << 10)

    def test_candidate_has_what_was_measured(self):
        text = limits.candidate(results())
        # 4.0 + 0.008 n = 6.5 + 0.003 n: 500 KB. To the host 3.2 + 0.025 n = 6.8 + 0.018 n: 514 KB.
        self.assertIn("/*between_gpus=*/384u << 10", text)
        self.assertIn("/*gpu_copy_start=*/6.", text)
        self.assertIn("4 of 8 limits", text)
        block = limits.TABLE.findall(text)[0]
        self.assertEqual(block, limits.TABLE.findall(limits.header())[0], "the other generation stays as it is")

    def test_limits_in_traffic_are_at_most_those_alone(self):
        """standby_policy.cpp asserts it."""
        slow = results({("dd", "standby", "latency", size): 1.5 for size in SIZES})
        values = dict(limits.TABLE.findall(limits.candidate(slow)))["kClusterCosts"]
        alone, traffic = (dict(limits.ENTRY.findall(group)) for group in values.split("{")[1:3])
        for name, text in alone.items():
            self.assertLessEqual(limits.number(traffic[name]), limits.number(text), name)


class Parts(unittest.TestCase):
    def test_sum_and_rest(self):
        found = {(part.row, part.size): part for part in paths.explain(results().cells)}
        part = found["dd", 8]
        self.assertEqual(part.engine, "standby")
        self.assertAlmostEqual(part.whole, 4.6, delta=0.1)
        self.assertAlmostEqual(part.hops, 0.3, delta=0.01)
        self.assertAlmostEqual(part.unexplained, 4.6 - 0.3 - 4.0, delta=0.1)
        self.assertEqual(found["dd", 4 << 20].engine, "raw")
        self.assertNotIn(("host", 8), found, "the message that all are measured by")


if __name__ == "__main__":
    unittest.main()
