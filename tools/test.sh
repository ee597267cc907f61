#!/bin/sh
# The tests in three parts beside each other: those that mostly wait (marked so), those beside nats-server, all others.
# Each part ends with its twenty slowest tests.
# With arguments all of them in one go:
#   test.sh PYTHON [pytest arguments]
set -u
python=$1
shift
[ $# -eq 0 ] || exec "$python" -P -m pytest tests "$@"
logs=$(mktemp -d)
"$python" -P -m pytest --durations=20 tests -m waits >"$logs/waits" 2>&1 &
waiting=$!
"$python" -P -m pytest --durations=20 tests/conformance -m 'not waits' >"$logs/conformance" 2>&1 &
comparing=$!
trap 'rm -rf "$logs"' EXIT
trap 'kill "$waiting" "$comparing" 2>/dev/null; exit 130' INT TERM
status=0
"$python" -P -m pytest --durations=20 tests --ignore=tests/conformance -m 'not waits' || status=$?
wait "$comparing" || status=$?
echo "beside nats-server:"
cat "$logs/conformance"
wait "$waiting" || status=$?
echo "those that wait:"
cat "$logs/waits"
exit "$status"
