# SPDX-License-Identifier: BSD-3-Clause
"""python3 test/perf/report: gpushm-report from the source tree."""
import os
import sys

sys.dont_write_bytecode = True  # the tree may not be ours to write to
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from report.command_line import main

sys.exit(main(sys.argv[1:]))
