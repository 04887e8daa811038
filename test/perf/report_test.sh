#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# gpushm-report: fits and tables of known figures; a small run on the driver that the loader finds, whose page is
# checked; runs that are cut off and go on; bad input. Times mean nothing here. Run in the build folder.
. "$(dirname "$0")/test_setup.sh"

# one_line STATUS TEXT: what the last command, which ended with the status $?, has said in one line.
one_line() {
    status=$?
    [ $status -eq "$1" ] && [ "$(grep -c . "$work/out")" -eq 1 ] && grep -q "^gpushm-report: .*$2" "$work/out" ||
        fail "status $status instead of $1, or not the one line: $2"
}

export PYTHONDONTWRITEBYTECODE=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

for test in model_test tables_test; do
    python3 "$here/report_tests/$test.py" >"$work/out" 2>&1 || fail "$test.py"
done

# The Python of this system has matplotlib, if one has it.
python=
for candidate in python3 /usr/bin/python3; do
    "$candidate" -c 'import matplotlib' 2>/dev/null && { python=$candidate; break; }
done
report() { "$python" "$here/report" "$@" >"$work/out" 2>&1; }

# Without matplotlib nothing is measured in vain.
mkdir -p "$work/hidden/matplotlib"
echo 'raise ImportError("hidden", name="matplotlib")' >"$work/hidden/matplotlib/__init__.py"
PYTHONPATH=$work/hidden python3 "$here/report" --programs "$programs" --gpushm "$run" --output "$work/none.html" >"$work/out" 2>&1
one_line 1 "matplotlib is missing for .*: install the Debian or Ubuntu package python3-matplotlib"
[ -z "$python" ] && { echo "no Python with matplotlib (Debian package: python3-matplotlib): pages are left out"; exit $((failures != 0)); }

# Every section and every sweep, of figures that are made up.
"$python" "$here/report_tests/pages_test.py" "$work" >"$work/out" 2>&1 &&
    "$python" "$here/report_tests/page_check.py" "$work/everything.html" 15 losses ratios curves programs perf copies \
        model node repeat >"$work/out" 2>&1 &&
    "$python" "$here/report_tests/page_check.py" "$work/sweeps.html" 16 chunk host-chunk ring pending eager standby \
        standby-life cells ranks left-out >"$work/out" 2>&1 || fail "pages of figures that are made up"

# A small run of each source, on two GPUs if there are.
small="--budget 2 --seconds 0.001 --warm-up 0.001 --rows host,dd,hd,dd-unmapped --sizes 8,64K,512K --launches 2 --steps wait-context-4K"
report --programs "$programs" --gpushm "$run" $small --only messages,protocol,micro,steps,perf --output "$work/a.html" --text ||
    fail "a small run ends with status $?"
grep -q 'host to host: latency, us one way' "$work/out" || fail "no table as text"
has_driver=
grep -q 'Simulated GPU\|CUDA driver' "$work/out" && has_driver=yes
"$python" "$here/report_tests/page_check.py" "$work/a.html" 4 losses ratios curves model node repeat >"$work/out" 2>&1 ||
    fail "the page is not as it should be"
if grep -q '"simulated": true' "$work/a.json"; then
    grep -q 'its times say nothing about speed' "$work/a.html" || fail "the page does not say that its times mean nothing"
fi
"$python" - "$work/a.json" "$has_driver" >"$work/out" 2>&1 <<'END' || fail "the results are not complete"
import json, sys
said = json.load(open(sys.argv[1]))
assert said["finished"] and not said["errors"], said["errors"]
rows = {cell["row"] for cell in said["cells"] if cell["source"] == "messages"}
assert rows == ({"host", "dd", "hd", "dd-unmapped"} if said["node"]["devices"] > 1 else {"host"} | rows), rows
for cell in said["cells"]:
    assert all(0 < value < 1e8 for value in cell["values"]), cell
    assert len(cell["values"]) == (2 if cell["source"] == "messages" else 1), cell
    assert cell["command"], cell
