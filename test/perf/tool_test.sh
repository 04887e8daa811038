#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# gpushm-perf and gpushm-perf-mpi: every test in every situation with every kind of memory, whose data
# the programs check; what they print and write; bad input. How good the figures are is not looked at.
# Run in the build directory, with or without a CUDA driver.
. "$(dirname "$0")/test_setup.sh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

# complain WHAT: with what the last command has printed and said.
complain() {
    cat "$work/err" >>"$work/out"
    fail "$1"
}

# measure NAME PROGRAM...: runs it; its JSON is in $work/json.
measure() {
    name=$1
    shift
    rm -f "$work/json"
    # shellcheck disable=SC2086 # words
    $run "$@" --seconds=0.0005 --json="$work/json" >"$work/out" 2>"$work/err" ||
        complain "$name ends with status $?"
    [ ! -s "$work/err" ] || complain "$name complains"
}

# holds NAME EXPRESSION: of the JSON, as `run`, and the printed tables, as a list `tables` of a head, which is a list
# of lines, and of rows, which are lists of words.
holds() {
    python3 - "$work/json" "$work/out" "$2" >>"$work/err" 2>&1 <<'END' || complain "$1: not $2"
import json, sys
run = json.load(open(sys.argv[1]))
tables = []
for line in open(sys.argv[2]):
    if not line.strip():
        tables.append(([], []))
    elif line.startswith("#"):
        tables[-1][0].append(line.strip())
    else:
        tables[-1][1].append(line.split())
rows = run["rows"]
for row in rows:
    assert row["validated"] is True, row
    assert 0 < row["min"] <= row["value"] == row["p50"] <= row["max"], row
    assert row["messages"] >= 8, row
    assert row["unit"] == {"bw": "MB/s", "bibw": "MB/s", "mbw_mr": "messages/s"}.get(row["test"], "us"), row
    assert ("page_faults" in row) == row["situation"].startswith("M"), row
    assert "page_faults" not in row or row["page_faults"]["cpu"] >= 0 and {"managed_cpu", "gpu"} < set(row["page_faults"]), row
assert len(rows) == sum(len(table[1]) for table in tables), "not all rows are printed and written"
def of(key):
    return {row[key] for row in rows}
def gains(test):
    staged, direct = ([row["value"] for row in rows if row["test"] == test and row["situation"] == situation]
                      for situation in ("staged", "normal"))
    return [100 * (1 - d / s) if test == "latency" else 100 * (d / s - 1) for s, d in zip(staged, direct)]
assert eval(f"({sys.argv[3]})"), (len(rows), of("test"), of("situation"), of("from"), of("to"))
END
}

# refuses NAME STATUS TEXT PROGRAM...: it ends so, and says one line with the text.
refuses() {
    name=$1 status=$2 text=$3
    shift 3
    "$@" >"$work/out" 2>"$work/err"
    ended=$?
    [ $ended -eq "$status" ] || complain "$name: status $ended"
    grep '^gpushm-perf' "$work/err" >"$work/lines"
    grep -q -e "$text" "$work/lines" && [ "$(wc -l <"$work/lines")" -eq 1 ] || complain "$name: not one line with: $text"
}

perf=$build/gpushm-perf
driver=
# shellcheck disable=SC2086 # words
$run "$perf" --tests=latency --sizes=8 --seconds=0 --from=device --to=device >"$work/out" 2>&1 && driver=yes

measure "host memory" "$perf" --sizes=1:4,70000 --from=host --to=host --tests=latency,bw,bibw,mbw_mr
holds "host memory" 'len(rows) == 4 * 4 and of("size") == {1, 2, 4, 70000}
    and of("test") == {"latency", "bw", "bibw", "mbw_mr"}'
holds "the heads" 'tables[0][0] == ["# gpushm-perf UCP host-host Latency Test v" + run["version"],
    tables[0][0][1], "# Size          Latency (us)"] and tables[1][0][2] == "# Size      Bandwidth (MB/s)"'
holds "the facts" 'run["program"] == "gpushm-perf" and run["mpi"] is None and run["ucx"] and run["ranks"] == 2
    and run["host"]["cpus"] > 0 and run["errors"] == []'

