# SPDX-License-Identifier: BSD-3-Clause
"""The sides of a comparison: programs with their environments, and what their figures come to."""
import os
import shlex
import statistics
import subprocess
import sys

UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_size(text):
    unit = UNITS.get(text[-1].lower())
    return int(text[:-1]) * unit if unit else int(text)


def size_text(size):
    for letter, unit in (("M", 1 << 20), ("K", 1 << 10)):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def parse_cpus(text):
    return [int(cpu) for cpu in text.split(",")]


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "launches": len(values)}


def loss_mark(times, others):
    """Empty where the median is no longer than the others'; "!" where even the shortest time is longer than all of the
    others, "~" otherwise. One launch counts as a spread of nothing."""
    if statistics.median(times) <= statistics.median(others):
        return ""
    return "!" if min(times) > max(others) else "~"


class Side:
    """NAME=COMMAND, where the command is VAR=VALUE words, then the program with its arguments."""

    def __init__(self, text):
        self.name, _, command = text.partition("=")
        words = shlex.split(command)
        split = next((i for i, w in enumerate(words) if "=" not in w), len(words))
        self.environment = dict(w.split("=", 1) for w in words[:split])
        self.command = words[split:]
        if not self.command:
            sys.exit(f"{os.path.basename(sys.argv[0])}: {text}: no command")

    def start(self, cpu, extra, arguments):
        environment = dict(os.environ, **self.environment, **extra)
        pinned = ["taskset", "-c", str(cpu)] if cpu is not None else []
        return subprocess.Popen(pinned + self.command + arguments, env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
