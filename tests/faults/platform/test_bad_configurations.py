"""Invalid configurations: each is refused with the place of its problem, without a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.det import call_det
from tests.config.wrong import AFTER_THE_SEARCHER, SEARCHERS, WHOLE_FILES
from tests.support.faults import at_least

_BEGIN = "entrypoint: python3 train.py\n"
_SEARCHER = "searcher: {name: single, metric: loss}\n"
_WRONG = [
    *(_BEGIN + _SEARCHER + text for text, _ in AFTER_THE_SEARCHER),
    *(_BEGIN + text for text, _ in SEARCHERS),
    *(text for text, _ in WHOLE_FILES),
]
_WORDS = (": ", "- ", "\n", "\n  ", "{", "}", "[", "]", "&a ", "*a", "!!python/object:os.system ")
_pieces = st.sampled_from(_WORDS) | st.text(max_size=3) | st.sampled_from(_BEGIN.split())


def refused(folder: Path, content: bytes) -> str:
    """What `det` says of a file that it refuses; nothing if it takes it."""
    (folder / "config.yaml").write_bytes(content)
    answer = call_det("e", "validate", str(folder / "config.yaml"), home=folder / "home")
    assert "Traceback" not in answer.errors, answer.errors
    assert answer.code in (0, 1)
    assert answer.errors.replace("\n", "").replace("\t", "").isprintable()
    return answer.errors if answer.code else ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("configurations")


def test_every_wrong_file_is_refused_with_its_place(folder: Path) -> None:
    count = 0
    for text in _WRONG:
        said = refused(folder, text.encode() if isinstance(text, str) else text)
        if said:  # `det` knows where checkpoints go, so that a file need not tell
            assert said.startswith(str(folder / "config.yaml")), text
            count += 1
    assert count >= 260


@settings(
    max_examples=at_least(300, 850),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    text=st.lists(_pieces, max_size=12).map("".join),
    place=st.integers(0, len(_BEGIN + _SEARCHER)),
    raw=st.binary(max_size=3),
)
def test_no_file_brings_about_a_traceback(folder: Path, text: str, place: int, raw: bytes) -> None:
    whole = _BEGIN + _SEARCHER
    content = (whole[:place] + text).encode(errors="surrogatepass") + raw + whole[place:].encode()
    refused(folder, content)
