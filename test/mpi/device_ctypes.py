#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""MPI by ctypes, as some language bindings call it, on device memory: an operation in Python adds what the ranks have.

Run with: gpushm-run mpirun -n 2 python3 device_ctypes.py
"""
import ctypes

COUNT = 1000
ARRAY = ctypes.c_int * COUNT
OPERATION = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int),
                             ctypes.POINTER(ctypes.c_int), ctypes.c_void_p)

cuda = ctypes.CDLL("libcuda.so.1")
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
create = mpi.MPI_Op_create  # found before MPI_Init


def check(result, what):
    if result != 0:
        raise RuntimeError(f"{what}: error {result}")


def handle(name):
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))


def device_memory(values):
    address = ctypes.c_uint64()
    check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(ctypes.sizeof(values))), "cuMemAlloc")
    check(cuda.cuMemcpyHtoD_v2(address, values, ctypes.c_size_t(ctypes.sizeof(values))), "cuMemcpyHtoD")
    return address


@OPERATION
def add(one, other, count, _):
    for i in range(count[0]):
        other[i] += one[i]


def main():
    check(mpi.MPI_Init(None, None), "MPI_Init")
    world = handle("ompi_mpi_comm_world")
    rank, size = ctypes.c_int(), ctypes.c_int()
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    mpi.MPI_Comm_size(world, ctypes.byref(size))

    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")

    values = ARRAY(*(rank.value + i for i in range(COUNT)))
    source, target = device_memory(values), device_memory(ARRAY())
    operation = ctypes.c_void_p()
    check(create(add, 1, ctypes.byref(operation)), "MPI_Op_create")
    check(mpi.MPI_Allreduce(ctypes.c_void_p(source.value), ctypes.c_void_p(target.value), COUNT,
                            handle("ompi_mpi_int"), operation, world), "MPI_Allreduce")
    check(mpi.MPI_Op_free(ctypes.byref(operation)), "MPI_Op_free")
    check(cuda.cuMemcpyDtoH_v2(values, target, ctypes.c_size_t(ctypes.sizeof(values))), "cuMemcpyDtoH")
    ranks = size.value
    right = list(values) == [ranks * i + ranks * (ranks - 1) // 2 for i in range(COUNT)]
    print("device_ctypes:", "passed" if right else "WRONG DATA")
    mpi.MPI_Finalize()
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
