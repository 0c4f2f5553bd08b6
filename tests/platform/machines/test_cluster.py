"""Which cluster runs go to: the variable, the file, and messages that name file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.errors import DeterminedError
from determined.platform.homes.home import Home
from determined.platform.machines.cluster import ClusterSettings, find_cluster


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("DET_CLUSTER", raising=False)
    monkeypatch.delenv("DET_CLUSTER_INSECURE", raising=False)
    return Home(tmp_path)


@pytest.mark.parametrize("address", ["auto", "head:6379", "ray://head:10001", "[::1]:6379"])
def test_the_variable_names_a_cluster(
    home: Home, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_cluster(home) is None
    monkeypatch.setenv("DET_CLUSTER", address)
    assert find_cluster(home) == ClusterSettings(address)


def test_the_variable_goes_before_the_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home.path / "platform.yaml"
    file.write_text("tracking: off\ncluster: {type: ray, address: 'a:1', slot_type: cpu}\n")
    assert find_cluster(home) == ClusterSettings("a:1", "cpu")
    monkeypatch.setenv("DET_CLUSTER", "b:2")
    settings = find_cluster(home)
    assert settings == ClusterSettings("b:2", "cpu")
    assert str(file) in settings.way_back
    monkeypatch.setenv("DET_CLUSTER", "")  # back to this machine, whatever the file says
    assert find_cluster(home) is None


@pytest.mark.parametrize("address", ["http://head", "head", "head:99999", "head:0", "ray://:1"])
def test_a_bad_variable_is_named(home: Home, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_CLUSTER", address)
    with pytest.raises(DeterminedError, match="DET_CLUSTER: expected auto, host:port or ray://"):
        find_cluster(home)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cluster: yes please", ":1: cluster: expected keys and values"),
        ("cluster:\n  type: pbs", ":2: cluster.type: expected ray or slurm, got 'pbs'"),
        ("cluster:\n  type: ray\n  adress: a:1", ":3: cluster.adress: expected one of the keys"),
        ("cluster:\n  type: ray\n  address: 7", ":3: cluster.address: expected auto, host:port"),
        ("cluster:\n  type: ray\n  address: a:70000", ":3: cluster.address: expected auto, host"),
        ("cluster:\n  type: ray\n  slot_type: tpu", ":3: cluster.slot_type: expected gpu or cpu"),
        ("cluster:\n  type: ray\n  insecure: 1", ":3: cluster.insecure: expected true or false"),
        ("cluster: [", "platform.yaml:"),
    ],
)
def test_a_bad_file_is_refused_with_line_and_key(home: Home, text: str, words: str) -> None:
    file = home.path / "platform.yaml"
    file.write_text(text)
    with pytest.raises(DeterminedError) as caught:
        find_cluster(home)
    assert str(caught.value).startswith(str(file))
    assert words in str(caught.value)
