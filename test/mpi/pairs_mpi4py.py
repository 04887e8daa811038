#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Messages between two ranks through mpi4py in all pairs: NumPy arrays (host) and CuPy arrays
(device, managed), and PyTorch tensors (torch) where that is installed.

Run with: gpushm-run mpirun -n 2 python3 pairs_mpi4py.py [--same-device] [--max-size BYTES]
The exit status is 77 when mpi4py, NumPy or CuPy is missing or no GPU is there.
"""
import sys

SKIPPED = 77
KINDS = ["host", "device", "managed"]
SIZES = (0, 1, 7, 8, 4095, 4096, 4097, 65535, 65536, 65537, 1048575, 1048577, 4 << 20, 16 << 20,
         64 << 20)
GUARD = 256
WINDOW = 8


def skip(reason):
    print(f"pairs_mpi4py: skipped: {reason}")
    sys.exit(SKIPPED)


try:
    import numpy
except ImportError as error:
    skip(f"{error}: pip install numpy")
try:
    import cupy
except ImportError as error:
    skip(f"{error}: pip install cupy-cuda12x, or cupy-cuda13x")
try:
    from mpi4py import MPI
except ImportError as error:
    skip(f"{error}: pip install mpi4py")
try:
    import torch
    KINDS.append("torch")
except ImportError:
    torch = None


class Buffer:
    """An array of one memory kind in which a message lies between canaries."""

    def __init__(self, kind, size, offset):
        self.kind, self.size, self.offset = kind, size, offset
        total = size + offset + 2 * GUARD
        if kind == "host":
            self.array = numpy.empty(total, numpy.uint8)
        elif kind == "torch":
            self.array = torch.empty(total, dtype=torch.uint8, device="cuda")
        else:
            allocate = cupy.cuda.malloc_managed if kind == "managed" else cupy.cuda.memory.alloc
            self.array = cupy.ndarray(total, cupy.uint8, allocate(total))
        self.message = self.array[GUARD + offset:GUARD + offset + size]

    def put(self, content):
        if self.kind == "host":
            self.array[:] = content
        elif self.kind == "torch":
            self.array.copy_(torch.from_numpy(content))
            torch.cuda.current_stream().synchronize()
        else:
            self.array.set(content)
            # mpi4py does not wait for streams: the data has to be there before MPI sees the buffer.
            cupy.cuda.get_current_stream().synchronize()

    def get(self):
        if self.kind == "torch":
            return self.array.cpu().numpy()
        return self.array if self.kind == "host" else self.array.get()


def content_of(counter, size, offset, poison):
    """Canaries around a pattern that depends on counter and position, or around its complement."""
    total = size + offset + 2 * GUARD
    content = (numpy.arange(total, dtype=numpy.uint32) * 197 + 91).astype(numpy.uint8)
    positions = numpy.arange(size, dtype=numpy.uint64)
    words = positions // 5 + numpy.uint64(counter * 7919 + size)
    words *= numpy.uint64(0x9E3779B97F4A7C15)
    message = (words >> numpy.uint64(40)).astype(numpy.uint8) ^ positions.astype(numpy.uint8)
    content[GUARD + offset:GUARD + offset + size] = ~message if poison else message
    return content


class Ranks:
    def __init__(self, comm, same_device, max_size):
        self.comm, self.rank, self.peer = comm, comm.rank, 1 - comm.rank
        self.sizes = [size for size in SIZES if size <= max_size]
        self.counter = 0
        self.first_failure = None
        self.messages = 0
        count = cupy.cuda.runtime.getDeviceCount()
        self.device = 0 if same_device else self.rank % count
        cupy.cuda.Device(self.device).use()
        if torch is not None:
            torch.cuda.set_device(self.device)

    def check(self, what, counter, buffer):
        expected = content_of(counter, buffer.size, buffer.offset, False)
        got = buffer.get()
        self.messages += 1
        if not numpy.array_equal(expected, got) and self.first_failure is None:
            at = int(numpy.flatnonzero(expected != got)[0])
            self.first_failure = (f"{what}, size {buffer.size}, offset {buffer.offset}, byte "
                                  f"{at - GUARD - buffer.offset}: "
                                  f"expected {expected[at]:#04x}, got {got[at]:#04x}")

    def single(self, source_kind, target_kind, size, offset):
        for sender in (0, 1):
            self.counter += 1
            if self.rank == sender:
                buffer = Buffer(source_kind, size, offset)
                buffer.put(content_of(self.counter, size, offset, False))
                self.comm.Send([buffer.message, MPI.BYTE], self.peer, 1)
            else:
                buffer = Buffer(target_kind, size, offset)
                buffer.put(content_of(self.counter, size, offset, True))
                self.comm.Recv([buffer.message, MPI.BYTE], self.peer, 1)
                self.check("single", self.counter, buffer)

    def window(self, source_kind, target_kind):
        sizes = [size for size in self.sizes if size <= 1048577]
        base = self.counter
        self.counter += 2 * WINDOW
        sources, targets, requests = [], [], []
        for i in range(WINDOW):
            size = sizes[(base + 5 * i) % len(sizes)]
            sources.append(Buffer(source_kind, size, 0))
            sources[i].put(content_of(base + self.peer * WINDOW + i, size, 0, False))
            targets.append(Buffer(target_kind, size, 0))
            targets[i].put(content_of(base + self.rank * WINDOW + i, size, 0, True))
        for i in range(WINDOW):
            requests.append(self.comm.Irecv([targets[i].message, MPI.BYTE], self.peer, 2))
            requests.append(self.comm.Isend([sources[i].message, MPI.BYTE], self.peer, 2))
        MPI.Request.Waitall(requests)
        for i in range(WINDOW):
            self.check(f"window message {i}", base + self.rank * WINDOW + i, targets[i])

    def pair(self, source_kind, target_kind):
        """Runs all messages of a pair and prints its line. Returns whether the data was right."""
        self.first_failure, self.messages = None, 0
        for size in self.sizes:
            for offset in (0, 1, 3):
                self.single(source_kind, target_kind, size, offset)
        for _ in range(len(self.sizes)):
            self.window(source_kind, target_kind)
        outcomes = self.comm.allgather((self.messages, self.first_failure))
        failures = [f"rank {rank}: {text}" for rank, (_, text) in enumerate(outcomes) if text]
        if self.rank == 0:
            name = source_kind + " -> " + target_kind
            count = sum(messages for messages, _ in outcomes)
            print(f"{'FAIL' if failures else 'PASS'}  {name:20}  {count} messages", *failures,
                  sep="\n      ", flush=True)
        return not failures


def main():
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        print("pairs_mpi4py: needs 2 ranks: mpirun -n 2 python3 pairs_mpi4py.py", file=sys.stderr)
        return 2
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        skip(f"no usable GPU: {error}")
    max_size = SIZES[-1]
    if "--max-size" in sys.argv:
        max_size = int(sys.argv[sys.argv.index("--max-size") + 1])
    ranks = Ranks(comm, "--same-device" in sys.argv, max_size)
    if comm.rank == 0:
        print(f"{devices} device(s), CUDA driver {cupy.cuda.runtime.driverGetVersion()}, "
              f"{MPI.Get_library_version().split(',')[0]}, mpi4py and CuPy {cupy.__version__}"
              + (f", PyTorch {torch.__version__}" if torch is not None else ""))
    results = [ranks.pair(source, target) for source in KINDS for target in KINDS]
    if comm.rank == 0:
        print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
