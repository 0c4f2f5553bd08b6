"""Journal files: what was appended is read, and nothing else, whatever happens to the file."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import journal
from determined.errors import JournalError
from determined.journal import (
    BatchColumns,
    Damage,
    JournalReader,
    JournalWriter,
    Metrics,
    Progress,
    Record,
    Status,
    new_journal_path,
)


def some_records(count: int, seed: int = 0) -> list[Record]:
    draw = random.Random(seed)
    return [
        Metrics("training", i, {"loss": draw.random()}, BatchColumns.of([{"l": draw.random()}] * 3))
        if draw.random() < 0.5
        else Status("x" * draw.randrange(40))
        for i in range(count)
    ]


def write(path: Path, records: Sequence[Record]) -> bytes:
    writer = JournalWriter(path)
    writer.append(records[: len(records) // 2])
    writer.append(records[len(records) // 2 :])
    writer.close()
    return path.read_bytes()


def test_records_are_read_in_order(tmp_path: Path) -> None:
    records = some_records(20)
    write(tmp_path / "j", records)
    reader = JournalReader(tmp_path / "j")
    assert list(reader.records()) == records
    assert reader.offset == (tmp_path / "j").stat().st_size
    assert reader.diagnose() is Damage.NONE


def test_reading_goes_on_at_an_offset(tmp_path: Path) -> None:
    records = some_records(20)
    write(tmp_path / "j", records)
    read: list[Record] = []
    offset = 0
    while len(read) < 20:
        reader = JournalReader(tmp_path / "j", offset)
        read.append(next(iter(reader.records())))
        offset = reader.offset
    assert read == records


def test_a_reader_sees_what_is_appended_later(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "j")
    reader = JournalReader(tmp_path / "j")
    assert list(reader.records()) == []
    writer.append([Progress(0.1)])
    writer.append([Progress(0.2)])
    assert [r.progress for r in reader.records() if isinstance(r, Progress)] == [0.1, 0.2]
    writer.append([Progress(0.3)])
    assert [r.progress for r in reader.records() if isinstance(r, Progress)] == [0.3]
    writer.close()


def test_a_limit_bounds_what_is_read_at_once(tmp_path: Path) -> None:
    records = [Status("x" * 1000)] * 50
    write(tmp_path / "j", records)
    reader = JournalReader(tmp_path / "j")
    assert 0 < len(list(reader.records(limit_bytes=10_000))) < 15
    assert len(list(reader.records())) > 30


def test_a_file_that_is_not_there_yet_has_no_records(tmp_path: Path) -> None:
    reader = JournalReader(tmp_path / "missing")
    assert list(reader.records()) == []
    assert reader.diagnose() is Damage.NONE


@settings(max_examples=30)
@given(cut=st.integers(0, 10_000), seed=st.integers(0, 99))
def test_any_prefix_is_torn_at_worst(
    cut: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whether the file ends there, or a power cut left zeros instead of the rest."""
    folder = tmp_path_factory.mktemp("journal")
    records = some_records(12, seed)
    data = write(folder / "j", records)
    cut %= len(data)
    (folder / "zeros").write_bytes(data[:cut] + bytes(len(data) - cut))
    reader = JournalReader(folder / "zeros")
    read = list(reader.records())
    assert read == records[: len(read)]
    assert reader.diagnose() is Damage.TORN
    (folder / "cut").write_bytes(data[:cut])
    reader = JournalReader(folder / "cut")
    read = list(reader.records())
    assert read == records[: len(read)]
    assert reader.diagnose() in (Damage.NONE, Damage.TORN)
    assert not reader.is_damaged()
    (folder / "cut").write_bytes(data)
    assert read + list(reader.records()) == records


def test_every_byte_of_a_short_file_is_guarded(tmp_path: Path) -> None:
    records = some_records(4)
    data = write(tmp_path / "j", records)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << (position % 8)
        (tmp_path / "f").write_bytes(changed)
        reader = JournalReader(tmp_path / "f")
        try:
            read = list(reader.records())
        except JournalError:
            assert position < 12, "only the head can name another format"
            continue
        assert read == records[: len(read)]
        assert len(read) < 4
        assert reader.diagnose() is Damage.CORRUPT or _claims_more(bytes(changed), reader.offset)
        while reader.skip_damage():
            read += reader.records()
        assert all(record in records for record in read)
        assert len(read) == 3 or position < 12


def _claims_more(data: bytes, offset: int) -> bool:
    """Whether the length of a record was changed to one that leads beyond the end of the file."""
    return offset + 8 + int.from_bytes(data[offset : offset + 4], "little") > len(data)


@pytest.mark.parametrize("foreign", [b"and so on", b"{}", bytes(range(1, 200)) * 9])
def test_what_no_journal_wrote_is_corrupt(tmp_path: Path, foreign: bytes) -> None:
    (tmp_path / "all").write_bytes(foreign)
    assert list(JournalReader(tmp_path / "all").records()) == []
    assert JournalReader(tmp_path / "all").diagnose() is Damage.CORRUPT
    records = some_records(3)
    (tmp_path / "end").write_bytes(write(tmp_path / "j", records) + foreign)
    reader = JournalReader(tmp_path / "end")
    assert list(reader.records()) == records
    assert reader.diagnose() is (Damage.TORN if len(foreign) < 4 else Damage.CORRUPT)
    assert reader.is_damaged() is (len(foreign) >= 4)


