"""Disks whose `fsync` fails or waits, for files that match a pattern, in processes of a test.

A library that processes load before others (LD_PRELOAD) stands between them and the kernel. What
the disk does can be changed while they run.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.preloaded import compiled

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The rule is in a file: what to do, and a pattern of paths. None, if there is no such file. */
static int rule(char *action, char *pattern) {
    const char *place = getenv("TEST_DISK");
    FILE *file = place ? fopen(place, "re") : NULL;
    if (!file) return 0;
    int found = fscanf(file, "%15s %1023[^\n]", action, pattern) == 2;
    fclose(file);
    return found;
}
static void note(const char *action, const char *path) {
    char name[1100], line[1200];
    snprintf(name, sizeof name, "%s.log", getenv("TEST_DISK"));
    int log = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (log < 0) return;
    int length = snprintf(line, sizeof line, "%s %d %s\n", action, (int)getpid(), path);
    if (write(log, line, length) != length) abort();
    close(log);
}
static int guarded(int descriptor, const char *call) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    char action[16], pattern[1024], link[64], path[1024];
    if (!rule(action, pattern)) return real(descriptor);
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return real(descriptor);
    path[length] = 0;
    if (fnmatch(pattern, path, 0) != 0) return real(descriptor);
    if (strcmp(action, "once") == 0 && unlink(getenv("TEST_DISK")) != 0) return real(descriptor);
    note(action, path);
    if (strcmp(action, "hold") == 0) {
        char again[16], other[1024];
        while (rule(again, other) && strcmp(again, "hold") == 0) usleep(2000);
        return real(descriptor);
    }
    errno = EIO;
    return -1;
}
int fsync(int descriptor) { return guarded(descriptor, "fsync"); }
int fdatasync(int descriptor) { return guarded(descriptor, "fdatasync"); }
"""


class FailingDisk:
    """What `fsync` does in processes that a test starts from now on."""

    def __init__(self, rule: Path) -> None:
        self._rule = rule
        self._log = rule.with_name(f"{rule.name}.log")
        self.is_armed = False

    @classmethod
    def of_this_process(cls) -> FailingDisk:
        """The one that this process was started with."""
        return cls(Path(os.environ["TEST_DISK"]))

    def fail(self, pattern: str) -> None:
        """Have every `fsync` of a file that matches fail, with EIO."""
        self._set("always", pattern)

    def fail_once(self, pattern: str) -> None:
        """Have the next one fail, in whatever process: later ones succeed, as on real disks."""
        self._set("once", pattern)

    def hold(self, pattern: str) -> None:
        """Have them wait until `heal`."""
        self._set("hold", pattern)

    def heal(self) -> None:
        self._rule.unlink(missing_ok=True)

    @property
    def hits(self) -> list[str]:
        """The paths of the calls that failed or waited, in order."""
        text = self._log.read_text() if self._log.exists() else ""
        return [line.split(" ", 2)[2] for line in text.splitlines()]

    def _set(self, action: str, pattern: str) -> None:
        draft = self._rule.with_name("draft")
        draft.write_text(f"{action} {pattern}\n")
        draft.replace(self._rule)
        self.is_armed = True


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    (tmp_path / "failing-disk").mkdir()
    rule = tmp_path / "failing-disk" / "rule"
    monkeypatch.setenv("LD_PRELOAD", str(compiled("failing_disk", _SOURCE)))
    monkeypatch.setenv("TEST_DISK", str(rule))
    return FailingDisk(rule)
