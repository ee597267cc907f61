"""File systems for tests, each in a mount namespace of its own, so that none outlives the test.

Other processes reach it through /proc. Mounting needs root.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from pathlib import Path
from typing import Self

TIMEOUT = 30.0
IMAGE_SIZE = 512 * 1024 * 1024
EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
EXT4_GOING_FLAGS_NOLOGFLUSH = 2


class NotPossible(Exception):
    """This process cannot mount a file system: a program or a permission is missing."""


class Mount:
    """A mounted file system, at `root`, until close() or the end of this process."""

    def __init__(self, at: Path, *mount: str | Path) -> None:
        """Mount at `at`; `mount` are the arguments of mount(8) without the directory. Raises NotPossible."""
        at.mkdir(parents=True, exist_ok=True)
        script = 'at=$1; shift; mount "$@" "$at" && echo mounted && exec cat'
        try:
            self._holder = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", at, *mount],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except FileNotFoundError as exc:
            raise NotPossible(str(exc)) from None
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"mounted\n":
            _, error = self._holder.communicate(timeout=TIMEOUT)
            raise NotPossible(error.decode(errors="replace").strip())
        self.root = Path(f"/proc/{self._holder.pid}/root{at.resolve()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def free(self) -> int:
        """Bytes free for unprivileged users."""
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def close(self) -> None:
        """Unmount; the kernel waits until no process has a file of it open."""
        self._holder.communicate(timeout=TIMEOUT)


def tmpfs(at: Path, size: int) -> Mount:
    """Mount a tmpfs of `size` bytes. Raises NotPossible."""
    return Mount(at, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")


class Disk:
    """An ext4 file system in a file. lose_power() leaves what was synced, and little else."""

    def __init__(self, path: Path) -> None:
        """Make the file system in the folder `path` and mount it. Raises NotPossible."""
        self._path = path
        self._number = 0
        path.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(IMAGE_SIZE)
        try:
            subprocess.run(
                ["mkfs.ext4", "-q", "-F", self._image], check=True, timeout=TIMEOUT, capture_output=True
            )
        except (FileNotFoundError, subprocess.CalledProcessError) as exc:
            raise NotPossible(str(exc)) from None
        self._mount()

    @property
    def _image(self) -> Path:
        return self._path / f"disk{self._number}"

    def _mount(self) -> None:
        self.mount = Mount(self._path / "mounted", "-t", "ext4", "-o", "loop", self._image)

    @property
    def root(self) -> Path:
        return self.mount.root

    def lose_power(self) -> None:
        """Drop everything not yet on the disk, and mount what is left; no file may be open."""
        old, image = self.mount, self._image
        # The shutdown stops all writes, so that the copy shows one moment.
        root = os.open(old.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(root, EXT4_IOC_SHUTDOWN, struct.pack("I", EXT4_GOING_FLAGS_NOLOGFLUSH))
        finally:
            os.close(root)
        self._number += 1
        command = ["cp", "--sparse=always", image, self._image]
        subprocess.run(command, check=True, timeout=TIMEOUT)
        old.close()
        image.unlink()
        self._mount()

    def close(self) -> None:
        self.mount.close()
