"""What event files hold beside numbers is served lazily, and hostile files do no harm."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from determined.platform.homes.home import Home
from determined.platform.trackers.foreign_run import ForeignRun
from determined.platform.trackers.importing import import_runs
from tests.dashboard.served import Served, served
from tests.support import tracked
from tests.support.lab import Lab, lab
from tests.tensorboard.made_events import (
    histogram_event,
    image_event,
    png,
    png_of,
    record,
    text_event,
)

__all__ = ["lab"]

_HTML = "<script>window.injected=1</script><img src=x onerror=window.injected=1>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = Home(tmp_path_factory.mktemp("media") / "home")
    list(import_runs(home, [ForeignRun("a", "run", "p", lambda: [])]))
    with served(home) as found:
        yield found


def _write(page: Served, *events: bytes, name: str = "events.out.tfevents.1") -> Path:
    folder = page.home.tensorboard / "1"
    folder.mkdir(exist_ok=True)
    for old in folder.rglob("*tfevents*"):
        old.unlink()
    path = folder / name
    path.write_bytes(b"".join(events))
    return path


def _value(page: Served, kind: str, tag: str, step: int) -> Any:
    return page.json("/api/trials/1/media/value", kind=kind, tag=tag, step=step)


def test_tags_steps_and_values_are_told(page: Served) -> None:
    assert page.json("/api/trials/1/media") == {"tags": [], "complete": True, "note": ""}
    _write(
        page,
        record(histogram_event(3, num_buckets=1000)),
        record(text_event(1, _HTML, "second")),
        record(image_event(2, png(4, 3))),
        record(image_event(1, png(5, 6))),
        name="events.out.tfevents.first",
    )
    told = page.json("/api/trials/1/media")
    assert [(tag["kind"], tag["tag"], tag["steps"]) for tag in told["tags"]] == [
        ("image", "picture", [1, 2]),
        ("text", "words", [1]),
        ("histogram", "weights", [3]),
    ]
    assert _value(page, "image", "picture", 2)["images"] == [
        {"width": 4, "height": 3, "problem": ""}
    ]
    answer = page.client.get("/api/trials/1/media/image", params={"tag": "picture", "step": 1})
    assert (answer.content, answer.headers["content-type"]) == (png(5, 6), "image/png")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src" in answer.headers["content-security-policy"]
    assert _value(page, "text", "words", 1)["texts"] == [_HTML, "second"]
    histogram = _value(page, "histogram", "weights", 3)["histogram"]
    assert len(histogram["counts"]) == 200
    assert len(histogram["limits"]) == 201
    assert sum(histogram["counts"]) == sum(place % 7 for place in range(1000))
    assert page.stranger.get("/api/trials/1/media").status_code in (401, 403)


def test_what_is_not_there_is_said(page: Served) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "/api/trials/99/media": {},
        "/api/trials/1/media/value": {"kind": "text", "tag": "none", "step": 1},
        "/api/trials/1/media/image": {"tag": "none", "step": 1},
    }
    for address, params in wrong.items():
        answer = page.client.get(address, params=params)
        assert (answer.status_code, "There is no" in answer.text) == (404, True)
    kind: dict[str, Any] = {"kind": "scalar", "tag": "a", "step": 1}
    assert page.client.get("/api/trials/1/media/value", params=kind).status_code == 422


def test_images_that_mean_harm_are_not_served(page: Served) -> None:
    bomb = png_of(60_000, 60_000, zlib.compress(bytes(1 << 20)))
    hostile = {
        "bomb": bomb,
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        "html": b"<html><script>alert(1)</script></html>",
        "nothing": b"",
        "flat": png_of(0, 5, b""),
    }
    _write(
        page,
        *(record(image_event(1, image, tag)) for tag, image in hostile.items()),
        record(image_event(1, png(2, 2), "good")),
        record(text_event(1, "bad checksum", tag="torn"), crc=3),
        record(b"\xff" * 100),
        record(image_event(2, png(2, 2), "good"), length=2**62),
        name="events.out.tfevents.hostile",
    )
    tags = {tag["tag"]: tag["steps"] for tag in page.json("/api/trials/1/media")["tags"]}
    assert tags["good"] == [1]
    for tag in hostile:
        answer = page.client.get("/api/trials/1/media/image", params={"tag": tag, "step": 1})
        assert answer.status_code == 404, tag
        assert answer.headers["content-type"] == "application/json"
        images = _value(page, "image", tag, 1)["images"]
        assert all(image["problem"] for image in images), tag
    assert _value(page, "text", "torn", 1)["problem"] == "This value is damaged."
    good = page.client.get("/api/trials/1/media/image", params={"tag": "good", "step": 1})
    assert good.status_code == 200


def test_very_many_steps_are_thinned_and_memory_is_bounded(page: Served) -> None:
    texts = b"".join(record(text_event(step, "x" * 1000)) for step in range(3_000))
    _write(page, texts, name="events.out.tfevents.many")
    tracemalloc.start()
    (tag,) = (tag for tag in page.json("/api/trials/1/media")["tags"] if tag["steps"][-1] == 2_999)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(tag["steps"]), tag["steps"][0]) == (500, 0)
    assert most < 32 << 20
    long = page.home.tensorboard / "1" / "events.out.tfevents.z"
    long.write_bytes(record(text_event(1, "y" * 1_000_000, tag="long")))
    page.json("/api/trials/1/media")
    (text,) = _value(page, "text", "long", 1)["texts"]
    assert len(text) == 20_000


_SCRIPT = """
import sys
from pathlib import Path
from determined import core

with core.init(name="plain") as context:
    folder = context.train.get_tensorboard_path()
    Path(folder, "events.out.tfevents.own").write_bytes(Path(sys.argv[1]).read_bytes())
    context.train.log({"loss": 1.0})
"""


@pytest.mark.slow
def test_event_files_of_a_script_are_shown_from_where_they_are(lab: Lab) -> None:
    events = lab.folder / "events"
    events.write_bytes(record(text_event(4, "of a script")))
    script = tracked.write(lab.folder, _SCRIPT)
    assert tracked.run(lab.home.path, script, str(events))[0] == 0
    lab.until(lambda: lab.service.has_store and lab.service.reader.experiment(1))
    lab.wait(1)
    with served(lab.home) as page:
        (tag,) = page.json("/api/trials/1/media")["tags"]
        assert (tag["kind"], tag["steps"]) == ("text", [4])
        assert _value(page, "text", "words", 4)["texts"] == ["of a script"]
