"""What the API tells of a home: the made one, one without anything, and what the pictures need."""

from __future__ import annotations

import csv
import gzip
import io
import math
import tarfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined._contracts.json_numbers import json_safe
from determined.dashboard.endpoints.answers import differing, flat, shown_state
from determined.dashboard.endpoints.encoding import dump, takes_gzip
from determined.dashboard.search.contour import Column, contour
from determined.dashboard.search.importance import importance
from determined.platform.homes.home import Home
from tests.dashboard.served import Served, served


def test_a_home_without_a_store_is_shown_as_empty(tmp_path: Any) -> None:
    with served(Home(tmp_path / "none")) as shown:
        assert shown.json("/api/experiments") == {
            "total": 0,
            "rows": [],
            "columns": {"available": []},
        }
        session = shown.json("/api/session")
        assert session["counts"] == {}
        assert session["supervisor"]["alive"] is False
        assert "No supervisor" in session["supervisor"]["text"]
        for path in ("/api/models", "/api/projects", "/api/queue", "/api/export/experiments.csv"):
            assert shown.client.get(path).status_code == 200
        for path in ("/api/experiments/1", "/api/trials/1", "/api/models/x"):
            answer = shown.client.get(path)
            assert answer.status_code == 404
            assert answer.json()["error"]
        assert not (tmp_path / "none" / "store.db").exists()


def test_looking_starts_no_supervisor(shown: Served) -> None:
    from determined.platform.supervisor import presence

    for path in ("/api/session", "/api/experiments/9", "/api/queue", "/api/experiments/9/trials"):
        shown.json(path)
    assert presence.find(shown.home) is None
    assert not shown.home.supervisor_log.exists()


def test_experiments_are_filtered_sorted_and_paged(shown: Served) -> None:
    def names(**params: Any) -> list[str]:
        return [row["name"] for row in shown.json("/api/experiments", **params)["rows"]]

    assert shown.json("/api/experiments")["total"] == 9
    assert len(names(archived=0)) == 8
    assert names(archived=1) == ["speech-old"]
    assert names(search="DIGITS", order="asc") == [
        "digits-adaptive",
        "digits-grid",
        "digits-random-running",
    ]
    assert names(state="RUNNING") == ["digits-random-running"]
    assert names(label="search,digits") == ["digits-adaptive"]
    assert names(unmanaged=1) == ["python train.py"]
    assert names(sort="name", order="asc", limit=2, offset=1) == ["digits-adaptive", "digits-grid"]
    assert names(metric="validation_loss", metric_max=0.2, sort="best")[0] == "digits-adaptive"


@pytest.mark.parametrize("path", ["/api/experiments", "/api/trials"])
def test_the_best_is_sorted_within_each_metric(shown: Served, path: str) -> None:
    rows = shown.json(path, sort="best", order="desc")["rows"]
    best = [row for row in rows if row["best_validation"] is not None]
    assert rows[: len(best)] == best  # what has none comes last
    metrics = [row["searcher"]["metric"] for row in best]
    assert metrics == sorted(metrics)
    assert len(set(metrics)) > 1
    for metric in set(metrics):
        mine = [row for row in best if row["searcher"]["metric"] == metric]
        values = [row["best_validation"] for row in mine]
        assert values == sorted(values, reverse=not mine[0]["searcher"]["smaller_is_better"])


