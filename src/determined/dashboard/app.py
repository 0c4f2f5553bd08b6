"""The application: the API, the page and its files, behind access control.

A few long-lived threads, each with its own connection to the store, answer queries. Actions, which
wait for the supervisor, have separate threads, so they never delay a query.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from determined.dashboard.api import (
    all_trials,
    checkpoints,
    code,
    compare,
    events,
    experiment,
    experiments,
    export,
    logs,
    media,
    models,
    queue,
    registry,
    search,
    series,
    session,
    system,
    tensorboard,
    trials,
    verbs,
)
from determined.dashboard.endpoints.encoding import compressed, dump
from determined.dashboard.endpoints.endpoints import ApiError, Endpoint, answer, problem
from determined.dashboard.endpoints.openapi import openapi
from determined.dashboard.live import MOST_LISTENERS, Listener, Live, read_mark
from determined.dashboard.server.access import Access, Guard, read_body
from determined.dashboard.server.static_files import StaticFiles
from determined.dashboard.view import View
from determined.platform.service import Service

logger = logging.getLogger("determined.dashboard")

_SUBJECTS = (
    *(
        session,
        experiments,
        experiment,
        trials,
        all_trials,
        search,
        series,
        media,
        logs,
        checkpoints,
        code,
    ),
    *(compare, registry, models, queue, system, tensorboard, export, events, verbs),
)
_PAGES = re.compile(
    r"/|/experiments/\d+(/[a-z]+)?|/trials(/\d+(/[a-z]+)?)?|/compare|/models(/.+)?|/queue"
)
_READERS, _ACTORS = 4, 8


def endpoints() -> list[Endpoint]:
    """All endpoints of the API."""
    return [endpoint for subject in _SUBJECTS for endpoint in subject.routes.endpoints]


def make_app(service_factory: Callable[[], Service], access: Access) -> ASGIApp:
    """Build the application; the service is created when it starts and closed when it ends."""
    files = StaticFiles()

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        view = View(service_factory(), access.csrf)
        readers = ThreadPoolExecutor(_READERS, thread_name_prefix="reader")
        actors = ThreadPoolExecutor(_ACTORS, thread_name_prefix="actor")
        app.state.view, app.state.readers, app.state.actors = view, readers, actors
        app.state.live = Live(view)
        try:
            yield
        finally:
            await app.state.live.close()
            readers.shutdown(cancel_futures=True)
            actors.shutdown(wait=False, cancel_futures=True)
            view.close()

    async def in_thread(
        request: Request, function: Callable[..., Response], *args: object
    ) -> Response:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(request.app.state.readers, function, *args)

    async def page(request: Request) -> Response:
        is_known = _PAGES.fullmatch(request.url.path) is not None
        path = files.find("index.html")
        if path is None or not (is_known or "text/html" in request.headers.get("accept", "")):
            return problem(404, "There is no such page.")
        return await in_thread(request, files.answer, path, request, 200 if is_known else 404)

    async def static(request: Request) -> Response:
        path = files.find(request.path_params["name"])
        if path is None:
            return problem(404, "There is no such file.")
        return await in_thread(request, files.answer, path, request)

    async def description(request: Request) -> Response:
        accepted = request.headers.get("accept-encoding", "")
        return compressed(dump(openapi(endpoints())), "application/json", accepted)

    routes: list[BaseRoute] = [_route(endpoint) for endpoint in endpoints()]
    routes += [
        Route("/api/openapi.json", description),
        Route("/static/{name:path}", static),
        Route("/{path:path}", page),
    ]
    app = Starlette(
        routes=routes,
        lifespan=life,
        exception_handlers={HTTPException: _http_problem, 500: _fault},
    )
    return Guard(app, access)  # outermost: responses to errors inside pass through it too


def _route(endpoint: Endpoint) -> Route:
    is_query = endpoint.method == "GET"

    async def handle(request: Request) -> Response:
        state = request.app.state
        body = b""
        if not is_query:
            try:
                body = await read_body(request.receive)
            except ApiError as error:
                return problem(error.status, error.error)
        pool = state.readers if is_query else state.actors
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(pool, answer, endpoint, state.view, request, body)
        return result if isinstance(result, Response) else _stream(request, result)

    path = endpoint.path.replace("{name}", "{name:path}")  # a model's name may contain a slash
    return Route(path, handle, methods=[endpoint.method])


def _stream(request: Request, listener: Listener) -> Response:
    """A stream of changes; a returning listener continues where it left off."""
    live: Live = request.app.state.live
    if live.num_listeners >= MOST_LISTENERS:
        return problem(503, f"There are {MOST_LISTENERS} streams already.", "Close some pages.")
    mark = request.query_params.get("since") or request.headers.get("last-event-id", "")
    known = read_mark(mark)
    since = None
    if known is not None:
        since, listener.log_line = known
    headers = {"X-Accel-Buffering": "no"}
    messages = live.stream(listener, since)
    return StreamingResponse(messages, media_type="text/event-stream", headers=headers)


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "There is nothing here.", 405: f"{request.method} is not allowed here."}
    answered = problem(error.status_code, words.get(error.status_code, str(error.detail)))
    for name, value in (error.headers or {}).items():
        answered.headers[name] = value
    return answered


async def _fault(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed.", request.method, request.url.path, exc_info=error)
    return problem(500, "This is a bug in the dashboard itself; its output shows more.")
