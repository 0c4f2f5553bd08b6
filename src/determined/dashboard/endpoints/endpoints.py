"""Declare endpoints: their parameters, their answers, and the functions that compute them.

    @routes.get("/experiments/{id}", id=ID)
    def experiment(view: View, id: int) -> ExperimentDetail: ...

The same declaration checks every request and describes the endpoint in the OpenAPI schema.
Functions run in threads, so they may block; exceptions become errors that a page can show.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from determined.dashboard.endpoints.bodies import check
from determined.dashboard.endpoints.encoding import compressed, dump
from determined.dashboard.endpoints.kinds import BadValue, Kind, shown
from determined.errors import DeterminedError
from determined.platform.service import NotFoundError, RefusedError

if TYPE_CHECKING:
    from determined.dashboard.view import View

Function = Callable[..., Any]


class Refusal(Exception):
    """An error response: the status, a sentence, and possibly the next step."""

    def __init__(self, status: int, error: str, next_step: str = "") -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.next_step = next_step


@dataclass(frozen=True)
class Parameter:
    """A parameter of an endpoint; one without a default is required."""

    kind: Kind
    default: Any = None
    is_required: bool = False
    about: str = ""


@dataclass(frozen=True)
class Endpoint:
    """One HTTP method of one path."""

    method: str
    path: str
    function: Function
    parameters: dict[str, Parameter]
    body: dict[str, Any] | None = None
    media_type: str = "application/json"
    subject: str = ""

    @property
    def path_names(self) -> list[str]:
        """The parameters in the path."""
        return re.findall(r"{(\w+)}", self.path)

    def arguments(self, path: dict[str, str], query: dict[str, list[str]]) -> dict[str, Any]:
        """Check the parameters; BadValue names an invalid one."""
        unknown = query.keys() - self.parameters.keys() | query.keys() & set(self.path_names)
        if unknown:
            known = [name for name in self.parameters if name not in self.path_names]
            raise BadValue(
                f"There is no parameter {shown(min(unknown))} here; there are: "
                f"{', '.join(known) or 'none'}."
            )
        found = {}
        for name, parameter in self.parameters.items():
            texts = [path[name]] if name in path else query.get(name, [])
            if len(texts) > 1:
                raise BadValue(f"{name}: expected one value, got {len(texts)} times.")
            if not texts or (texts == [""] and not parameter.is_required):
                if parameter.is_required:
                    raise BadValue(f"{name}: expected a value, got none.")
                found[_argument(name)] = parameter.default
                continue
            try:
                found[_argument(name)] = parameter.kind.parse(texts[0])
            except BadValue as error:
                raise BadValue(f"{name}: {error}.") from None
        return found


def _argument(name: str) -> str:
    return f"{name}_" if name in ("from",) else name


@dataclass
class Routes:
    """The endpoints of one subject, filled by decorators."""

    subject: str
    endpoints: list[Endpoint] = field(default_factory=list)

    def get(
        self, path: str, media_type: str = "application/json", /, **parameters: Parameter | Kind
    ) -> Callable[[Function], Function]:
        """Declare a query."""
        return self._declare("GET", path, None, media_type, parameters)

    def post(
        self, path: str, /, *, body: dict[str, Any] | None = None, **parameters: Parameter | Kind
    ) -> Callable[[Function], Function]:
        """Declare an action."""
        return self._declare("POST", path, body, "application/json", parameters)

    def patch(
        self, path: str, /, *, body: dict[str, Any], **parameters: Parameter | Kind
    ) -> Callable[[Function], Function]:
        """Declare a change."""
        return self._declare("PATCH", path, body, "application/json", parameters)

    def _declare(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        media_type: str,
        parameters: dict[str, Parameter | Kind],
    ) -> Callable[[Function], Function]:
        in_path = re.findall(r"{(\w+)}", path)
        known = {
            name.rstrip("_"): item
            if isinstance(item, Parameter)
            else Parameter(item, is_required=name in in_path)
            for name, item in parameters.items()
        }
        assert set(in_path) <= known.keys(), f"{path} does not say what {in_path} are"

        def keep(function: Function) -> Function:
            self.endpoints.append(
                Endpoint(method, f"/api{path}", function, known, body, media_type, self.subject)
            )
            return function

        return keep


def answer(endpoint: Endpoint, view: View, request: Request, body: bytes) -> Any:
    """Run an endpoint for a request; called in a thread. For a stream, return its listener."""
    try:
        arguments = endpoint.arguments(dict(request.path_params), _query(request))
        if endpoint.body is not None:
            arguments["body"] = _json(body)
            check(arguments["body"], endpoint.body)
        result = endpoint.function(view, **arguments)
    except Refusal as error:
        return problem(error.status, error.error, error.next_step)
    except BadValue as error:
        return problem(422, str(error))
    except NotFoundError as error:
        return problem(404, str(error))
    except RefusedError as error:
        return problem(409, str(error))
    except DeterminedError as error:
        return problem(503, str(error))
    except sqlite3.Error as error:
        return problem(503, f"The store cannot be read: {error}.", "`det store check` shows more.")
    except OSError as error:
        return problem(503, f"{error.filename or 'A file'} cannot be read: {error.strerror}.")
    if isinstance(result, Response) or endpoint.media_type == "text/event-stream":
        return result
    accepted = request.headers.get("accept-encoding", "")
    body = result if isinstance(result, bytes) else dump(result)
    return compressed(body, endpoint.media_type, accepted)


def _query(request: Request) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        found.setdefault(name, []).append(value)
    return found


def _json(body: bytes) -> Any:
    try:
        return json.loads(body or b"{}", parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refusal(400, "The body is not JSON.") from None


def _no_constant(word: str) -> Any:
    raise ValueError(word)


def problem(status: int, error: str, next_step: str = "") -> Response:
    """An error as JSON."""
    content = {"error": error, **({"next": next_step} if next_step else {})}
    return Response(dump(content), status, media_type="application/json")