if [ "$driver" ]; then
    measure "kinds over UCP" "$perf" --sizes=9000 --from=host,pinned,device,pool,vmm,managed --to=device,managed,vmm \
        --tests=latency,bw
    holds "kinds over UCP" 'len(rows) == 6 * 3 * 2'
    measure "situations over UCP" "$perf" --sizes=70000 --from=device --to=device --piece=16k \
        --situations=one-gpu,unmapped,busy,late,cold,rotating,staged,staged-pipelined,MH-MH,MD-MH,MH-MD,MD-MD
    holds "situations over UCP" 'len(of("situation")) == 12
        and {row["test"] for row in rows if row["situation"] in ("late", "cold")} == {"latency"}
        and all(row["from"] == row["to"] == "managed" for row in rows if "page_faults" in row)
        and len(rows) == 3 * 10 + 2'
    measure "beside copies by hand" "$perf" --sizes=8,64k,128k --from=device --to=device --tests=latency,bw \
        --situations=staged,normal
    holds "beside copies by hand" '[[line.split()[i] for i in (1, 2, 3)] for line in tables[-1][0][2:]]
            == [["latency", "device-device", "staged"], ["bw", "device-device", "staged"]]
        and all(abs(float(line.split()[4 + i]) - sum(part) / len(part)) < 0.06
            for line in tables[-1][0][2:] for percent in [gains(line.split()[1])]
            for i, part in enumerate((percent[:2], percent[1:], percent)))'
fi

mpi=$build/gpushm-perf-mpi
if [ -x "$mpi" ] && command -v mpirun >/dev/null; then
    measure "host memory over MPI" mpirun -n 2 "$mpi" --sizes=8 --from=host --to=host --tests=latency,bw,bibw,mbw_mr,barrier
    holds "host memory over MPI" 'len(rows) == 5 and rows[-1]["size"] == 0 and run["mpi"].startswith("Open MPI")
        and tables[3][0][2] == "# Size                  MB/s        Messages/s" and len(tables[3][1][0]) == 3
        and len(tables[4][1][0]) == 1'
    kinds="--from=host --to=host"
    [ ! "$driver" ] || kinds="--from=device --to=host,device"
    # shellcheck disable=SC2086 # words
    measure collectives mpirun -n 3 "$mpi" --sizes=1,8,5000 $kinds \
        --tests=bcast,reduce,allreduce,reduce_scatter,gather,scatter,allgather,alltoall
    holds collectives 'run["ranks"] == 3 and len(of("test")) == 8
        and {row["size"] for row in rows if row["test"] == "reduce_scatter"} == {8, 5000}
        and {row["size"] for row in rows if row["test"] == "gather"} == {1, 8, 5000}'
    # Two pairs; the other two ranks of a pair's test wait.
    # shellcheck disable=SC2086 # words
    measure "four ranks" mpirun -n 4 "$mpi" --sizes=8 $kinds --tests=mbw_mr,latency
    holds "four ranks" 'of("test") == {"mbw_mr", "latency"} and run["ranks"] == 4'
    if [ "$driver" ]; then
        measure "situations over MPI" mpirun -n 2 "$mpi" --sizes=70000 --from=device --to=host,device \
            --tests=latency,mbw_mr,bcast,allreduce --piece=16k \
            --situations=one-gpu,unmapped,busy,late,cold,rotating,staged,staged-pipelined,MD-MH,MD-MD
        holds "situations over MPI" 'len(of("situation")) == 10 and len(of("test")) == 4
            and {row["situation"] for row in rows if row["test"] == "bcast"}
                == {"one-gpu", "unmapped", "busy", "MD-MH", "MD-MD"}'
    fi

    # Wrong data ends the run; what was measured before is kept.
    export GPUSHM_PERF_PRELOAD="$build/test/perf/.libs/wrong_data.so"
    for test in latency allreduce; do
        rm -f "$work/json"
        # shellcheck disable=SC2016,SC2086 # the shell within expands the variable
        refuses "wrong data of $test" 1 "$test, host to host, normal: 776 bytes: WRONG DATA" \
            $run mpirun -n 2 sh -c 'LD_PRELOAD=$GPUSHM_PERF_PRELOAD:$LD_PRELOAD exec "$@"' - "$mpi" --tests=$test,bw \
            --sizes=8,776,1024 --from=host --to=host --seconds=0 --json="$work/json"
        holds "wrong data of $test" '[row["size"] for row in rows] == [8] and len(run["errors"]) == 1
            and "WRONG DATA" in run["errors"][0]["text"]'
    done

    refuses "one rank" 2 'latency needs two ranks' "$mpi"
    refuses "three ranks" 2 'mbw_mr needs an even number of ranks' mpirun -n 3 "$mpi" --tests=mbw_mr
    refuses "no size of a sum" 2 'reduce adds floats, so it needs multiples of 4' mpirun -n 2 "$mpi" --tests=reduce --sizes=1,6
    refuses "a wrong option of gpushm-perf-mpi" 2 '--nonsense=1: no such option' mpirun -n 2 "$mpi" --nonsense=1
    refuses "a wrong test of gpushm-perf-mpi" 2 'speed: the tests are latency bw' mpirun -n 2 "$mpi" --tests=speed
