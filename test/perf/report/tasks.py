# SPDX-License-Identifier: BSD-3-Clause
"""What a report starts: one launch of one program each, and what comes of it."""
import dataclasses
import os
import shlex
import subprocess

from launches import Launch

from .processes import run


@dataclasses.dataclass
class Outcome:
    cells: list = dataclasses.field(default_factory=list)
    failure: str = None
    protocols: list = dataclasses.field(default_factory=list)
    versions: dict = dataclasses.field(default_factory=dict)  # side: its UCX


@dataclasses.dataclass(frozen=True)
class Task:
    """`measure(limit)` gives an Outcome. Tasks of one `family` are not started again when one failed.
    `seconds`: about how long it takes."""
    family: str
    launch: int
    name: str
    seconds: float
    measure: object

    @property
    def id(self):
        return f"{self.family}/{self.launch}"


def command_text(command, environment):
    """What a shell understands."""
    words = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return " ".join(words + [shlex.join(command)])


def launched(command, environment, limit):
    """A Launch whose program ends with this one."""
    return Launch(command, environment, limit, run)


def finished(command, environment, limit, problems):
    """(the program once it has ended, None) or (None, why there is none). `limit`: seconds; `problems`: where its
    standard error goes, as subprocess says it."""
    try:
        return run(command, limit, env=dict(os.environ, **environment), text=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.PIPE, stderr=problems), None
    except subprocess.TimeoutExpired:
        return None, f"not ready after {limit:.0f} s"
    except OSError as error:
        return None, str(error)


def needs_gpus(count, devices):
    """Why something is left out."""
    return f"needs {count} GPU{'s' if count > 1 else ''}, there {'is' if devices == 1 else 'are'} {devices}"


def missing_programs(folder, names):
    return [name for name in names if not os.access(os.path.join(folder, name), os.X_OK)]