def test_all_trials_are_filtered_by_what_they_are(shown: Served) -> None:
    def found(**params: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = shown.json("/api/trials", limit=1000, **params)["rows"]
        return rows

    everything = found()
    assert len({row["experiment_id"] for row in everything}) > 3
    assert [row["id"] for row in everything] == sorted((r["id"] for r in everything), reverse=True)
    project = shown.json("/api/experiments/1")["project"]["id"]
    assert {row["experiment_name"] for row in found(project=project, search="grid")} == {
        "digits-grid"
    }
    for operator, fits in (("<", float.__lt__), (">=", float.__ge__)):
        low = found(search="digits-adaptive", hparams=f"lr {operator} 0.01")
        assert low
        assert all(fits(row["hparams"]["lr"], 0.01) for row in low)
    relu = found(hparams="net.activation=relu;net.units>100")
    assert relu
    assert all(row["hparams"]["net.activation"] == "relu" for row in relu)
    assert found(hparams="net.activation>0.1") == []  # a word is not a number
    columns = shown.json("/api/trials", project=project)["columns"]["available"]
    assert columns[0] == {"key": "hparam:lr", "label": "lr", "differs": True} or "lr" in {
        one["label"] for one in columns if one["differs"]
    }
    assert shown.client.get("/api/trials", params={"hparams": "lr"}).status_code == 422
    csv = shown.client.get("/api/export/all-trials.csv", params={"search": "digits-grid"}).text
    assert csv.splitlines()[0].count("hparam:lr") == 1
    assert "digits-grid" in csv


def test_a_trial_that_the_search_ended_early_is_not_completed(shown: Served) -> None:
    rows = shown.json("/api/experiments/1/trials", limit=100)["rows"]
    words = {row["state"] for row in rows}
    assert words == {"COMPLETED", "STOPPED", "ERROR"}
    for row in rows:
        if row["state"] == "STOPPED":
            assert not row["reason"].startswith("finished")
        elif row["state"] == "COMPLETED":
            assert row["reason"].startswith("finished")
    for word in words:
        chosen = shown.json("/api/experiments/1/trials", state=word, limit=100)["rows"]
        assert [row["id"] for row in chosen] == [r["id"] for r in rows if r["state"] == word]
    counted = shown.json("/api/experiments/1")["states"]
    assert counted == {word: sum(row["state"] == word for row in rows) for word in words}
    assert shown.json("/api/experiments/1/points")["states"] == [row["state"] for row in rows]


def test_a_failed_experiment_tells_the_error_of_its_trial(shown: Served) -> None:
    failed = shown.json("/api/experiments", state="ERROR")["rows"][0]["id"]
    error = shown.json(f"/api/experiments/{failed}")["error"]
    trial = shown.json(f"/api/experiments/{failed}/trials")["rows"][0]["id"]
    assert error == shown.json(f"/api/trials/{trial}")["error"]
    assert error["trial_id"] == trial
    assert shown.json("/api/experiments/1")["error"] is None


def test_an_address_without_a_page_is_a_page_for_browsers(shown: Served) -> None:
    as_browser = shown.client.get("/no/such/place", headers={"accept": "text/html,*/*"})
    assert (as_browser.status_code, as_browser.headers["content-type"]) == (
        404,
        "text/html; charset=utf-8",
    )
    other = shown.client.get("/no/such/place", headers={"accept": "application/json"})
    assert (other.status_code, other.json()) == (404, {"error": "There is no such page."})


def test_columns_are_those_in_which_rows_differ_first(shown: Served) -> None:
    columns = "hparam:lr,hparam:net.units,metric:validation.accuracy"
    answer = shown.json("/api/experiments", columns=columns, order="asc")
    first = answer["rows"][0]
    trial = shown.json(f"/api/trials/{first['best_trial_id']}")
    assert first["columns"]["hparam:lr"] == trial["hparams"]["lr"]
    accuracy = next(m for m in trial["metrics"] if m["name"] == "accuracy")
    assert first["columns"]["metric:validation.accuracy"] == accuracy["last"]
    flags = [column["differs"] for column in answer["columns"]["available"]]
    assert flags == sorted(flags, reverse=True)
    assert {"hparam:lr", "metric:validation.accuracy"} <= {
        column["key"] for column in answer["columns"]["available"]
    }


def test_an_experiment_tells_its_best_and_how_to_load_it(shown: Served) -> None:
    found = shown.json("/api/experiments/1")
    trials = shown.json("/api/experiments/1/trials", sort="best")["rows"]
    assert found["best"]["trial_id"] == trials[0]["id"]
    assert found["best"]["value"] == trials[0]["best_validation"] == found["best_validation"]
    assert "load_trial_from_checkpoint_path" in found["best"]["load"]
    assert found["slot_seconds"] > 0
    assert {"group": "validation", "name": "accuracy", "batches": False} in found["metrics"]
    assert {"group": "training", "name": "loss", "batches": True} in found["metrics"]
    by_name = {hparam["name"]: hparam for hparam in found["hparams"]}
    assert by_name["lr"]["type"] == "log"
    assert by_name["lr"]["differs"]
    assert by_name["global_batch_size"]["values"] == [64]
    assert not by_name["global_batch_size"]["differs"]
    assert by_name["net.activation"]["values"] == ["relu", "gelu", "tanh"]
    assert "name: digits-adaptive" in found["config_yaml"]


def test_a_failed_trial_shows_its_traceback(shown: Served) -> None:
    (row,) = shown.json("/api/experiments/1/trials", state="ERROR")["rows"]
    found = shown.json(f"/api/trials/{row['id']}")
    assert found["error"]["text"].startswith("Traceback")
    line = found["error"]["line"]
    (shown_line,) = shown.json(f"/api/trials/{row['id']}/logs", from_line=line, limit=1)["lines"]
    assert shown_line["text"].startswith("Traceback")
    assert found["run_list"][0]["exit_code"] == 1
    assert found["run_list"][0]["differences"] == []


def test_a_trial_tells_whether_the_platform_started_it(shown: Served) -> None:
    def owner(name: str) -> dict[str, Any]:
        (row,) = shown.json("/api/experiments", search=name)["rows"]
        trials = shown.json(f"/api/experiments/{row['id']}/trials")["rows"]
        found: dict[str, Any] = shown.json(f"/api/trials/{trials[0]['id']}")["experiment"]
        return found

    assert (
        owner("python train.py")["unmanaged"] is True
    )  # so that the page offers no way to kill it
    assert owner("digits-grid")["unmanaged"] is False


def test_a_trial_knows_where_it_stands_and_why(shown: Served) -> None:
    rows = shown.json("/api/experiments/1/trials")["rows"]
    stopped = [row for row in rows if row["decision"].startswith("stopped")]
    assert stopped
    assert all(row["rung"] is not None and row["bracket"] in (0, 1) for row in rows)
    found = shown.json(f"/api/trials/{stopped[0]['id']}")
    assert found["decisions"][-1]["sentence"] == stopped[0]["decision"]
    single = shown.json("/api/experiments/3/trials")["rows"][0]
    assert single["rung"] is None


def test_rungs_keep_the_best_of_those_who_came(shown: Served) -> None:
    found = shown.json("/api/experiments/1/rungs")
    assert found["method"] == "adaptive_asha"
    assert found["unit"] == "batches"
    seen = 0
    for bracket in found["brackets"]:
        for lower, upper in zip(bracket["rungs"], bracket["rungs"][1:], strict=False):
            assert lower["units"] < upper["units"]
            assert lower["kept"] >= upper["seen"]
        for rung in bracket["rungs"]:
            values = [row["metric"] for row in rung["rows"] if row["metric"] is not None]
            assert values == sorted(values)
            assert [row["rank"] for row in rung["rows"]] == list(range(1, len(rung["rows"]) + 1))
            assert all(row["sentence"] for row in rung["rows"])
        seen += bracket["rungs"][0]["seen"]
    assert seen == 16
    assert found["steps"][0]["number"] > found["steps"][-1]["number"]
    assert shown.json("/api/experiments/2/rungs")["brackets"] == []


def test_points_are_the_trials_in_columns(shown: Served) -> None:
    points = shown.json("/api/experiments/1/points")
    rows = shown.json("/api/experiments/1/trials", limit=100)["rows"]
    assert points["ids"] == [row["id"] for row in rows]
    assert points["values"] == [row["best_validation"] for row in rows]
    for name, column in points["hparams"].items():
        assert column == [row["hparams"][name] for row in rows]


def test_a_contour_counts_every_trial_with_a_result(shown: Served) -> None:
    found = shown.json("/api/experiments/1/contour", x="lr", y="net.activation", bins=4)
    assert sum(map(sum, found["count"])) == 16
    assert found["y"] == ["gelu", "relu", "tanh"]
    assert len(found["x"]) == 5
    best = min(value for row in found["z"] for value in row if value is not None)
    assert best == shown.json("/api/experiments/1")["best_validation"]
    assert shown.client.get("/api/experiments/1/contour?x=nope&y=lr").status_code == 404


def test_a_checkpoint_is_downloaded_whole(shown: Served) -> None:
    rows = shown.json("/api/experiments/1/checkpoints", limit=1000)
    assert rows["total"] == len(rows["rows"])
    times = [row["time"] for row in rows["rows"]]
    assert times == sorted(times, reverse=True)
    registered = [row for row in rows["rows"] if row["registered"]]
    assert {"model": "digits-net", "version": 1} in [
        r for row in registered for r in row["registered"]
    ]
    row = rows["rows"][0]
    content = shown.client.get(f"/api/checkpoints/{row['uuid']}/download").content
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        sizes = {member.name.split("/", 1)[1]: member.size for member in tar.getmembers()}
    assert sizes == row["files"]
    trial = shown.json("/api/trials/1/checkpoints")
    assert all(row["trial_id"] == 1 for row in trial["rows"])
    assert shown.client.get("/api/checkpoints/nope/download").status_code == 404


def test_code_is_shown_and_compared(shown: Served) -> None:
    files = shown.json("/api/experiments/1/code")["files"]
    assert {"path": "weights/tiny.bin", "size": 4} in files
    text = shown.json("/api/experiments/1/code/file", path="train.py")
    assert text["text"].startswith("import determined")
    binary = shown.json("/api/experiments/1/code/file", path="weights/tiny.bin")
    assert (binary["text"], binary["binary"]) == (None, True)
    archive = shown.client.get("/api/experiments/1/code/download").content
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert "train.py" in tar.getnames()
    diff = shown.json("/api/experiments/1/diff", other=2)
    assert "-name: digits-adaptive" in diff["config"]
    assert diff["code"] == []
    assert diff["hparams"]["lr"][1]["vals"] == [0.001, 0.01, 0.9]


def test_trials_of_several_experiments_are_compared(shown: Served) -> None:
    found = shown.json("/api/compare", trials="1,2,30")
    assert [trial["id"] for trial in found["trials"]] == [1, 2, 30]
    assert found["trials"][2]["experiment_name"] == "digits-random-running"
    assert found["differs"]["hparams"]["lr"] == [t["hparams"]["lr"] for t in found["trials"]]
    assert found["differs"]["config"]["searcher.name"] == ["adaptive_asha"] * 2 + ["random"]
    assert "global_batch_size" not in found["differs"]["hparams"]
    assert {"group": "training", "name": "loss", "batches": True} in found["metrics"]
    assert shown.client.get("/api/compare?trials=1,999").status_code == 404


def test_the_queue_tells_what_runs_and_why_others_wait(shown: Served) -> None:
    found = shown.json("/api/queue")
    assert {run["name"] for run in found["running"]} == {"digits-random-running"}
    assert len(found["running"]) == 2
    assert found["waiting_total"] == len(found["waiting"]) == 5
    assert {item["why"] for item in found["waiting"]} == {"no supervisor is running"}


def test_models_have_versions(shown: Served) -> None:
    (row,) = shown.json("/api/models")["rows"]
    found = shown.json("/api/models/digits-net")
    assert row["num_versions"] == len(found["versions"]) == 2
    assert found["versions"][0] == found["latest"]
    assert found["versions"][0]["experiment_id"] == 1


def test_the_machine_is_drawn_with_its_extremes(shown: Served) -> None:
    charts = {c["title"]: c for c in shown.json("/api/trials/1/system", px=3)["charts"]}
    assert {"CPU", "Free memory", "Network", "GPU", "Disk in use"} <= charts.keys()
    (cpu,) = charts["CPU"]["series"]
    assert len(cpu["x"]) <= 3 < charts["CPU"]["total"]
    assert all(a <= b <= c for a, b, c in zip(cpu["min"], cpu["y"], cpu["max"], strict=True))
    assert "not profiled" in shown.json("/api/trials/1/profile")["note"]


def test_a_profile_is_shown_where_there_is_one(shown: Served) -> None:
    folder = shown.home.tensorboard / "2"
    folder.mkdir(parents=True)
    part = {"seconds": 3.0, "share": 0.75, "calls": 10}
    content = {"parts": {"data": part}, "other_share": 0.25, "wall_seconds": 4.0}
    (folder / "profile.json").write_bytes(dump(content | {"advice": ["Rest."], "batches": 10}))
    found = shown.json("/api/trials/2/profile")
    assert [(row["what"], row["seconds"]) for row in found["rows"]] == [
        ("data", 3.0),
        ("other", 1.0),
    ]
    assert found["advice"] == ["Rest."]
    (folder / "profile.json").write_text("{")
    assert "cannot be read" in shown.json("/api/trials/2/profile")["note"]


def test_tables_are_exported_without_formulas(shown: Served) -> None:
    text = shown.client.get("/api/export/experiments.csv?sort=id&order=asc").text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["id"] for row in rows] == [str(n) for n in range(1, 10)]
    assert rows[0]["project"] == "vision/digits"
    answer = shown.client.get(
        "/api/export/trials.csv?experiment=1&columns=metric:validation.accuracy"
    )
    trials = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(trials) == 16
    assert float(trials[0]["hparam:lr"]) > 0
    assert "metric:validation.accuracy" in trials[0]
    from determined.platform.trackers.export import cell

    assert cell("=1+1") == "'=1+1"
    assert cell(-1.5) == -1.5


