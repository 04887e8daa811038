#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Collective and point-to-point operations of mpi4py on host memory; every number is checked.

Run with: gpushm-run mpirun -n N python3 collectives_mpi4py.py
The exit status is 77 when mpi4py is missing. Needs nothing else.
"""
import array
import sys

try:
    from mpi4py import MPI
except ImportError as error:
    print(f"collectives_mpi4py: skipped: {error}")
    sys.exit(77)

COUNTS = (1, 7, 1000, 9001, 300001)
comm = MPI.COMM_WORLD
rank, ranks = comm.Get_rank(), comm.Get_size()

# No two numbers are the same.
STARTS = 99991
NUMBERS = array.array("q", (i * 7368787 % 1000000007 for i in range(STARTS + max(COUNTS))))


def values(source, count, salt=0):
    """What `source` sends, different for each process, place and use."""
    start = (source * 997 + salt * 10007) % STARTS
    return NUMBERS[start:start + count]


def expect(got, wanted, what):
    if got != wanted:
        print(f"FAILED rank {rank}: {what}: wrong data", flush=True)
        comm.Abort(1)


def empty(count):
    return array.array("q", bytes(8 * count))


def joined(parts):
    return array.array("q", b"".join(part.tobytes() for part in parts))


def collectives(count):
    mine = values(rank, count)
    everyone = [values(source, count) for source in range(ranks)]
    got = values(1, count) if rank == 1 else empty(count)
    comm.Bcast(got, root=1)
    expect(got, everyone[1], f"Bcast {count}")

    got = empty(count * ranks)
    comm.Allgather(mine, got)
    expect(got, joined(everyone), f"Allgather {count}")
    comm.Gather(mine, got if rank == 0 else None, root=0)
    expect(got, joined(everyone), f"Gather {count}")

    total = array.array("q", map(sum, zip(*everyone)))
    got = empty(count)
    comm.Allreduce(mine, got, op=MPI.SUM)
    expect(got, total, f"Allreduce {count}")
    comm.Reduce(mine, got, op=MPI.MAX, root=0)
    if rank == 0:
        expect(got, array.array("q", map(max, zip(*everyone))), f"Reduce {count}")

    sent = joined(values(rank, count, target) for target in range(ranks))
    got = empty(count * ranks)
    comm.Alltoall(sent, got)
    expect(got, joined(values(source, count, rank) for source in range(ranks)),
           f"Alltoall {count}")
    got = empty(count)
    comm.Scatter(sent if rank == 0 else None, got, root=0)
    expect(got, values(0, count, rank), f"Scatter {count}")


def large_to_one():
    """Many large messages under way to one process, whose memory they must fill in every round."""
    count = max(COUNTS)
    for salt in range(20):
        got = empty(count * ranks)
        comm.Gather(values(rank, count, salt), got if rank == 0 else None, root=0)
        if rank == 0:
            expect(got, joined(values(source, count, salt) for source in range(ranks)),
                   f"Gather {count}, round {salt}")


def messages(count):
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    got = empty(count)
    comm.Sendrecv(values(rank, count), right, 5, got, left, 5)
    expect(got, values(left, count), f"Sendrecv {count}")
    got = [empty(count) for _ in range(8)]
    requests = [comm.Irecv(buffer, source=left, tag=i) for i, buffer in enumerate(got)]
    requests += [comm.Isend(values(rank, count, i), dest=right, tag=i) for i in range(8)]
    MPI.Request.Waitall(requests)
    for i, buffer in enumerate(got):
        expect(buffer, values(left, count, i), f"Irecv {count}")


def objects():
    everyone = comm.allgather({"rank": rank, "text": "x" * 1000 * (rank + 1)})
    expect(everyone, [{"rank": r, "text": "x" * 1000 * (r + 1)} for r in range(ranks)],
           "allgather of objects")
    expect(comm.bcast(list(range(5000)) if rank == 0 else None, root=0), list(range(5000)),
           "bcast of an object")


def windows(count):
    memory = empty(count)
    window = MPI.Win.Create(memory, comm=comm)
    mine = values(rank, count)  # has to stay until the fence; mpi4py does not keep it
    window.Fence()
    window.Put(mine, (rank + 1) % ranks)
    window.Fence()
    expect(memory, values((rank - 1) % ranks, count), f"Put {count}")
    got = empty(count)
    window.Get(got, (rank + 1) % ranks)
    window.Fence()
    expect(got, mine, f"Get {count}")
    window.Free()


for size in COUNTS:
    collectives(size)
    messages(size)
    windows(size)
large_to_one()
objects()
comm.Barrier()
if rank == 0:
    print(f"{ranks} ranks passed")