for source in ("messages", "protocol") + (("micro",) if any("message_and_answer" in c["row"] for c in said["cells"]) else ()):
    assert any(cell["source"] == source for cell in said["cells"]), source
perf = {(cell["test"], cell["row"]) for cell in said["cells"] if cell["source"] == "perf"}
assert len(perf) == (12 if said["node"]["devices"] else 0), perf
END

# The same figures again: as a page, as text, as a table of costs; compared with themselves nothing has changed.
report show "$work/a.json" --output "$work/again.html" && cmp -s "$work/a.html" "$work/again.html" || fail "show makes another page"
report limits "$work/a.json" && grep -q 'constexpr StandbyCosts kClusterCosts = {' "$work/out" || fail "no table of costs"
grep -v '^#pragma' "$work/out" >"$work/cost_table.cpp"
! command -v c++ >/dev/null || c++ -std=c++17 -fsyntax-only "$work/cost_table.cpp" >"$work/out" 2>&1 || fail "the table of costs is no C++"
report --compare "$work/a.json" "$work/a.json" --output "$work/compared.html" && grep -q '^0 of .* cells are slower, 0 are faster' "$work/out" ||
    fail "a comparison with itself"
"$python" "$here/report_tests/page_check.py" "$work/compared.html" 0 changes >"$work/out" 2>&1 ||
    fail "the page of a comparison"
report explore --programs "$programs" --gpushm "$run" --sweeps cells --sizes 8,64K --launches 1 --seconds 0.001 --warm-up 0.001 --budget 2 \
    --output "$work/explored.html" --text && grep -q '^== UCX_GPUSHM_MAILBOX_CELLS, host to host: latency' "$work/out" || fail "explore"
"$python" "$here/report_tests/page_check.py" "$work/explored.html" 2 cells left-out >"$work/out" 2>&1 || fail "the page of explore"
if grep -q '"simulated": true' "$work/a.json"; then
    report tables --json "$work/a.json" --update "$here/README"
    one_line 1 "simulated driver, whose times say nothing"
fi

# A browser's view.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$browser" ]; then
    echo "no Chromium: screenshots are left out"
elif ! "$python" -c 'import PIL' 2>/dev/null; then
    echo "no PIL for $python: screenshots are left out"
else
    "$python" "$here/report_tests/screenshots.py" "$browser" "$work/a.html" "$work" >"$work/out" 2>&1 || fail "screenshots"
fi

