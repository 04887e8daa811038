#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Collectives and derived datatypes of mpi4py on device memory, from several threads at once under
MPI_THREAD_MULTIPLE. Needs neither CuPy nor NumPy: buffers show themselves by the interface that CuPy
arrays have (__cuda_array_interface__).

Run with: gpushm-run mpirun -n 2 python3 device_mpi4py.py
"""
import ctypes
import struct
import threading
from array import array

from mpi4py import MPI

COUNT = 5000
THREADS = 3
ROUNDS = 30

cuda = ctypes.CDLL("libcuda.so.1")


def check(result, what):
    if result != 0:
        raise RuntimeError(f"{what}: CUDA error {result}")


def retain_context():
    device = ctypes.c_int()
    context = ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    return context


class DeviceArray:
    """Doubles in device memory; lives as long as the process."""

    def __init__(self, values):
        self.count = len(values)
        self.address = ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(self.address), self._bytes()), "cuMemAlloc")
        self.write(values)
        self.__cuda_array_interface__ = {"shape": (self.count,), "typestr": "<f8", "version": 3,
                                         "data": (self.address.value, False)}

    def _bytes(self):
        return ctypes.c_size_t(8 * self.count)

    def write(self, values):
        host = array("d", values)
        check(cuda.cuMemcpyHtoD_v2(self.address, ctypes.c_void_p(host.buffer_info()[0]),
                                   self._bytes()), "cuMemcpyHtoD")
        check(cuda.cuCtxSynchronize(), "cuCtxSynchronize")

    def read(self):
        host = array("d", [0.0]) * self.count
        check(cuda.cuMemcpyDtoH_v2(ctypes.c_void_p(host.buffer_info()[0]), self.address,
                                   self._bytes()), "cuMemcpyDtoH")
        return list(host)


def add(source, target, _datatype):
    """As the program's own operation: these are host memory."""
    form = f"{len(source) // 8}d"
    sums = [a + b for a, b in zip(struct.unpack(form, bytes(source)),
                                  struct.unpack(form, bytes(target)))]
    target[:] = struct.pack(form, *sums)


def test_reductions(comm):
    size = comm.size
    expected = [size * i + size * (size - 1) / 2 for i in range(COUNT)]
    source = DeviceArray([float(i + comm.rank) for i in range(COUNT)])
    target = DeviceArray([-1.0] * COUNT)
    operation = MPI.Op.Create(add, commute=True)
    for reduce_by in (MPI.SUM, operation):
        target.write([-1.0] * COUNT)
        comm.Allreduce(source, target, reduce_by)
        assert target.read() == expected, "Allreduce"
    operation.Free()


def test_vectors(comm, context, number, failures):
    try:
        check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
        blocks = COUNT // 5
        for turn in range(ROUNDS):
            source = [float(1000 * turn + 10 * comm.rank + number)] * COUNT
            if turn == 0:
                sent, received = DeviceArray(source), DeviceArray([-1.0] * COUNT)
            sent.write(source)
            received.write([-1.0] * COUNT)
            vector = MPI.DOUBLE.Create_vector(blocks, 2, 5).Commit()
            request = comm.Irecv([received, 1, vector], right, number)
            comm.Send([sent, 1, vector], left, number)
            request.Wait()
            vector.Free()
            value = float(1000 * turn + 10 * right + number)
            assert received.read() == [value, value, -1.0, -1.0, -1.0] * blocks, "vector"
    except Exception as error:  # of a thread: told by the main thread
        failures.append(error)


def main():
    assert MPI.Query_thread() == MPI.THREAD_MULTIPLE
    comm = MPI.COMM_WORLD
    context = retain_context()
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    test_reductions(comm)
    failures = []
    comms = [comm.Dup() for _ in range(THREADS)]
    threads = [threading.Thread(target=test_vectors, args=(comms[i], context, i, failures))
               for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        print(f"device_mpi4py: rank {comm.rank}: {failures[0]!r}", flush=True)
        comm.Abort(1)
    comm.Barrier()
    if comm.rank == 0:
        print(f"device_mpi4py: {comm.size} ranks passed", flush=True)


main()
