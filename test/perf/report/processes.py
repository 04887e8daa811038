# SPDX-License-Identifier: BSD-3-Clause
"""Programs of which nothing is left when this one is interrupted."""
import contextlib
import os
import signal
import subprocess

GRACE = 3  # seconds that mpirun has to end its ranks


def end_group(process):
    """The program, and what it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def run(command, timeout=None, **arguments):
    """subprocess.run() in a process group of its own, which ends whatever ends this call."""
    with subprocess.Popen(command, start_new_session=True, **arguments) as process:
        try:
            output, problems = process.communicate(timeout=timeout)
        except BaseException:
            end_group(process)
            raise
        return subprocess.CompletedProcess(command, process.returncode, output, problems)


def output_of(command, timeout=20):
    """What a program prints, or None where it is missing or fails."""
    try:
        done = run(command, timeout, text=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def stop_by_signal():
    """Whoever ends this program by SIGTERM or SIGHUP interrupts it like Ctrl-C."""
    def interrupt(*_):
        raise KeyboardInterrupt
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, interrupt)
