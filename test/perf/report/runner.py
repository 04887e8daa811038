# SPDX-License-Identifier: BSD-3-Clause
"""Does the tasks of a plan one after the other, until they are done or the time is over."""
import time

from .errors import WrongData

LEAST = 10     # seconds that a launch gets in any case
PATIENCE = 5   # times what it is expected to take


class Runner:
    def __init__(self, results, tasks, seconds, progress):
        self.results = results
        self.tasks = tasks
        self.seconds = seconds
        self.progress = progress
        self.failed = {error["family"] for error in results.errors}

    def spent(self):
        return sum(self.results.done.values())

    def expected(self, task):
        """By what tasks of this kind took so far."""
        kind = task.family.split("/")[0]
        took = planned = 0
        for other in self.tasks:
            if other.id in self.results.done and other.family.split("/")[0] == kind:
                took += self.results.done[other.id]
                planned += other.seconds
        return task.seconds * (took / planned if planned else 1)

    def waiting(self):
        return [task for task in self.tasks if task.id not in self.results.done and
                task.family not in self.failed]

    def show(self, task):
        remaining = sum(map(self.expected, self.waiting()))
        remaining = min(remaining, max(0, self.seconds - self.spent()))
        spent = self.spent()
        part = spent / (spent + remaining) if spent + remaining else 1
        self.progress.show(part, f"{task.name}, launch {task.launch + 1}", remaining)

    def run(self):
        """Raises WrongData; what is measured so far is in the results' file whatever ends this."""
        for task in self.tasks:
            if task.id in self.results.done or task.family in self.failed:
                continue
            expected = self.expected(task)
            if self.spent() + expected > self.seconds and self.results.done:
                self.results.leave_out(task.name.partition(":")[0], "the time was over for some launches (--budget)")
                continue
            self.show(task)
            self.do(task, max(LEAST, PATIENCE * expected))
        self.progress.clear()
        self.results.finished = True
        self.results.save()

    def do(self, task, limit):
        start = time.monotonic()
        outcome = task.measure(limit)
        self.results.record(task, time.monotonic() - start, outcome)
        self.results.save()
        if outcome.failure:
            self.failed.add(task.family)
            self.progress.say(f"gpushm-report: {task.name}: {outcome.failure}")
            if "WRONG DATA" in outcome.failure:
                raise WrongData(f"{task.name}: wrong data has arrived, so the run ends here")
