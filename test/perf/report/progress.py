# SPDX-License-Identifier: BSD-3-Clause
"""What runs, and how long it still takes: a line that is written again and again on a terminal, a line
now and then elsewhere."""
import shutil
import sys
import time

BAR = 20
QUIET = 30  # seconds between two lines that are no terminal's


def time_text(seconds):
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


class Progress:
    def __init__(self, stream=sys.stderr):
        self.stream = stream
        self.on_terminal = stream.isatty()
        self.said = -QUIET
        self.shown = False

    def show(self, part, what, remaining):
        """`part`: of the work that is done, 0 to 1; `remaining`: seconds."""
        text = f"{100 * part:3.0f} %  {what}  ({time_text(remaining)} left)"
        if self.on_terminal:
            filled = int(BAR * part)
            line = f"[{'#' * filled}{'.' * (BAR - filled)}] {text}"
            width = shutil.get_terminal_size().columns - 1
            print("\r" + line[:width].ljust(width), end="", file=self.stream, flush=True)
            self.shown = True
        elif time.monotonic() - self.said >= QUIET:
            self.said = time.monotonic()
            print(text, file=self.stream, flush=True)

    def clear(self):
        if self.shown:
            width = shutil.get_terminal_size().columns - 1
            print("\r" + " " * width + "\r", end="", file=self.stream, flush=True)
            self.shown = False

    def say(self, text):
        """A line that stays."""
        self.clear()
        print(text, file=self.stream, flush=True)
