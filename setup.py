"""Builds the data plane: every module under cython_src/ becomes an extension of the same dotted name.

GNATS_BUILD selects a profile: release (default), debug, asan, tsan or coverage.
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
SRC = Path("cython_src")

PROFILES: dict[str, tuple[list[str], list[str]]] = {
    "release": (["-O3", "-fno-plt", "-fno-semantic-interposition", "-fvisibility=hidden"], []),
    "debug": (["-O0", "-g3"], []),
    "asan": (
        ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"],
        ["-fsanitize=address,undefined"],
    ),
    "tsan": (["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=thread"], ["-fsanitize=thread"]),
    "coverage": (["-O0", "-g", "--coverage"], ["--coverage"]),
}
profile = os.environ.get("GNATS_BUILD", "release")
if profile not in PROFILES:
    raise SystemExit(f"setup.py: GNATS_BUILD={profile!r} is not one of {', '.join(PROFILES)}")
cflags, ldflags = PROFILES[profile]
QUIET = ["-Wno-unused-function", "-Wno-sign-compare"]  # of what Cython writes
# Tables of several types are chained by the same functions, which see their common first members, and
# pointers of any type are loaded and exchanged as void * or as a number. C forbids to look at memory as
# another type than the one that it was written as, and a compiler that relies on this may reorder such reads
# and writes. This costs 1 to 2 % of the instructions that the data plane spends on a message.
ALIASING = ["-fno-strict-aliasing"]

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "embedsignature": True,
    "binding": True,
    "auto_pickle": False,
}


LIBRARIES = {
    "gnats.core.tls.hostname": ["crypto"],
    "gnats.core.tls.tls": ["ssl", "crypto"],
    "gnats.core.tls.x509": ["crypto"],
    "gnats.bench.fleet": ["ssl", "crypto"],
    "gnats.store.format.crypto": ["crypto"],
}

DEPENDS = {
    "gnats.store.format.highway": [str(SRC / "gnats/includes/highway.h")],
}


def extensions() -> list[Extension]:
    """One extension for each .pyx below cython_src."""
    return [
        Extension(
            name,
            [str(path)],
            extra_compile_args=[*cflags, "-std=gnu11", "-pthread", *ALIASING, *QUIET],
            extra_link_args=[*ldflags, "-pthread"],
            include_dirs=[str(SRC)],
            libraries=LIBRARIES.get(name, []),
            depends=DEPENDS.get(name, []),
        )
        for path in sorted(SRC.rglob("*.pyx"))
        for name in [".".join(path.relative_to(SRC).with_suffix("").parts)]
    ]


class BuildExt(build_ext):
    """Compiles the modules side by side, and in place only those that changed: an editable install builds in
    a directory that lives no longer than itself, so the next would compile all of them again."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.parallel = os.cpu_count()

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.inplace or self.editable_mode:
            self.build_lib = f"build/{profile}-{sys.implementation.cache_tag}"
            self.build_temp = f"{self.build_lib}/objects"


# Installed as a package of its own: Spark looks for data sources in those whose names begin with pyspark_.
DISCOVERY = "gnats.archive.spark.discovery"

os.chdir(ROOT)
setup(
    packages=[*find_packages(include=["gnats*"], exclude=[DISCOVERY]), "pyspark_jetstream"],
    package_dir={"pyspark_jetstream": DISCOVERY.replace(".", "/")},
    ext_modules=cythonize(
        extensions(),
        include_path=[str(SRC)],
        compiler_directives=DIRECTIVES,
        build_dir=f"build/cython-{profile}",
        nthreads=os.cpu_count() or 1,
    ),
    cmdclass={"build_ext": BuildExt},
)
