"""Endpoints: a path, and a function whose signature says what a request may contain.

    @routes.get("/experiments/{id}/trials")
    def trials(view: View, id: Id, wanted: TrialFilters, limit: Limit = 100) -> TrialsJson: ...

Every argument but `view` is a parameter, in the path or in the query; the fields of a dataclass are
parameters too, and `body` is the JSON that was sent. pydantic checks each request against these
types (`parameters.py`), and `openapi.py` describes them.
Functions run in threads, so they may block; exceptions become errors that a page can show.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sqlite3
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import ErrorDetails
from starlette.requests import Request
from starlette.responses import Response

from determined.dashboard.endpoints.encoding import compressed, dump
from determined.dashboard.endpoints.parameters import Body
from determined.errors import DeterminedError
from determined.platform.service import NotFoundError, RefusedError

if TYPE_CHECKING:
    from determined.dashboard.view import View

Function = Callable[..., Any]


class ApiError(Exception):
    """An error response: the status, a sentence, and possibly the next step."""

    def __init__(self, status: int, error: str, next_step: str = "") -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.next_step = next_step


@dataclass(frozen=True)
class Endpoint:
    """One HTTP method of one path; its types are built when it is used first."""

    method: str
    path: str
    function: Function
    media_type: str
    subject: str

    @cached_property
    def _signature(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function, eval_str=True).parameters

    @cached_property
    def groups(self) -> dict[str, type]:
        """The arguments of the function that are dataclasses of parameters."""
        return {n: p.annotation for n, p in self._signature.items() if _is_group(p.annotation)}

    @cached_property
    def body(self) -> type[Body] | None:
        """What the body of a request must be, if it has one."""
        item = self._signature.get("body")
        return None if item is None else item.annotation

    @cached_property
    def parameters(self) -> type[BaseModel]:
        """All parameters, in the path and in the query."""
        fields: dict[str, Any] = {
            name: (item.annotation, ... if item.default is item.empty else item.default)
            for name, item in self._signature.items()
            if name not in ("view", "body", *self.groups)
        }
        for group in self.groups.values():
            fields |= _fields_of(group)
        return create_model("Parameters", __config__=ConfigDict(extra="forbid"), **fields)

    @cached_property
    def path_names(self) -> list[str]:
        """The parameters in the path."""
        return re.findall(r"{(\w+)}", self.path)

    @cached_property
    def query_names(self) -> list[str]:
        """The parameters in the query."""
        names = [item.alias or name for name, item in self.parameters.model_fields.items()]
        return [name for name in names if name not in self.path_names]

    def arguments(self, path: Mapping[str, str], query: Mapping[str, list[str]]) -> dict[str, Any]:
        """The arguments of the function; an ApiError names an invalid parameter."""
        given = dict(path)
        for name, texts in query.items():
            if name not in self.query_names:
                known = ", ".join(self.query_names) or "none"
                words = f"There is no parameter {_shown(name)} here; there are: {known}."
                raise ApiError(422, words)
            if len(texts) > 1:
                raise ApiError(422, f"{name}: expected one value, got {len(texts)} times.")
            if texts[0]:  # an empty one is left out
                given[name] = texts[0]
        try:
            found = self.parameters.model_validate(given)
        except ValidationError as error:
            raise ApiError(422, sentence(error.errors())) from None
        values = {name: getattr(found, name) for name in self.parameters.model_fields}
        for name, group in self.groups.items():
            fields = dataclasses.fields(group)
            values[name] = group(**{item.name: values.pop(item.name) for item in fields})
        return values

    def read_body(self, content: bytes) -> Body:
        """The body of a request; an ApiError says what is wrong with it."""
        assert self.body is not None
        try:
            data = json.loads(content or b"{}", parse_constant=_reject_constant)
        except (ValueError, RecursionError):
            raise ApiError(400, "The body is not JSON.") from None
        try:
            return self.body.model_validate(data)
        except ValidationError as error:
            raise ApiError(422, sentence(error.errors())) from None


def _reject_constant(word: str) -> Any:
    raise ValueError(word)


@dataclass
class Routes:
    """The endpoints of one subject, filled by decorators."""

    subject: str
    endpoints: list[Endpoint] = field(default_factory=list)

    def get(
        self, path: str, media_type: str = "application/json"
    ) -> Callable[[Function], Function]:
        """Declare a query."""
        return self._declare("GET", path, media_type)

    def post(self, path: str) -> Callable[[Function], Function]:
        """Declare an action."""
        return self._declare("POST", path)

    def patch(self, path: str) -> Callable[[Function], Function]:
        """Declare a change."""
        return self._declare("PATCH", path)

    def _declare(
        self, method: str, path: str, media_type: str = "application/json"
    ) -> Callable[[Function], Function]:
        def keep(function: Function) -> Function:
            endpoint = Endpoint(method, f"/api{path}", function, media_type, self.subject)
            self.endpoints.append(endpoint)
            return function

        return keep


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


def _fields_of(group: Any) -> dict[str, Any]:
    """The fields of a dataclass as those of a model; all have defaults."""
    hints = typing.get_type_hints(group, include_extras=True)
    return {item.name: (hints[item.name], item.default) for item in dataclasses.fields(group)}


_EXPECTED = {
    "expected": "{expected}",
    "missing": "a value",
    "literal_error": "{expected}",
    **dict.fromkeys(("int_parsing", "int_parsing_size", "int_from_float"), "an integer"),
    "int_type": "an integer",
    **dict.fromkeys(("float_parsing", "float_type", "finite_number"), "a number"),
    "bool_type": "true or false",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "string_type": "text",
    "string_unicode": "text that can be stored as UTF-8",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "text like {pattern}",
    "list_type": "a list",
    "too_short": "at least {min_length} values",
    "too_long": "at most {max_length} values",
    "model_type": "a JSON object",
}


def sentence(errors: list[ErrorDetails]) -> str:
    """What is wrong with a parameter or a body: its name, what was expected, and what came."""
    first = errors[0]
    name = str(first["loc"][0]) if first["loc"] else "The body"
    if first["type"] == "extra_forbidden":
        return f"{name}: expected no such property."
    alternatives = [error for error in errors if error["input"] is first["input"]]
    words = " or ".join(dict.fromkeys(map(_expected, alternatives)))
    got = "none" if first["type"] == "missing" else _shown(first["input"])
    return f"{name}: expected {words}, got {got}."


def _expected(error: ErrorDetails) -> str:
    template = _EXPECTED.get(error["type"])
    return error["msg"] if template is None else template.format(**error.get("ctx", {}))


def _shown(value: Any) -> str:
    """A value as quoted in an error: short, and on one line."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = text if len(text) <= 60 else f"{text[:57]}..."
    return repr(text) if isinstance(value, str) else text


def answer(endpoint: Endpoint, view: View, request: Request, body: bytes) -> Any:
    """Run an endpoint for a request; called in a thread. For a stream, return its listener."""
    try:
        arguments = endpoint.arguments(request.path_params, _query(request))
        if endpoint.body is not None:
            arguments["body"] = endpoint.read_body(body)
        result = endpoint.function(view, **arguments)
    except ApiError as error:
        return problem(error.status, error.error, error.next_step)
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
    content = result if isinstance(result, bytes) else dump(result)
    return compressed(content, endpoint.media_type, accepted)


def _query(request: Request) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        found.setdefault(name, []).append(value)
    return found


def problem(status: int, error: str, next_step: str = "") -> Response:
    """An error as JSON."""
    content = {"error": error, **({"next": next_step} if next_step else {})}
    return Response(dump(content), status, media_type="application/json")
