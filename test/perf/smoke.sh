#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The benchmarks run and print figures that are well formed; how good they are is not looked at.
# Run in the build directory, with or without a CUDA driver.
. "$(dirname "$0")/test_setup.sh"

rows=host,dd,dd-unmapped,hd,managed-cpu-gpu,dd-new
standby=
"$programs/raw_copies" --operations=standby-inline --sizes=8 --tests=latency --seconds=0.001 \
    >"$work/out" 2>&1 && standby=--standby
python3 "$here/gpu_table.py" --programs "$programs" --gpushm "$run" $standby \
    --also "n=UCX_GPUSHM_STANDBY=n $run" --rows $rows --sizes 8,70000 \
    --launches 1 --seconds 0.001 --warm-up 0.001 --json "$work/json" >"$work/out" 2>&1 ||
    fail "gpu_table.py ends with status $?"
python3 - "$work/json" $rows "$standby" >>"$work/out" 2>&1 <<'END' || fail "the table is not complete"
import json, sys
table = json.load(open(sys.argv[1]))
devices = table["facts"]["gpu"].get("devices", 0)
expected = [row for row in sys.argv[2].split(",") if row == "host" or devices > 1]
assert [row["row"] for row in table["rows"]] == expected, expected
for row in table["rows"]:
    cells = {(cell["test"], cell["size"]): cell for cell in row["cells"]}
    assert len(cells) == 4 and ("window", 70000) in cells, (row["row"], sorted(cells))
    for cell in cells.values():
        sides = ["raw", "gpushm", "n"]
        if sys.argv[3] and row["row"] in ("dd", "hd"):
            sides.append("standby")
        for side in sides:
            assert 0 < cell["us"][side]["median"] < 1e7, (row["row"], side, cell)
END

# A size that is longer than a command of the standby kernel can say is left out.
[ -z "$standby" ] || timeout 60 "$programs/raw_copies" --operations=standby-pull --sizes=64m --seconds=0.001 \
    >"$work/out" 2>&1 || fail "raw_copies with 64 MiB for the standby kernel ends with status $?"

has_driver=
"$programs/raw_copies" --operations=d2h --sizes=8 --seconds=0.001 >"$work/out" 2>&1 && has_driver=yes
if [ "$has_driver" ]; then
    python3 "$here/standby_table.py" --programs "$programs" --gpushm "$run" --launches 1 \
        --devices 0,0 --seconds 0.001 --beside='--calls=free,launch' --json "$work/json" >"$work/out" 2>&1 ||
        fail "standby_table.py ends with status $?"
    python3 - "$work/json" >>"$work/out" 2>&1 <<'END' || fail "the table of the standby kernel is not complete"
import json, sys
tables = json.load(open(sys.argv[1]))["tables"]
assert [len(table["cells"]) for table in tables] == 10 * [2], tables
for table in tables:
    for cell in table["cells"]:
        for side in ("auto", "n"):
            assert abs(cell["us"][side]["median"]) < 1e7, (table["title"], cell)
END
fi

# Two ranks, all of whose data are checked; the simulated driver's times say nothing.
if [ "$has_driver" ] && [ -x "$programs/program_steps" ] && command -v mpirun >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    cells=wait-context-4K,kernel-5-overlap,isend-2x4K,persistent-4x4K,rows-2-context,memsets,copies,allreduce-4K-context,pass-64K
    python3 "$here/program_steps.py" --programs "$programs" --gpushm "UCX_GPUSHM_STANDBY=n $run" --launches 1 --seconds 0.001 \
        --devices 0,0 --passes 1 --cells $cells --parts --json "$work/json" >"$work/out" 2>&1 ||
        fail "program_steps.py ends with status $?"
    python3 - "$work/json" $cells >>"$work/out" 2>&1 <<'END' || fail "the table of steps is not complete"
import json, sys
cells = {cell["cell"]: cell for cell in json.load(open(sys.argv[1]))["cells"]}
assert len(cells) == len(sys.argv[2].split(",")), sorted(cells)
for name, cell in cells.items():
    for side in ("gpushm", "staged", "none"):
        assert 0 < cell["us"][side]["median"] < 1e7, (name, side)
        said = cell["launches"][side][0]
        assert said["slow"]["of"] > 0 and said["parts"]["launch"] > 0, said
END
    mpirun -n 2 "$programs/program_steps" --cells=nothing >"$work/out" 2>&1
    grep -q '^{"error": "rank [01]: nothing: no cell has a name that begins so"}' "$work/out" ||
        fail "an unknown cell is not refused"
fi

# One of each micro-benchmark, which checks its data where there are any. Not every GPU has the standby kernel.
micro=$programs/micro/micro_benchmarks
if [ -x "$micro" ]; then
    "$micro" --benchmark_min_time=0.0001 --benchmark_format=json --benchmark_filter='/(cell/8|slot/128|ring/128)$|cached/8$|pack/.*:4/bytes:4096|^copy/.*/1/|^driver/cu[ES]|Free/4096$|^operation/.*/8/|Unregister/4096/|Handle/65536/|_table|^kind' \
        >"$work/json" 2>"$work/out" || fail "micro_benchmarks ends with status $?"
    python3 - "$work/json" "$has_driver" "$standby" >>"$work/out" 2>&1 <<'END' || fail "the micro-benchmarks are not complete"
import json, sys
found = {one["name"]: one for one in json.load(open(sys.argv[1]))["benchmarks"]}
assert len(found) == (44 if sys.argv[2] else 8), sorted(found)
for name, one in found.items():
    if "standby" in name and not sys.argv[3]:
        continue
    assert "error_occurred" not in one, one
    assert one["real_time"] > 0, one
END
else
    echo "built without Google Benchmark (Debian package: libbenchmark-dev): the micro-benchmarks are left out"
fi

"$programs/ucp_latency" --seconds=30 --limit=0.3 >"$work/out" 2>&1
[ $? -eq 124 ] && grep -q '"error": "not ready after' "$work/out" || fail "a time limit is not kept"

"$programs/ucp_latency" --from=devise >"$work/out" 2>&1
[ $? -eq 1 ] && grep -q '^{"error": "devise: ' "$work/out" || fail "a wrong kind is not refused"

for program in raw_copies ucp_latency ucp_beside; do
    for option in --help -h; do
        "$programs/$program" $option >"$work/out" 2>&1 && grep -q "^usage: $program" "$work/out" ||
            fail "$program does not know $option"
    done
done

[ ! -x "$programs/program_steps" ] || "$programs/program_steps" --list=y | grep -q '^pass-64K' ||
    fail "program_steps does not list its cells"

# What cannot be measured is an error, in one line.
for table in gpu_table program_steps standby_table; do
    (cd "$work" && python3 "$here/$table.py" --programs "$work") >"$work/out" 2>&1 && fail "$table.py without programs"
    grep -q "^$table.py: $work/raw_copies is not there" "$work/out" && [ "$(wc -l <"$work/out")" -eq 1 ] ||
        fail "$table.py does not say that its programs are missing"
done
LD_LIBRARY_PATH='' python3 "$here/mpi_table.py" --sizes 8 --seconds 0.001 --json "$work/nowhere/json" >"$work/out" 2>&1 &&
    fail "mpi_table.py without a driver"
grep -q '^mpi_table.py: ' "$work/out" && ! grep -q Traceback "$work/out" || fail "mpi_table.py ends with a traceback"

exit $((failures != 0))
