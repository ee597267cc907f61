#!/bin/sh
# Build the data plane with a sanitizer beside the normal build and run the core and stress tests with it, or the fuzzer:
#   sanitized.sh asan|tsan BIN_OF_THE_VENV [pytest arguments]
#   sanitized.sh asan|tsan BIN_OF_THE_VENV fuzz [its arguments]
set -eu
profile=$1
bin=$2
shift 2
GNATS_BUILD=$profile "$bin/python" setup.py --quiet build --build-base "build/$profile"
lib=$(ls -d "build/$profile"/lib.*)
report=$PWD/build/$profile/report   # what a sanitizer has to say would be lost in pytest's capture
rm -f "$report".*
case $profile in
asan)
    runtime=$(gcc -print-file-name=libasan.so)
    export ASAN_OPTIONS="detect_leaks=0:exitcode=66:log_path=$report"
    export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:exitcode=66:log_path=$report"
    ;;
tsan)
    runtime=$(gcc -print-file-name=libtsan.so)
    export TSAN_OPTIONS="exitcode=66:halt_on_error=1:second_deadlock_stack=1:ignore_noninstrumented_modules=1:log_path=$report"
    ;;
esac
export GNATS_SANITIZED=$profile PYTHONPATH="$PWD/$lib" PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1
if [ "${1-}" = fuzz ]; then
    shift
    PYTHONPATH="$PYTHONPATH:$PWD/tests"
    set -- -m fuzz "$@"
else
    # tests/unit/tools need none of it, and start processes: with pyarrow loaded, the thread sanitizer ends at a fork.
    set -- -m pytest -p no:cacheprovider --capture=sys --ignore tests/unit/tools \
        tests/unit tests/stress tests/jetstream tests/clock tests/server/test_raft_groups.py \
        tests/server/test_replicated_streams.py tests/server/test_replicated_consumers.py \
        tests/server/test_replicated_copies.py "$@"
fi
# A fixed address layout: the thread sanitizer's shadow memory needs it on newer kernels.
setarch -R env LD_PRELOAD="$runtime" "$bin/python" -P "$@" || {
    status=$?
    cat "$report".* 2>/dev/null || :
    exit $status
}
