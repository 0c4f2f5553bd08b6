"""Files of runs on their way home: whole, once, in order, whatever is cut off on the way."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from determined._contracts.log_index import RECORD
from determined.platform.runs.launchers.remote import mirror
from determined.platform.runs.launchers.remote.merged_log import MergedLog

names = st.sampled_from(["log", "log.times", "journal-1", "journal-2", "tensorboard/a/events"])


@given(
    writes=st.lists(st.tuples(names, st.binary(min_size=1, max_size=40)), max_size=20),
    cut=st.integers(1, 30),
    repeats=st.lists(st.booleans(), min_size=30, max_size=30),
)
def test_pieces_add_up_to_the_files_however_they_are_cut(
    writes: list[tuple[str, bytes]], cut: int, repeats: list[bool]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        node, home, part = (Path(name, n) for n in ("node", "home", "home/nodes/1"))
        for folder in (node, home, part):
            folder.mkdir(parents=True)
        events, expected = Path(name, "events"), dict[str, bytes]()
        (home / "log").write_bytes(b"the merged one, which is none of the part's")

        def pull() -> mirror.News:
            news = mirror.read_news(node, mirror.known(part, home, events), cut)
            mirror.apply(news, part, home, events)
            return news

        for (file, content), repeat in zip(writes, repeats, strict=False):
            path = node / file
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as opened:
                opened.write(content)
            expected[file] = expected.get(file, b"") + content
            news = pull()
            if repeat:  # as when its answer was lost
                mirror.apply(news, part, home, events)
        while pull().pieces:
            pass
        for file, content in expected.items():
            if file.startswith("tensorboard/"):
                came = events / file.partition("/")[2]
            else:
                came = (home if file.startswith("journal") else part) / file
            assert came.read_bytes() == content


def test_a_file_that_is_replaced_comes_again_when_it_changes(tmp_path: Path) -> None:
    node, home = tmp_path / "node", tmp_path / "home"
    node.mkdir()
    home.mkdir()
    for content in (b"{}", b'{"a": 1}'):
        (node / "keeper.json").write_bytes(content)
        news = mirror.read_news(node, mirror.known(home, home, None))
        assert news.replaced == {"keeper.json": content}
        mirror.apply(news, home, home, None)
        assert mirror.read_news(node, mirror.known(home, home, None)).replaced == {}
    assert (home / "keeper.json").read_bytes() == b'{"a": 1}'


@given(
    writes=st.lists(
        st.tuples(st.integers(0, 2), st.text("ab\n", min_size=1, max_size=9), st.booleans()),
        max_size=15,
    )
)
def test_a_merged_log_has_every_line_once_also_after_crashes(
    writes: list[tuple[int, str, bool]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = [folder / f"part-{n}" for n in range(3)]
        log = MergedLog(folder, parts)
        for part, text, crashes in writes:
            with parts[part].open("a") as file:
                file.write(text)
            log.merge()
            if crashes:  # something was added, and its record was not
                with (folder / "log").open("ab") as file:
                    file.write(b"half a li")
                log = MergedLog(folder, parts)
        log.merge(is_last=True)
        merged = (folder / "log").read_bytes()
        contents = [path.read_bytes() for path in parts if path.exists()]
        assert len(merged) == sum(map(len, contents))
        assert sorted(merged) == sorted(b"".join(contents))
        for path in parts:
            assert _is_subsequence(path.read_bytes() if path.exists() else b"", merged)
        stamps = folder / "log.times"
        content = stamps.read_bytes() if stamps.exists() else b""
        for offset, line, _ in RECORD.iter_unpack(content):
            assert merged[:offset].count(b"\n") == line


def _is_subsequence(part: bytes, whole: bytes) -> bool:
    rest = iter(whole)
    return all(byte in rest for byte in part)
