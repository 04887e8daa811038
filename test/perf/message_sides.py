# SPDX-License-Identifier: BSD-3-Clause
"""The sides of messages between GPUs, and how a row is measured on each: raw operations and the standby
kernel by raw_copies, gpushm, others and the peer by ucp_latency."""
import os
import sys

from launches import placement_arguments
from sides import Side

FIXED_SIDES = ["raw", "standby", "gpushm", "peer"]
RAW_SIDES = FIXED_SIDES[:2]


def peer_library_path(peer):
    """LD_LIBRARY_PATH for the libraries beside .../bin/ucx_perftest."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(peer))), "lib")
    if not os.path.exists(os.path.join(folder, "libucp.so.0")):
        sys.exit(f"{os.path.basename(sys.argv[0])}: --peer {peer}: there is no libucp.so.0 in {folder}")
    return ":".join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")]))


def add_message_options(parser):
    add = parser.add_argument
    add("--peer", metavar="PATH",
        help="ucx_perftest of the UCX with CUDA; its libraries are in ../lib")
    add("--unmapped-env", default="UCX_GPUSHM_PEER_MAPPING=n", metavar="VAR=VALUE",
        help="keeps gpushm from mapping GPU memory (default: %(default)s)")
    add("--peer-unmapped-env", default="UCX_TLS=^cuda_ipc", metavar="VAR=VALUE",
        help="and the peer (default: %(default)s)")


class MessageSides:
    """`options`: those of launches.add_common_options() and add_message_options(), and standby, sizes,
    tests and warm_up. `simulated`: whether the driver is, whose threads must not share a CPU with what
    polls."""

    def __init__(self, options, simulated=False):
        self.options = options
        self.simulated = simulated
        self.started = {side.name: side for side in
                        map(Side, [f"gpushm={options.gpushm}"] + options.also)}
        self.peer_library_path = peer_library_path(options.peer) if options.peer else None
        self.names = (["raw"] + (["standby"] if options.standby else []) + list(self.started) +
                      (["peer"] if options.peer else []))

    def of_row(self, row):
        return [side for side in self.names if side != "standby" or row.standby]

    def devices_of(self, row):
        first, second = self.options.devices
        return [first, first] if row.one_device else [first, second]

    def environment(self, side, row):
        environment = {}
        if side in self.started:
            environment.update(self.started[side].environment)
        if side == "peer":
            environment["LD_LIBRARY_PATH"] = self.peer_library_path
        if row.unmapped and side not in RAW_SIDES:
            option = (self.options.peer_unmapped_env if side == "peer" else
                      self.options.unmapped_env)
            environment.update([option.split("=", 1)])
        return environment

    def arguments(self, side, row):
        unbound = side == "standby" and self.simulated
        return [f"--sizes={self.options.sizes}", f"--tests={','.join(self.options.tests)}",
                f"--seconds={self.options.seconds}",
                *placement_arguments(self.devices_of(row), [] if unbound else self.options.cpus)]

    def command(self, side, row, limit):
        program = lambda name: os.path.join(self.options.programs, name)
        if side in RAW_SIDES:
            operation = row.raw if side == "raw" else row.standby
            command = [program("raw_copies"), f"--operations={operation}"]
        else:
            command = self.started[side].command if side in self.started else []
            command = command + [program("ucp_latency"), f"--from={row.source}",
                                 f"--to={row.destination}", f"--limit={limit:.0f}",
                                 f"--warm-up={self.options.warm_up}"]
        return command + self.arguments(side, row)
