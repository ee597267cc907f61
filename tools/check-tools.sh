#!/bin/sh
# What a build needs that pip cannot bring: a Python with its headers, a C compiler, OpenSSL's headers.
python=$1
missing=0
need() {
    echo "gnats: $1 is missing; $2" >&2
    missing=1
}
if ! command -v "$python" >/dev/null 2>&1; then
    need "$python" "install CPython 3.11 to 3.13 (Debian: apt-get install python3 python3-venv), or set PYTHON"
else
    "$python" -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info < (3, 14)))' ||
        need "CPython 3.11 to 3.13" "$python is $("$python" -V 2>&1); set PYTHON to one of them"
    "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
        need "Python.h" "install the headers of $python (Debian: apt-get install python3-dev)"
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        need "venv" "install it for $python (Debian: apt-get install python3-venv)"
fi
cc=${CC:-cc}   # may have arguments, or be two commands: ccache gcc
if ! command -v "${cc%% *}" >/dev/null 2>&1; then
    need "a C compiler" "install gcc (Debian: apt-get install gcc libc6-dev)"
elif ! printf '#include <openssl/ssl.h>\n' | $cc -E - >/dev/null 2>&1; then
    need "openssl/ssl.h" "install OpenSSL's headers (Debian: apt-get install libssl-dev)"
fi
exit $missing
