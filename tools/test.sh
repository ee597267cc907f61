#!/bin/sh
# The tests: those that mostly wait (marked so) beside the others. With arguments all of them in one go:
#   test.sh PYTHON [pytest arguments]
set -u
python=$1
shift
[ $# -eq 0 ] || exec "$python" -P -m pytest tests "$@"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$python" -P -m pytest tests -m waits >"$log" 2>&1 &
waiting=$!
trap 'kill "$waiting"; exit 130' INT TERM
status=0
"$python" -P -m pytest tests -m 'not waits' || status=$?
wait "$waiting" || status=$?
echo "those that wait:"
cat "$log"
exit "$status"
