# SPDX-License-Identifier: BSD-3-Clause
"""The rows of the table of messages between GPUs: what is sent where, and its least cost."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    name: str        # for --rows
    title: str
    source: str      # --from and --to of ucp_latency
    destination: str
    raw: str         # of raw_copies: the least that the bytes need
    raw_title: str
    perftest: str = None     # -m of ucx_perftest, where that can measure the row
    standby: str = None      # of raw_copies: the same by the standby kernel, where it does that
    one_device: bool = False
    unmapped: bool = False   # sides are told not to map each other's GPU memory
    standard: bool = True    # in the table without --rows

    @property
    def between_hosts(self):
        return self.source.startswith("host") and self.destination.startswith("host")


STAGED = "device to host and host to device, in chunks through pinned memory"
MAPPED = "copy out of the other process's memory (CUDA IPC)"
TO_HOST = "copy from device to pinned memory"
TO_DEVICE = "copy from pinned memory to device"

ROWS = [
    Row("host", "host to host", "host", "host", "memcpy", "memcpy", perftest="host"),
    Row("dd", "device to device, mapped", "device", "device", "peer", MAPPED, perftest="cuda",
        standby="standby-pull"),
    Row("dd-unmapped", "device to device, not mapped", "device", "device", "staged", STAGED,
        perftest="cuda", unmapped=True),
    Row("dh", "device to host", "device", "host", "d2h", TO_HOST, perftest="cuda,host",
        standby="standby-d2h"),
    Row("hd", "host to device", "host", "device", "h2d", TO_DEVICE, perftest="host,cuda",
        standby="standby-h2d"),
    Row("managed-cpu", "managed, on the CPU on both sides", "managed@cpu", "managed@cpu",
        "memcpy", "memcpy"),
    Row("managed-gpu", "managed, on the GPU on both sides", "managed@gpu", "managed@gpu",
        "staged", STAGED),
    Row("managed-gpu-stays", "managed, on the GPUs all the time", "managed@gpu-stays", "managed@gpu-stays",
        "staged", STAGED),
    Row("one-gpu", "device to device, two processes on one GPU", "device", "device", "peer",
        MAPPED, perftest="cuda", standby="standby-pull", one_device=True),
    Row("managed-cpu-gpu", "managed, on the CPU to on the GPU", "managed@cpu", "managed@gpu",
        "h2d", TO_DEVICE, standard=False),
    Row("managed-gpu-cpu", "managed, on the GPU to on the CPU", "managed@gpu", "managed@cpu",
        "d2h", TO_HOST, standard=False),
    Row("dd-pool", "device to device, memory of pools", "pool", "pool", "staged", STAGED,
        standard=False),
    Row("dh-pool", "device to host, memory of a pool", "pool", "host", "d2h", TO_HOST,
        standby="standby-d2h", standard=False),
    Row("hd-pool", "host to device, memory of a pool", "host", "pool", "h2d", TO_DEVICE,
        standby="standby-h2d", standard=False),
    Row("dd-new", "device to device, new buffers for every message", "device+new", "device+new",
        "peer", MAPPED, standard=False),
    Row("dh-new", "device to host, new host buffer for every message", "device", "host+new",
        "d2h", TO_HOST, standard=False),
    Row("hd-new", "host to device, new host buffer for every message", "host+new", "device",
        "h2d", TO_DEVICE, standard=False),
    Row("host-written", "host to host, written before each message", "host+written", "host",
        "memcpy", "memcpy", standard=False),
    Row("hd-written", "host to device, written before each message", "host+written", "device",
        "h2d", TO_DEVICE, standard=False),
]


def select_rows(names):
    """Without names the standard rows; "all" are all. ValueError for a name that is none."""
    if not names:
        return [row for row in ROWS if row.standard]
    if names == ["all"]:
        return ROWS
    known = {row.name: row for row in ROWS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no row {', '.join(unknown)}: the rows are {', '.join(known)}, all")
    return [known[name] for name in names]
