#!/usr/bin/env bash
# ./dev gpu with stand-ins for everything that it calls: the order of its steps, what it does where
# one fails or the time is up, and that the table comes last.
set -euo pipefail
repository=$(cd "$1" && pwd -P)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  printf 'dev_gpu: %s\n' "$*" >&2
  cat "$work/out" "$work/err" >&2
  exit 1
}

mkdir -p "$work/tree/third_party/vendor" "$work/bin"
cp "$repository/dev" "$work/tree/dev"
stub() {
  { printf '#!/usr/bin/env bash\n'; cat; } >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
stub nvcc <<<'exit 0'
stub python3 <<<'exit 1'
stub nvidia-smi <<'END'
case $* in *compute_cap*) echo "${FAKE_CAPABILITY-9.0}" ;; *) echo "a GPU, 580.0, 1980 MHz, 700 W" ;; esac
END
stub ctest <<'END'
echo "ctest $*" >>"$CALLS"
echo "100% tests passed"
END
stub cmake <<'END'
echo "cmake $*" >>"$CALLS"
case " $* " in *" --build "*)
  [ -z "${FAKE_BROKEN_BUILD:-}" ] || { echo "it does not compile"; exit 1; }
  mkdir -p build/cuda/bin
  cat >build/cuda/bin/roundoff <<'PROGRAM'
#!/usr/bin/env bash
if [ "$*" = "check --help" ]; then echo "--kernel NAME"; exit 0; fi
echo "roundoff $*" >>"$CALLS"
case "$*" in *"${FAKE_BAD_KERNEL:-nothing}") exit 1 ;; *"--kernel wgmma") exit 77 ;; esac
if [ "$1" = check ]; then echo "12 cases, 40 runs, 0 broken"; exit "${FAKE_CHECK:-0}"; fi
[ -z "${FAKE_SLOW:-}" ] || sleep "$FAKE_SLOW"
echo "table of $2"
PROGRAM
  chmod +x build/cuda/bin/roundoff ;;
esac
END
export CALLS="$work/calls"
run() {
  rm -rf "$work/tree/build" "$CALLS"
  touch "$CALLS"
  status=0
  env PATH="$work/bin:$PATH" "$@" "$work/tree/dev" gpu >"$work/out" 2>"$work/err" || status=$?
}

kernels=$(printf 'roundoff check matmul|%.0s' 1 2 3 4 5 6 7)
kernels=${kernels%|}
run env
[ "$status" -eq 0 ] || fail "exit $status where everything goes well"
order=$(sed -nE 's/^(cmake --preset|cmake --build|ctest|roundoff [a-z]+ ?[a-z0-9_]*).*/\1/p' "$CALLS" | tr '\n' '|')
[ "$order" = "cmake --preset|cmake --build|ctest|roundoff check |$kernels|roundoff bench matmul|roundoff bench matmul|roundoff bench matmul|roundoff bench conv2d|roundoff bench softmax|roundoff bench step|" ] ||
  fail "the steps ran as $order"
grep -q -- '-D CMAKE_CUDA_ARCHITECTURES=90a-real' "$CALLS" || fail "sm_90 is built as sm_90a"
grep -q -- '--rungs --baseline' "$CALLS" || fail "rungs and baseline are measured"
tail -n 1 "$work/out" | grep -qE '^steps +ok' || fail "the table of steps comes last"
grep -q 'table of matmul' "$work/out" || fail "the benchmarks' tables are shown"

run env FAKE_CHECK=1
[ "$status" -eq 1 ] || fail "exit $status where the check fails"
grep -qE '^check +failed' "$work/out" || fail "the failed check is in the table"
grep -qE '^rungs +ok' "$work/out" || fail "the benchmarks run behind a failed check"

# One kernel that is wrong fails the step, and the ones behind it are checked.
run env FAKE_BAD_KERNEL='--kernel mma'
[ "$status" -eq 1 ] || fail "exit $status where a kernel is wrong"
grep -qE '^kernels +failed' "$work/out" || fail "the failed kernels are in the table"
grep -q -e '--kernel ping_pong' "$CALLS" || fail "the kernels behind a wrong one are checked"

run env FAKE_BROKEN_BUILD=1
[ "$status" -eq 1 ] || fail "exit $status where the build fails"
grep -q 'it does not compile' "$work/err" || fail "the end of the build's output is shown"
if grep -q '^roundoff' "$CALLS"; then fail "something ran after a failed build"; fi

# Whatever is left when the time is up is named and does not run.
run env FAKE_SLOW=3 GPU_SECONDS=4
[ "$status" -eq 1 ] || fail "exit $status where the time is up"
grep -qE '^steps +no-time-left' "$work/out" || fail "what had no time is in the table"

run env FAKE_CAPABILITY=7.5
[ "$status" -eq 77 ] || fail "exit $status on a GPU that is too old"
run env FAKE_CAPABILITY=
[ "$status" -eq 77 ] || fail "exit $status without a GPU"