def test_zeros_instead_of_the_rest_of_the_head_are_torn(tmp_path: Path) -> None:
    data = write(tmp_path / "j", some_records(3))
    for cut in range(20):
        (tmp_path / "zeros").write_bytes(data[:cut] + bytes(len(data) - cut))
        reader = JournalReader(tmp_path / "zeros")
        assert list(reader.records()) == []
        assert reader.diagnose() is Damage.TORN, cut


def test_zeros_at_the_end_are_a_torn_tail(tmp_path: Path) -> None:
    records = some_records(3)
    data = write(tmp_path / "j", records)
    (tmp_path / "j").write_bytes(data + bytes(4096))
    reader = JournalReader(tmp_path / "j")
    assert list(reader.records()) == records
    assert reader.diagnose() is Damage.TORN


def test_a_record_within_a_record_is_not_one(tmp_path: Path) -> None:
    inner = write(tmp_path / "inner", [Progress(0.5)])
    write(tmp_path / "j", [Status(inner.decode("latin-1")), Progress(1.0)])
    data = bytearray((tmp_path / "j").read_bytes())
    data[13] ^= 1
    (tmp_path / "j").write_bytes(data)
    reader = JournalReader(tmp_path / "j")
    assert list(reader.records()) == []
    assert reader.skip_damage()
    assert [r.progress for r in reader.records() if isinstance(r, Progress)] == [1.0]


def test_a_newer_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b"DETJRNL\n" + (9).to_bytes(4, "little"))
    with pytest.raises(JournalError, match="has format 9"):
        list(JournalReader(tmp_path / "j").records())


def test_names_sort_by_creation(tmp_path: Path) -> None:
    names = [new_journal_path(tmp_path).name for _ in range(50)]
    assert names == sorted(names)
    assert len(set(names)) == 50


def test_a_name_is_used_once(tmp_path: Path) -> None:
    JournalWriter(tmp_path / "j").close()
    with pytest.raises(JournalError, match="Cannot create the journal"):
        JournalWriter(tmp_path / "j")


def test_a_record_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("determined.journal._file.MAX_RECORD_BYTES", 1000)
    writer = JournalWriter(tmp_path / "j")
    with pytest.raises(JournalError, match="report fewer or smaller values"):
        writer.append([Progress(0.5), Status("x" * 2000)])
    writer.append([Progress(1.0)])
    writer.close()
    assert len(list(JournalReader(tmp_path / "j").records())) == 1


def test_a_closed_journal_refuses_records(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "j")
    writer.close()
    writer.close()
    with pytest.raises(JournalError, match="is closed"):
        writer.append([Progress(0.5)])


def test_a_forked_child_cannot_write(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "j")
    child = os.fork()
    if child == 0:
        try:
            writer.append([Progress(0.5)])
        except JournalError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    writer.close()


_LIMITED = """
import resource, signal, sys
from pathlib import Path
from determined.errors import JournalError
from determined.journal import JournalWriter, Progress, Status
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = JournalWriter(Path(sys.argv[1]))
writer.append([Progress(0.25)])
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
try:
    writer.append([Status("x" * 2000)])
except JournalError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
writer.append([Progress(0.5)])
"""


def test_a_full_disk_costs_only_the_record_that_did_not_fit(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _LIMITED, str(tmp_path / "j")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Cannot write the journal" in done.stdout
    read = list(JournalReader(tmp_path / "j").records())
    assert [r.progress for r in read if isinstance(r, Progress)] == [0.25, 0.5]


_ENDLESS = """
import sys
from pathlib import Path
from determined.journal import BatchColumns, JournalWriter, Metrics
writer = JournalWriter(Path(sys.argv[1]))
print("ready", flush=True)
step = 0
while True:
    batches = BatchColumns.of([{"loss": float(step)}] * (step % 300))
    writer.append([Metrics("training", step, {"n": step}, batches)] * 1)
    step += 1
"""


@pytest.mark.multiprocess
@pytest.mark.parametrize("number", range(8))
def test_a_kill_at_any_instant_leaves_whole_records(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-c", _ENDLESS, str(tmp_path / "j")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        reader = JournalReader(tmp_path / "j")
        read: list[Record] = []
        wanted = random.Random(number).randrange(1, 500)
        while len(read) < wanted:
            before = len(read)
            read += reader.records()
            assert len(read) > before or not reader.is_damaged()
        process.send_signal(signal.SIGKILL)
    read += reader.records()
    assert [r.steps_completed for r in read if isinstance(r, Metrics)] == list(range(len(read)))
    assert reader.diagnose() in (Damage.NONE, Damage.TORN)


def test_the_package_needs_nothing_but_the_standard_library() -> None:
    code = "import determined.journal, sys; assert not {'numpy', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert set(journal.__all__) <= set(dir(journal))
