"""What the server offers, and how it answers; without processes, over the package's own pipe."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.types import CallToolResult, TextContent, TextResourceContents, Tool

from determined.mcp.server import build
from determined.platform.homes.home import Home
from determined.platform.service import Service
from tests.cli.det import run_det
from tests.docs.pages import ROOT

_CONFIG = {
    "name": "tiny",
    "entrypoint": "python3 train.py",
    "searcher": {"name": "grid", "metric": "loss"},
    "hyperparameters": {"width": {"type": "categorical", "vals": [1, 2, 3]}},
}


def with_client(
    home: Path, work: Callable[[Client], Awaitable[Any]], *, allow_delete: bool = False
) -> Any:
    service = Service(Home(home))

    async def play() -> Any:
        async with Client(build(service, allow_delete=allow_delete)) as client:
            return await work(client)

    try:
        return asyncio.run(play())
    finally:
        service.close()


def call(home: Path, name: str, **arguments: Any) -> tuple[bool, str]:
    async def work(client: Client) -> CallToolResult:
        return await client.call_tool(name, arguments)

    answer = with_client(home, work)
    (content,) = answer.content
    assert isinstance(content, TextContent)
    assert answer.structured_content is None
    return answer.is_error, content.text


def tools(home: Path, *, allow_delete: bool) -> dict[str, Tool]:
    async def work(client: Client) -> dict[str, Tool]:
        return {tool.name: tool for tool in (await client.list_tools()).tools}

    found: dict[str, Tool] = with_client(home, work, allow_delete=allow_delete)
    return found


def test_tools_that_delete_are_offered_only_on_request(tmp_path: Path) -> None:
    usual = tools(tmp_path, allow_delete=False)
    assert not [name for name in usual if "delete" in name]
    more = tools(tmp_path, allow_delete=True)
    assert more.keys() - usual.keys() == {"delete_experiments", "delete_checkpoints"}
    hints = {name: tool.annotations for name, tool in more.items()}
    destroying = {n for n, hint in hints.items() if hint is not None and hint.destructive_hint}
    assert destroying == {
        *("delete_experiments", "delete_checkpoints"),
        *("kill_experiment", "kill_trial", "cancel_experiment"),
    }
    reading = {n for n, hint in hints.items() if hint is not None and hint.read_only_hint}
    assert "create_experiment" not in reading
    assert {"wait_for_experiment", "read_logs", "search_docs"} <= reading


def test_every_tool_says_what_it_does_in_a_short_text(tmp_path: Path) -> None:
    offered = tools(tmp_path, allow_delete=True).values()
    assert all(tool.description and "\n\n\n" not in tool.description for tool in offered)
    assert sum(len(tool.model_dump_json(exclude_none=True)) for tool in offered) < 20_000


def test_the_page_names_every_tool(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "assistants.md").read_text()
    offered = tools(tmp_path, allow_delete=True)
    assert [name for name in offered if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("describe_experiment", {"experiment_id": 7}, "There is no experiment 7. `det experiment"),
        ("wait_for_experiment", {"experiment_id": 7}, "There is no experiment 7. `det experiment"),
        ("explain_trial", {"trial_id": 3}, "There is no trial 3. "),
        ("read_logs", {}, "Give one of `trial_id` and `experiment_id`."),
        (
            "create_experiment",
            {"folder": "/no/such", "config": _CONFIG},
            "`folder` must be an existing folder, got '/no/such'.",
        ),
        (
            "create_experiment",
            {"folder": "/", "config": {"sercher": {}}},
            "configuration: sercher: unknown key (did you mean searcher?)",
        ),
        ("preview_search", {"config": "gone.yaml", "folder": "/"}, "/gone.yaml: cannot be read"),
    ],
)
def test_errors_are_the_sentences_of_the_product(
    tmp_path: Path, name: str, arguments: dict[str, Any], sentence: str
) -> None:
    is_error, text = call(tmp_path, name, **arguments)
    assert is_error
    assert sentence in text


def test_arguments_have_types(tmp_path: Path) -> None:
    is_error, text = call(tmp_path, "wait_for_experiment", experiment_id=1, seconds=1e9)
    assert is_error
    assert "seconds" in text
    assert "less than or equal to 600" in text


def test_a_configuration_is_checked_and_a_search_predicted(tmp_path: Path) -> None:
    assert call(tmp_path, "list_experiments") == (False, '{"experiments":[]}')
    assert call(tmp_path, "validate_configuration", config=_CONFIG) == (False, '{"valid":true}')
    _, text = call(tmp_path, "validate_configuration", config=_CONFIG, show=True)
    assert json.loads(text)["configuration"]["max_restarts"] == 5
    file = tmp_path / "grid.yaml"
    file.write_text("name: a\nsearcher: {name: gird, metric: loss}\n")
    _, text = call(tmp_path, "validate_configuration", config="grid.yaml", folder=str(tmp_path))
    answer = json.loads(text)
    assert answer["valid"] is False
    assert any(f"{file}:2:18: searcher.name" in problem for problem in answer["problems"])
    _, text = call(tmp_path, "preview_search", config={**_CONFIG, "repeat": 4})
    assert json.loads(text)["num_trials"] == 12


def test_pages_are_resources_and_can_be_searched(tmp_path: Path) -> None:
    async def work(client: Client) -> tuple[str, str]:
        index = await client.read_resource("docs://llms.txt")
        page = await client.read_resource("docs://howto/resume.md")
        with pytest.raises(MCPError, match="There is no page nothing.md. docs://llms.txt lists"):
            await client.read_resource("docs://nothing.md")
        with pytest.raises(MCPError):
            await client.read_resource("docs://../pyproject.toml")
        texts = [answer.contents[0] for answer in (index, page)]
        assert all(isinstance(text, TextResourceContents) for text in texts)
        return tuple(text.text for text in texts)  # type: ignore

    index, page = with_client(tmp_path, work)
    assert "(howto/resume.md)" in index
    assert page.startswith("# How do I resume a run?")
    assert "<!--" not in page
    _, text = call(tmp_path, "search_docs", words="compare seeds significance", limit=2)
    assert len(json.loads(text)["sections"]) == 2


def test_without_the_package_one_line_names_the_extra(tmp_path: Path) -> None:
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text("import sys\nsys.modules['mcp'] = None\n")
    answer = run_det("mcp", environment={"PYTHONPATH": str(tmp_path), "DET_HOME": str(tmp_path)})
    assert answer.returncode == 1
    assert answer.stderr == (
        "det: this needs the package mcp: `pip install 'determined-pytorch[mcp]'`.\n"
    )


def test_a_closed_input_is_told_in_one_line(tmp_path: Path) -> None:
    command = f"exec {shlex.quote(sys.executable)} -m determined.cli mcp <&-"
    environment = {**os.environ, "DET_HOME": str(tmp_path)}
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "one of them is closed: let an assistant start it" in done.stderr
    assert done.stderr.count("\n") == 1
