# SPDX-License-Identifier: BSD-3-Clause
"""gpushm-report: measures a node and shows it on one page. README of the folder above says how."""
