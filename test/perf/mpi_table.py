#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What operations of MPI on GPU buffers take: derived datatypes beside contiguous messages, collectives beside the same
by way of host memory, and beside NCCL (where PyTorch is installed) between the same processes.

Run with: gpushm-run mpirun -n 2 python3 mpi_table.py
"""
import argparse
import ctypes
import json
import random
import statistics
import sys
import time

try:
    from mpi4py import MPI
    cuda = ctypes.CDLL("libcuda.so.1")
except ImportError as missing:
    sys.exit(f"mpi_table.py: {missing}: install mpi4py for this Python (Debian and Ubuntu: python3-mpi4py)")
except OSError as missing:
    sys.exit(f"mpi_table.py: there is no CUDA driver to measure with: {missing}")

MIB = 1 << 20


def check(result, what):
    if result != 0:
        raise RuntimeError(f"{what}: CUDA error {result}")


def use_gpu(rank):
    """The context of a GPU of this rank's own, if there are enough."""
    count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    check(cuda.cuDeviceGet(ctypes.byref(device), rank % count.value), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    return rank % count.value


class DeviceBuffer:
    """Floats in device memory."""

    def __init__(self, count):
        self.bytes = ctypes.c_size_t(4 * count)
        self.address = ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(self.address), self.bytes), "cuMemAlloc")
        check(cuda.cuMemsetD8_v2(self.address, ctypes.c_ubyte(0), self.bytes), "cuMemsetD8")
        check(cuda.cuCtxSynchronize(), "cuCtxSynchronize")
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "version": 3,
                                         "data": (self.address.value, False)}

    def free(self):
        check(cuda.cuMemFree_v2(self.address), "cuMemFree")


class StagedBuffer:
    """Page-locked host memory beside a device buffer."""

    def __init__(self, device):
        self.device = device
        self.address = ctypes.c_void_p()
        check(cuda.cuMemHostAlloc(ctypes.byref(self.address), device.bytes, 0), "cuMemHostAlloc")
        self.host = (ctypes.c_char * device.bytes.value).from_address(self.address.value)

    def load(self):
        check(cuda.cuMemcpyDtoH_v2(self.address, self.device.address, self.device.bytes),
              "cuMemcpyDtoH")

    def store(self):
        check(cuda.cuMemcpyHtoD_v2(self.device.address, self.address, self.device.bytes),
              "cuMemcpyHtoD")

    def free(self):
        check(cuda.cuMemFreeHost(self.address), "cuMemFreeHost")


class Nccl:
    """NCCL by way of PyTorch; None for what it does not do."""

    def __init__(self, comm, gpu):
        import torch
        import torch.distributed as distributed
        self.torch, self.distributed = torch, distributed
        torch.cuda.set_device(gpu)
        port = comm.bcast(random.randrange(20000, 60000) if comm.rank == 0 else None)
        distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}",
                                       rank=comm.rank, world_size=comm.size)

    def operation(self, name, count, size):
        torch, distributed = self.torch, self.distributed
        own = torch.ones(count, device="cuda")
        if name == "allreduce":
            call = lambda: distributed.all_reduce(own)
        elif name == "bcast":
            call = lambda: distributed.broadcast(own, 0)
        else:
            other = torch.ones(count * size, device="cuda")
            source = own if name == "allgather" else torch.ones(count * size, device="cuda")
            gather, exchange = distributed.all_gather_into_tensor, distributed.all_to_all_single
            call = lambda: (gather if name == "allgather" else exchange)(other, source)

        def run():
            call()
            torch.cuda.synchronize()
        return run


def measured(comm, run, seconds):
    """Medians over repetitions of the slowest rank's time, in microseconds; (median, least, most)."""
    times = []
    for _ in range(3):
        run()
    comm.Barrier()
    end = time.perf_counter() + seconds
    while comm.bcast(len(times) < 5 or time.perf_counter() < end):
        comm.Barrier()
        start = time.perf_counter()
        run()
        times.append(comm.allreduce(time.perf_counter() - start, MPI.MAX) * 1e6)
    return statistics.median(times), min(times), max(times)


def ping_pong(comm, buffer, datatype, seconds):
    """Microseconds one way between ranks 0 and 1, the others wait."""
    message = [buffer, 1, datatype]

    def run():
        if comm.rank == 0:
            comm.Send(message, 1)
            comm.Recv(message, 1)
        elif comm.rank == 1:
            comm.Recv(message, 0)
            comm.Send(message, 0)
    return tuple(value / 2 for value in measured(comm, run, seconds))