# Programs that are quick and do what is told: they print cells, wait or send wrong data.
mkdir "$work/programs" "$work/bin"
cat >"$work/programs/raw_copies" <<'END'
#!/bin/sh
echo '{"driver": "none", "simulated": true, "devices": 2}'
echo "$$" >>"$COUNT"
while [ -e "$WAIT_AT" ] && [ "$(grep -c . "$COUNT")" -ge 4 ]; do sleep 0.05; done
case $WRONG-$* in
yes-*operations=d2h*sizes=8,1K*) echo '{"error": "WRONG DATA at byte 7"}'; exit 1 ;;
esac
echo '{"size": 8, "test": "latency", "us": 1.5}'
END
cp "$work/programs/raw_copies" "$work/programs/ucp_latency"
chmod +x "$work/programs"/*
export COUNT="$work/count" WAIT_AT="$work/wait" WRONG=
quick="--programs $work/programs --gpushm env --budget 2 --only messages --sizes 8,1K --launches 2 --rows host,dh --json $work/q.json --output $work/q.html"

# Interrupted by SIGTERM, and killed: the second run does what is left.
for signal in TERM KILL; do
    : >"$COUNT"
    : >"$WAIT_AT"
    rm -f "$work/q.json"
    "$python" "$here/report" $quick >"$work/out" 2>&1 &
    pid=$!
    tries=0
    until [ "$(grep -c . "$COUNT")" -ge 4 ]; do  # the third one of the plan waits, after one that asks for the driver
        tries=$((tries + 1))
        [ $tries -lt 300 ] || break
        sleep 0.1
    done
    kill -$signal $pid
    wait $pid 2>/dev/null
    status=$?
    if [ $signal = TERM ]; then
        [ $status -eq 1 ] && grep -q '^gpushm-report: interrupted: .*q.html has the results so far' "$work/out" || fail "an interrupted run: status $status"
        grep -q 'The run was cut off' "$work/q.html" || fail "the page does not say that the run was cut off"
        ! kill -0 "$(tail -n 1 "$COUNT")" 2>/dev/null || fail "a program is left behind"
    fi
    rm -f "$WAIT_AT"
    report $quick || fail "an interrupted run does not go on: status $?"
    grep -q 'continuing .*q.json: 2 launches are done' "$work/out" || fail "nothing was kept of a run that ended by SIG$signal"
    "$python" - "$work/q.json" >"$work/out" 2>&1 <<'END' || fail "after SIG$signal something was measured twice or not at all"
import json, sys
said = json.load(open(sys.argv[1]))
assert said["finished"]
assert sorted((c["row"], c["side"], len(c["values"])) for c in said["cells"]) == [
    ("dh", "gpushm", 2), ("dh", "raw", 2), ("dh", "standby", 2), ("host", "gpushm", 2), ("host", "raw", 2)], said["cells"]
END
done
report $quick
one_line 1 "q.json is complete"
rm "$work/q.json"
report $quick --rows host && report $quick --rows host --launches 3
one_line 1 "q.json is complete"
"$python" - "$work/q.json" <<'END'
import json, sys
said = json.load(open(sys.argv[1]))
said["finished"] = False
json.dump(said, open(sys.argv[1], "w"))
END
report $quick --rows host --launches 3
one_line 1 "is of a run with other options or on another machine"

# Wrong data ends the run; what was measured before is kept.
WRONG=yes report $quick --restart && fail "wrong data is no failure"
grep -q '^gpushm-report: .*wrong data has arrived, so the run ends here' "$work/out" || fail "wrong data is not said"
grep -q 'WRONG DATA' "$work/q.html" || fail "wrong data is not on the page"
grep -q '"row": "host"' "$work/q.json" || fail "what was measured before wrong data is gone"
report $quick
one_line 1 "has ended with wrong data: --restart"

# A GPU that others use.
printf '#!/bin/sh\ncase $* in\n*query-gpu=index*) echo "0, GPU-1, 3" ;;\n*compute-apps*) echo "GPU-1, 42, train.py" ;;\nesac\n' >"$work/bin/nvidia-smi"
chmod +x "$work/bin/nvidia-smi"
PATH=$work/bin:$PATH report $quick --restart
one_line 1 "GPU 0 is used by process 42, train.py: wait, .*--even-if-busy"
PATH=$work/bin:$PATH report $quick --restart --even-if-busy || fail "a busy GPU is not measured when it is wanted"

# What is wrong is said in one line, before anything is measured.
report $quick --restart --peer /nowhere/bin/ucx_perftest
one_line 1 "the peer is not there: --peer /nowhere/bin/ucx_perftest"
report $quick --budget 5
one_line 2 "budget 5: the budgets are 2, 7, 60 minutes"
report $quick --rows nothing
one_line 2 "no row nothing"
report $quick --sizes 8,x
one_line 2 "8,x is no list of sizes"
report $quick --only nothing
one_line 2 "no nothing: there are messages"
report --no-such-option
one_line 2 "no-such-option"
report --programs "$work"
one_line 1 "raw_copies is not in $work"
report --programs "$work/programs" --gpushm nowhere/gpushm-run
one_line 1 "nowhere/gpushm-run is not there"
report $quick --restart --output /nowhere/x.html
one_line 1 "/nowhere/x.html cannot be written"
report $quick --restart --json /nowhere/x.json
one_line 1 "/nowhere/x.json cannot be written: No such file"
report show "$work/out"
one_line 1 "is no JSON"
report --compare "$work/q.json"
one_line 2 "new"
if command -v taskset >/dev/null; then
    taskset -c "$("$python" -c 'import os; print(min(os.sched_getaffinity(0)))')" "$python" "$here/report" $quick >"$work/out" 2>&1
    one_line 1 "this machine is too small: two processes need two processors"
fi
exit $((failures != 0))