def test_small_curves_are_those_of_the_best_trials(shown: Served) -> None:
    found = shown.json("/api/experiments/sparks", ids="1,2,99", px=5)
    assert set(found) == {"1", "2"}
    assert found["1"]["metric"] == "validation_loss"
    assert len(found["1"]["y"]) <= 5


def test_files_are_checked_before_they_are_sent_again(shown: Served) -> None:
    first = shown.client.get("/static/js/api.js")
    assert first.headers["content-encoding"] == "gzip"
    assert first.headers["cache-control"] == "no-cache"
    again = shown.client.get("/static/js/api.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = shown.client.get("/static/js/api.js", headers={"Accept-Encoding": "identity"})
    assert plain.content == first.content
    page = shown.client.get("/experiments/1/curves")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["cache-control"] == "no-cache"
    assert shown.client.get("/experiments/1/a/b").status_code == 404


def test_json_is_compressed_where_it_pays(shown: Served) -> None:
    assert shown.client.get("/api/experiments").headers["content-encoding"] == "gzip"
    assert "content-encoding" not in shown.client.get("/api/workspaces").headers


# Pure parts


@given(
    st.recursive(
        st.none() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_names_what_is_no_number(data: Any) -> None:
    import json

    assert json.loads(dump(data), parse_constant=pytest.fail) == json_safe(data)


@pytest.mark.parametrize(
    ("header", "takes"),
    [
        ("gzip", True),
        ("br, gzip;q=0.5", True),
        ("*", True),
        ("", False),
        ("gzip;q=0", False),
        ("br", False),
    ],
)
def test_compression_is_used_if_it_is_taken(header: str, takes: bool) -> None:
    assert takes_gzip(header) is takes
    assert gzip.decompress(gzip.compress(b"a")) == b"a"


_values = st.none() | st.integers() | st.text(max_size=3) | st.floats() | st.lists(st.integers())
_groups = st.recursive(
    _values,
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, min_size=1),
    max_leaves=6,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), _groups, max_size=4))