else
    echo "built without MPI, or no mpirun: gpushm-perf-mpi is left out"
fi

refuses "a wrong option" 2 '--nonsense=1: no such option' "$perf" --nonsense=1
refuses "a wrong test" 2 'allreduce: only gpushm-perf-mpi has this test' "$perf" --tests=allreduce
refuses "a wrong situation" 2 'lazy: the situations are' "$perf" --situations=lazy
refuses "a wrong kind" 2 'devise: the kinds of memory are' "$perf" --from=devise
refuses "a wrong size" 2 '--sizes=8:4: that is no valid value' "$perf" --sizes=8:4
refuses "too large a size" 2 'messages have up to 1g' "$perf" --sizes=2g
refuses "a file that is a folder" 1 "cannot write $work: " "$perf" --from=host --to=host --json="$work"
refuses "no combination" 2 'do not go with these tests' "$perf" --tests=bw --situations=cold
refuses "a file that cannot be" 1 'cannot write /nowhere/json: ' "$perf" --from=host --to=host --json=/nowhere/json
refuses "no GPU" 1 'there is no GPU: ' env LD_LIBRARY_PATH= "$perf" --from=device
refuses "a limit" 124 "not ready after 0.3 s; $work/json has what was measured" \
    "$perf" --from=host --to=host --sizes=8 --seconds=30 --limit=0.3 --json="$work/json"

if [ "$driver" ]; then
    refuses "a GPU that is not there" 1 '--devices: there is no GPU 77' "$perf" --devices=77
fi
# What only the simulated driver shows.
if ldconfig -p | grep -q 'libcuda\.so\.1'; then
    echo "with a real driver: GPUs that are small or belong to somebody else are left out"
elif [ "$driver" ]; then
    # shellcheck disable=SC2086 # words
    SIMCUDA_EXCLUSIVE=1 refuses "a GPU that belongs to another process" 1 \
        'CUDA_ERROR_DEVICE_UNAVAILABLE, another process has the GPU' $run "$perf" --devices=0 --from=device
    # shellcheck disable=SC2086 # words
    SIMCUDA_MEMORY_MB=16 refuses "a GPU that is too small" 1 \
        'bw, device to device, normal: 8388608 bytes: cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY' \
        $run "$perf" --tests=bw --sizes=8,8m,16m --from=device --to=device --seconds=0 --json="$work/json"
    holds "a GPU that is too small" '[row["size"] for row in rows] == [8] and len(run["errors"]) == 1'
    # A libcupti whose counts are known, of the CUDA release of the simulated driver.
    ln -s "$build/test/perf/.libs/counting_cupti.so" "$work/libcupti.so.13"
    measure "page faults" env LD_LIBRARY_PATH="$work:$LD_LIBRARY_PATH" "$perf" --tests=latency --situations=MH-MD --sizes=8,4k
    holds "page faults" 'len(rows) == 2 and all(row["page_faults"]["managed_cpu"] == 2 and row["page_faults"]["gpu"] == 6
        and table[3:] == ["2.0", "6.0"] for row, table in zip(rows, tables[0][1])) and len(tables[0][0]) == 3'
fi

# A process that is killed takes the other with it; what was measured is kept.
rm -f "$work/json"
"$perf" --from=host --to=host --tests=latency --sizes=8:1g --seconds=5 --json="$work/json" >"$work/out" 2>"$work/err" &
parent=$!
until grep -q '"size": 8,' "$work/json" 2>/dev/null || ! kill -0 $parent 2>/dev/null; do
    sleep 0.1
done
for process in $(pgrep -P $parent | tail -1); do
    kill -9 "$process"
done
wait $parent
[ $? -eq 137 ] || complain "a killed process is not noticed"
grep -q "^gpushm-perf: a process was ended by signal 9; $work/json has what was measured" "$work/err" ||
    complain "a killed process is not told"
holds "a killed process" 'rows[0]["size"] == 8'

for program in "$perf" "$mpi"; do
    [ -x "$program" ] || continue
    for option in --help -h; do
        "$program" $option >"$work/out" 2>&1 && grep -q "^usage: ${program##*/} .*man ${program##*/}" "$work/out" ||
            complain "$program does not know $option"
    done
    "$program" --version | grep -q "^${program##*/} (gpushm) [0-9]" || complain "$program does not know --version"
done

exit $((failures != 0))