def datatypes(size):
    """`size` bytes each: name, extent in floats, datatype."""
    floats = size // 4
    blocks = floats // 128
    places = random.Random(1).sample(range(3 * blocks), blocks)
    plane = max(1, blocks // 32)
    return [
        ("contiguous", floats, MPI.FLOAT.Create_contiguous(floats)),
        ("vector, 512-byte blocks", 2 * floats, MPI.FLOAT.Create_vector(blocks, 128, 256)),
        ("vector, 8-byte blocks", 2 * floats, MPI.FLOAT.Create_vector(floats // 2, 2, 4)),
        ("subarray, 512-byte rows of 32 planes", 2 * 34 * plane * 128 * 2,
         MPI.FLOAT.Create_subarray([34, 2 * plane, 256], [32, plane, 128], [1, 0, 64])),
        ("indexed, 512-byte blocks anywhere", 3 * floats + 128,
         MPI.FLOAT.Create_indexed_block(128, [128 * place for place in sorted(places)])),
    ]


def show(row, results):
    cells = [f"{name} {median:.1f} ({least:.1f}..{most:.1f})"
             for name, (median, least, most) in results.items()]
    print(f"{row:55} " + "   ".join(cells), flush=True)


def messages(comm, sizes, seconds, table):
    for size in sizes:
        for name, extent, datatype in datatypes(size):
            datatype.Commit()
            buffer = DeviceBuffer(extent)
            results = {"us one way": ping_pong(comm, buffer, datatype, seconds)}
            if comm.rank == 0:
                show(f"{size} B, {name}", results)
                table.append({"row": name, "size": size, "results": results})
            comm.Barrier()
            buffer.free()
            datatype.Free()


def on_device(comm, name, send, receive):
    calls = {"allreduce": lambda: comm.Allreduce(send, receive),
             "allgather": lambda: comm.Allgather(send, receive),
             "alltoall": lambda: comm.Alltoall(send, receive),
             "bcast": lambda: comm.Bcast(receive, 0)}
    return calls[name]


def by_host(comm, name, send, receive):
    """As a program does whose MPI knows no GPU memory."""
    call = on_device(comm, name, [send.host, MPI.FLOAT], [receive.host, MPI.FLOAT])

    def run():
        if name != "bcast":
            send.load()
        elif comm.rank == 0:
            receive.load()
        call()
        receive.store()
    return run


def collective(comm, name, size, nccl, seconds):
    """`size`: bytes of an Allreduce and Bcast, those to each rank of the others."""
    count = size // 4
    send = DeviceBuffer(count * (comm.size if name == "alltoall" else 1))
    receive = DeviceBuffer(count * (comm.size if name in ("alltoall", "allgather") else 1))
    staged = [StagedBuffer(send), StagedBuffer(receive)]
    results = {"gpushm": measured(comm, on_device(comm, name, send, receive), seconds),
               "by host memory": measured(comm, by_host(comm, name, *staged), seconds)}
    if nccl is not None:
        results["NCCL"] = measured(comm, nccl.operation(name, count, comm.size), seconds)
    for buffer in [*staged, send, receive]:
        buffer.free()
    return results


def collectives(comm, sizes, nccl, seconds, table):
    for name in ("allreduce", "allgather", "alltoall", "bcast"):
        for size in sizes:
            results = collective(comm, name, size, nccl, seconds)
            if comm.rank == 0:
                show(f"{name}, {size} B, us", results)
                table.append({"row": name, "size": size, "results": results})


def sizes(text):
    return [int(size) for size in text.split(",")]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=0.3, help="for each figure (0.3)")
    parser.add_argument("--message-sizes", type=sizes, default=f"{64 << 10},{MIB},{16 * MIB}")
    parser.add_argument("--sizes", type=sizes, default=f"8,1024,{64 << 10},{MIB},{64 * MIB}",
                        help="of collectives")
    parser.add_argument("--no-nccl", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    return parser.parse_args()


def run(options, comm):
    gpu = use_gpu(comm.rank)
    nccl = None
    if not options.no_nccl:
        try:
            nccl = Nccl(comm, gpu)
        except ImportError:
            pass
    table = []
    if comm.size > 1:
        messages(comm, options.message_sizes, options.seconds, table)
    collectives(comm, options.sizes, nccl, options.seconds, table)
    if comm.rank == 0 and options.json:
        with open(options.json, "w", encoding="ascii") as file:
            json.dump(table, file, indent=1)


def main():
    options = parse_options()
    try:
        run(options, MPI.COMM_WORLD)
    except (RuntimeError, OSError) as error:  # MPI.Exception is a RuntimeError
        print(f"mpi_table.py: rank {MPI.COMM_WORLD.rank}: {error}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)


if __name__ == "__main__":
    main()