def test_flat_values_are_the_leaves(values: dict[str, Any]) -> None:
    def leaf(path: str) -> Any:
        found: Any = values
        for part in path.split("."):
            found = found[part]
        return found

    for name, value in flat(values).items():
        assert leaf(name) is value or leaf(name) == value  # lists are copied, NaN is not itself
        assert not (isinstance(value, dict) and value)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 1)), max_size=5))
def test_names_differ_if_any_two_rows_do(rows: list[dict[str, int]]) -> None:
    missing = object()
    for name, differs in differing(rows).items():
        assert differs == (len({row.get(name, missing) for row in rows}) > 1)


def test_rows_with_nan_do_not_differ_and_true_is_not_one() -> None:
    assert differing([{"a": math.nan}, {"a": math.nan}]) == {"a": False}
    assert differing([{"a": True}, {"a": 1}]) == {"a": True}
    assert shown_state("PAUSED", True) == "PAUSED"


@given(
    st.lists(
        st.tuples(
            st.floats(0.001, 10), st.sampled_from(["a", None, 3]), st.floats(-5, 5) | st.none()
        ),
        max_size=60,
    ),
    st.integers(2, 8),
    st.booleans(),
    st.sampled_from(["log", "double", "const"]),
)
def test_a_contour_holds_the_best_of_each_cell(
    rows: list[tuple[float, Any, float | None]], bins: int, smaller: bool, kind: str
) -> None:
    x, y = Column([row[0] for row in rows], kind), Column([row[1] for row in rows], "categorical")
    found = contour(x, y, [row[2] for row in rows], bins, smaller)
    assert len({row[0] for row in rows}) < 2 or kind == "const" or found["x_is_range"]
    counted = [v for _, y, v in rows if v is not None and y is not None]
    assert sum(map(sum, found["count"])) == len(counted)
    cells = [value for row in found["z"] for value in row if value is not None]
    if counted:
        pick = min if smaller else max
        assert pick(cells) == pick(counted)
    assert all(
        (value is None) == (count == 0)
        for z, counts in zip(found["z"], found["count"], strict=True)
        for value, count in zip(z, counts, strict=True)
    )


