# SPDX-License-Identifier: BSD-3-Clause
"""Launches of ucx_perftest: a server and a client on this machine."""
import itertools
import subprocess
import time


def iterations(test, size, kinds):
    """About a tenth of a second, at 10 GB/s and 1 us a message (10 us with a GPU)."""
    limit = 100000 if test.endswith("_lat") else 500000
    if kinds != "host":
        limit //= 10
    return max(20, min(limit, int(1e9 / max(size, 1))))


def listens(port):
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as lines:
            for line in lines:
                columns = line.split()
                if columns[1].endswith(wanted) and columns[3] == "0A":
                    return True
    return False


def wait_for_server(server, port, limit=30):
    end = time.monotonic() + limit
    while time.monotonic() < end and server.poll() is None:
        if listens(port):
            return True
        time.sleep(0.02)
    return False


def figures_of(output):
    """Of the last line of its table, which all versions from 1.13 on write alike, or None."""
    for line in output.splitlines():
        if line.startswith("Final:"):
            columns = line.split()
            return {"latency_us": float(columns[2]),          # median, one way
                    "megabytes_per_second": float(columns[6]),  # of the whole test
                    "messages_per_second": float(columns[8])}
    return None


class Perftest:
    """How it is launched: CPUs and environments of server and client."""

    def __init__(self, cpus=None, server_env=(), client_env=(), timeout=120, port=23400):
        self.cpus = cpus or [None, None]
        self.server_env = dict(server_env)
        self.client_env = dict(client_env)
        self.timeout = timeout
        self.ports = itertools.cycle(range(port, port + 200))

    def measure(self, side, test, size, kinds):
        """One launch; (figures_of, None) or (None, why not)."""
        port = next(self.ports)
        count = iterations(test, size, kinds)
        arguments = ["-p", str(port), "-t", test, "-s", str(size), "-n", str(count),
                     "-w", str(max(10, count // 10))]
        if kinds != "host":
            arguments += ["-m", kinds]
        server = side.start(self.cpus[0], self.server_env, arguments)
        try:
            if not wait_for_server(server, port):
                server.kill()
                return None, server.communicate()[0].strip().splitlines()[-1:]
            client = side.start(self.cpus[1], self.client_env, arguments + ["localhost"])
            output = client.communicate(timeout=self.timeout)[0]
        except subprocess.TimeoutExpired:
            client.kill()
            return None, ["timeout"]
        finally:
            server.kill()
            server.wait()
        figures = figures_of(output)
        return figures, None if figures else output.strip().splitlines()[-1:]
