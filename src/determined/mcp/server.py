"""The server: tools and resources over standard input and output, until the input ends."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Annotated, Any

import anyio
import anyio.to_thread
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from determined._version import __version__
from determined.errors import ConfigurationError, DeterminedError
from determined.mcp import pages
from determined.mcp.answers import filled, shortened, to_text
from determined.mcp.deleting import DeletingTools
from determined.mcp.experiments import LONGEST_WAIT_SECONDS, ExperimentId, ExperimentTools
from determined.mcp.trials import TrialTools
from determined.platform.homes.home import Home
from determined.platform.service import Service

_ABOUT = """Runs PyTorch training experiments on this machine, searches hyperparameters, and keeps \
metrics, logs and checkpoints. Experiments go on when this server ends. Typical order: \
validate_configuration, create_experiment (with a key), wait_for_experiment, describe_experiment, \
then explain_trial, read_logs or read_metrics. search_docs answers how something is done; the \
resource docs://llms.txt lists all pages."""
_CANNOT_DELETE = " Nothing can be deleted here: that needs `det mcp --allow-delete`."
_EXPECTED = (DeterminedError, OSError, ValueError)
_POLL_SECONDS = 0.2
_SECTION_CHARACTERS = 1500


def serve(home: Home, *, allow_delete: bool = False) -> None:
    """Answer requests until the client closes the connection."""
    service = Service(home)
    try:
        build(service, allow_delete=allow_delete).run("stdio")
    finally:
        service.close()


def build(service: Service, *, allow_delete: bool = False) -> MCPServer[Any]:
    """A server for one home."""
    about = _ABOUT if allow_delete else _ABOUT + _CANNOT_DELETE
    server: MCPServer[Any] = MCPServer(
        "determined", instructions=about, version=__version__, log_level="WARNING"
    )
    experiments, trials = ExperimentTools(service), TrialTools(service)
    readers = [_answering(tool, service) for tool in (*experiments.readers, *trials.readers)]
    for tool in (*readers, _waiting(experiments, service), _answering(search_docs, service)):
        _add(server, tool, reads=True)
    for tool in (*experiments.actors, *trials.actors):
        _add(server, _answering(tool, service), reads=False)
    for tool in DeletingTools(service).actors if allow_delete else ():
        _add(server, _answering(tool, service), reads=False, deletes=True)
    _add_pages(server)
    return server


def _add(
    server: MCPServer[Any], tool: Callable[..., Any], *, reads: bool, deletes: bool = False
) -> None:
    hints = ToolAnnotations(
        read_only_hint=reads,
        destructive_hint=deletes or tool.__name__.startswith(("kill", "cancel")),
        open_world_hint=False,
    )
    server.add_tool(tool, annotations=hints, structured_output=False)


def _answering(tool: Callable[..., Any], service: Service) -> Callable[..., CallToolResult]:
    """Make answers JSON, and expected errors the sentences that `det` prints.

    As with any command, unfinished work gets a supervisor if it has none.
    """

    @functools.wraps(tool)
    def call(**arguments: Any) -> CallToolResult:
        try:
            with contextlib.suppress(OSError, DeterminedError):  # what is there can be read
                service.wake_if_needed()
            return _result(to_text(tool(**arguments)))
        except _EXPECTED as error:
            return _refusal(error)

    return call


def _refusal(error: Exception) -> CallToolResult:
    if isinstance(error, ConfigurationError):
        words = "\n".join(map(str, error.problems))
    elif isinstance(error, OSError) and error.filename:
        words = f"{error.filename}: {error.strerror}"
    else:
        words = str(error) or type(error).__name__
    return _result(words, is_error=True)


def _result(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


def _waiting(experiments: ExperimentTools, service: Service) -> Callable[..., Any]:
    """The tool that waits: not in a thread, so that the server can end meanwhile."""
    describe = _answering(experiments.describe_experiment, service)

    async def wait_for_experiment(
        experiment_id: ExperimentId,
        seconds: Annotated[
            float, Field(ge=0, le=LONGEST_WAIT_SECONDS, description="How long at most.")
        ] = 60.0,
    ) -> CallToolResult:
        """Wait until an experiment ends or is paused, then describe it; call it again if it has
        not ended by then.
        """
        end = time.monotonic() + seconds
        in_thread = anyio.to_thread.run_sync
        try:
            while not await in_thread(experiments.is_settled, experiment_id):
                if time.monotonic() >= end:
                    break
                await anyio.sleep(_POLL_SECONDS)
        except _EXPECTED as error:
            return _refusal(error)
        return await in_thread(functools.partial(describe, experiment_id=experiment_id))

    return wait_for_experiment


def search_docs(
    words: Annotated[str, Field(description="What to look for, a few words.")],
    limit: Annotated[int, Field(ge=1, le=20)] = 3,
) -> dict[str, Any]:
    """Search the documentation; returns the sections that fit best."""
    found = [
        filled(
            page=f"docs://{section.page}",
            heading=section.heading,
            text=shortened(section.text, _SECTION_CHARACTERS),
        )
        for section in pages.search(words, limit)
    ]
    return {"sections": found}


def _add_pages(server: MCPServer[Any]) -> None:
    @server.resource(
        f"docs://{pages.INDEX}", name=pages.INDEX, title="All pages", mime_type="text/plain"
    )
    def index() -> str:
        return _page(pages.INDEX)

    @server.resource(
        "docs://{+name}",
        name="page",
        title="A page of the documentation",
        mime_type="text/markdown",
    )
    def page(name: str) -> str:
        return _page(name)


def _page(name: str) -> str:
    try:
        return pages.read(name)
    except KeyError:
        raise ResourceNotFoundError(
            f"There is no page {name}. docs://{pages.INDEX} lists all."
        ) from None