def test_cells_are_even_in_the_way_the_values_were_drawn() -> None:
    values = [0.0001, 0.001, 0.01, 1.0]
    other = Column(["a"] * 4)
    for kind, edges in (("log", [0.0001, 0.01, 1.0]), ("double", [0.0001, 0.50005, 1.0])):
        found = contour(Column(values, kind), other, values, 2, True)
        assert found["x"] == pytest.approx(edges)


def test_importance_finds_what_matters() -> None:
    import random

    draw = random.Random(0)
    rates = [10 ** draw.uniform(-4, -1) for _ in range(300)]
    units = [draw.randint(1, 100) for _ in rates]
    kinds = [draw.choice("abc") for _ in rates]
    losses = [
        abs(math.log10(rate) + 2) + 0.3 * (kind == "a") + 0.02 * draw.random()
        for rate, kind in zip(rates, kinds, strict=True)
    ]
    columns: dict[str, list[Any]] = {
        "units": units,
        "rate": rates,
        "kind": kinds,
        "same": [1] * 300,
    }
    shares = importance(columns, losses, smaller_is_better=True)
    assert list(shares) == ["rate", "kind", "units"]
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["rate"] > 0.6
    turned = importance(columns, [-loss for loss in losses], smaller_is_better=False)
    assert turned == shares
    assert importance(columns, losses[:3], smaller_is_better=True) == {}


