# SPDX-License-Identifier: BSD-3-Clause
"""Messages between GPUs: the rows of gpu_table.py."""
from launches import LAUNCH_LIMIT

from .cells import Cell
from .protocols import read_protocols
from .tasks import Outcome, Task, command_text, launched, needs_gpus

START = 0.8  # seconds that a launch takes beside its cells


class MessageSource:
    """`sides`: message_sides.MessageSides; `rows`: of gpu_rows; `name`: the source of the cells."""

    def __init__(self, sides, rows, name="messages"):
        self.sides = sides
        self.rows = rows
        self.name = name
        self.refused = {}  # what is left out: why

    def has_devices_for(self, row, devices):
        first, second = self.sides.options.devices
        if row.name == "dd" and first == second:
            self.refused[row.title] = "needs two GPUs (--devices)"
            return False
        if row.between_hosts or devices > max(self.sides.devices_of(row)):
            return True
        self.refused[row.title] = needs_gpus(max(self.sides.devices_of(row)) + 1, devices)
        return False

    def tasks(self, launch, devices):
        for row in self.rows:
            if not self.has_devices_for(row, devices):
                continue
            sides = self.sides.of_row(row)
            # Not always the same one after the same other.
            for side in sides if launch % 2 == 0 else sides[::-1]:
                yield Task(f"{self.name}/{row.name}/{side}", launch, f"{row.title}: {side}",
                           self.seconds(), lambda _, row=row, side=side: self.measure(row, side))

    def seconds(self):
        options = self.sides.options
        cells = len(options.sizes.split(",")) * len(options.tests)
        return START + options.warm_up + cells * 1.3 * options.seconds

    def measure(self, row, side):
        command = self.sides.command(side, row, LAUNCH_LIMIT)
        environment = self.sides.environment(side, row)
        launch = launched(command, environment, LAUNCH_LIMIT)
        text = command_text(command, environment)
        cells = [Cell(self.name, row.name, row.title, side, said["test"], said["size"], "us",
                      [said["us"]], text, window_text(said)) for said in launch.cells]
        return Outcome(cells, launch.failure, versions={side: launch.facts["ucx"]} if "ucx" in launch.facts else {})

    def protocol_tasks(self, devices):
        """What UCP chooses, asked once a row; no time of such a launch counts."""
        for row in self.rows:
            if self.has_devices_for(row, devices):
                yield Task(f"protocols/{row.name}", 0, f"{row.title}: UCP's choice", START,
                           lambda _, row=row: read_protocols(self.sides, row))


def window_text(said):
    return f"window {said['window']}" if "window" in said else ""