def test_importance_ranks_as_optuna_does() -> None:
    optuna = pytest.importorskip("optuna")
    import random

    draw = random.Random(1)
    study = optuna.create_study()
    names = {"strong": 4.0, "middle": 1.5, "weak": 0.1}
    columns: dict[str, list[float]] = {name: [] for name in names}
    values = []
    for _ in range(400):
        params = {name: draw.uniform(0, 1) for name in names}
        value = sum(weight * (params[name] - 0.3) ** 2 for name, weight in names.items())
        for name in names:
            columns[name].append(params[name])
        values.append(value)
        distributions = {n: optuna.distributions.FloatDistribution(0, 1) for n in names}
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=distributions, value=value)
        )
    theirs = optuna.importance.get_param_importances(
        study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
    )
    assert list(importance(columns, values, smaller_is_better=True)) == list(theirs)


def test_a_curve_that_became_nan_is_shown_as_far_as_it_goes(shown: Served) -> None:
    trials = shown.json("/api/experiments/2/trials", sort="hparam:lr", order="desc")["rows"]
    _, (columns,) = shown.series(keys=f"{trials[0]['id']}:validation:validation_loss")
    assert [math.isnan(value) for value in columns["y"]] == [False, False] + [True] * 6
    assert trials[0]["best_validation"] is not None
    detail = shown.json(f"/api/trials/{trials[0]['id']}")
    last = {metric["name"]: metric["last"] for metric in detail["metrics"]}
    assert last["accuracy"] == "NaN"
