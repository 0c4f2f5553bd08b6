"""The pages of the reference that describe Python names, written from their docstrings.

A page lists names as `<!-- ::: package.name -->`; what follows, up to `<!-- end -->`, is made here.
`python -m tools.api_reference` writes all pages; a test compares.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
PAGES = sorted((_ROOT / "docs" / "reference").glob("*.md"))
_ENTRY = re.compile(r"^<!-- ::: (\S+)(?: members=(\S+))? -->\n.*?^<!-- end -->$", re.M | re.S)
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Example|Examples):$")
_WIDTH = 84


def listed() -> set[str]:
    """Every name in the reference."""
    return {match[1] for page in PAGES for match in _ENTRY.finditer(page.read_text())}


def written(page: Path) -> str:
    """A page with what its names have in the source by now."""

    def entry(match: re.Match[str]) -> str:
        members = f" members={match[2]}" if match[2] else ""
        body = "\n\n".join(_described(match[1], match[2]))
        return f"<!-- ::: {match[1]}{members} -->\n\n{body}\n\n<!-- end -->"

    return _ENTRY.sub(entry, page.read_text())


def _described(path: str, members: str | None) -> Iterator[str]:
    module_name, _, name = path.rpartition(".")
    if members is not None:
        module = importlib.import_module(path)
        yield _markdown(inspect.getdoc(module) or "")
        for member in members.split(","):
            yield from _described(f"{path}.{member}", None)
        return
    value = getattr(importlib.import_module(module_name), name)
    yield f'<a id="{path}"></a>\n\n## {name}'
    if inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.isroutine(value):
        yield _code(f"{name}{_signature(value)}")
        yield _markdown(inspect.getdoc(value) or "")
    else:
        yield _markdown(_words_behind(name))


def _class(name: str, value: Any) -> Iterator[str]:
    is_enum = issubclass(value, enum.Enum)
    if not is_enum and _is_ours(value.__init__):
        yield _code(f"class {name}{_signature(value.__init__, skip=1)}")
    yield _markdown(inspect.getdoc(value) or "")
    if is_enum:
        yield "\n".join(f"- `{member.name} = {member.value!r}`" for member in value)
    parent = next((b for b in value.__mro__[1:] if _public_name(b) is not None), None)
    if parent is not None:
        yield f"Has the members of [`{parent.__name__}`](#{_public_name(parent)}) as well."
    for key, member in _members(value, parent):
        yield f"### {name}.{key}"
        if isinstance(member, property):
            yield _markdown(inspect.getdoc(member) or "")
            continue
        skip = 0 if isinstance(member, staticmethod) else 1
        function = getattr(member, "__func__", member)
        if not inspect.isclass(function):
            yield _code(f"{key}{_signature(function, skip=skip)}")
        yield _markdown(inspect.getdoc(function) or "")
        if inspect.isclass(function) and issubclass(function, enum.Enum):
            yield "\n".join(f"- `{one.name}`" for one in function)


def _members(value: type, parent: type | None) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class, and of its bases that have no entry."""
    seen: set[str] = set()
    inherited = set(parent.__mro__) if parent is not None else set()
    for owner in value.__mro__:
        if owner in inherited or not owner.__module__.startswith("determined"):
            continue
        for key, member in vars(owner).items():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            is_shown = inspect.isroutine(function) or inspect.isclass(function)
            if key.startswith("_") or key in seen or not is_shown or not inspect.getdoc(function):
                continue
            seen.add(key)
            yield key, member


@cache
def _public() -> dict[int, str]:
    found = {}
    for path in listed():
        module, _, name = path.rpartition(".")
        try:
            found[id(getattr(importlib.import_module(module), name))] = path
        except (ImportError, AttributeError):
            continue
    return found


def _public_name(value: type) -> str | None:
    return _public().get(id(value))


def _is_ours(function: Any) -> bool:
    return getattr(function, "__module__", "").startswith("determined") or (
        getattr(function, "__qualname__", "").startswith("__create_fn__")
    )


def _signature(function: Any, skip: int = 0) -> str:
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[skip:]
    parts = list(_parameters(parameters))
    result = _annotation(signature.return_annotation)
    end = f") -> {result}" if result and result != "None" else ")"
    line = f"({', '.join(parts)}{end}"
    if len(line) <= _WIDTH - 20:
        return line
    return "(\n" + "".join(f"    {part},\n" for part in parts) + end


def _parameters(parameters: list[inspect.Parameter]) -> Iterator[str]:
    is_keyword_only = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            is_keyword_only = True
        elif parameter.kind is parameter.KEYWORD_ONLY and not is_keyword_only:
            is_keyword_only = True
            yield "*"
        stars: dict[Any, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
        text = stars.get(parameter.kind, "") + parameter.name
        if annotation := _annotation(parameter.annotation):
            text += f": {annotation}"
        if parameter.default is not parameter.empty:
            text += f" = {_default(parameter.default)}"
        yield text


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.replace("typing.", "")


def _default(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    text = repr(value)
    return "..." if text.startswith("<") or " at 0x" in text else text


def _words_behind(name: str) -> str:
    """The text that follows the assignment of a name in the source."""
    for file in sorted((_ROOT / "src" / "determined").rglob("*.py")):
        body = ast.parse(file.read_text()).body
        for first, second in zip(body, body[1:], strict=False):
            target = getattr(first, "target", None) or getattr(first, "targets", [None])[0]
            is_text = isinstance(second, ast.Expr) and isinstance(second.value, ast.Constant)
            if isinstance(target, ast.Name) and target.id == name and is_text:
                return inspect.cleandoc(str(second.value.value))  # type: ignore[attr-defined]  # is_text
    return ""


def _code(text: str) -> str:
    return f"```py\n{text}\n```"


def _markdown(docstring: str) -> str:
    """A docstring in Google style as Markdown: its sections become lists."""
    lines, section = [], ""
    for line in docstring.splitlines():
        if match := _SECTION.match(line):
            section = match[1]
            lines += [f"**{section}**", ""]
        elif section and line and not line.startswith(" "):
            section = ""
            lines.append(line)
        elif section in ("Args", "Attributes", "Raises") and (item := _item(line)):
            lines.append(f"- {item}")
        elif section in ("Args", "Attributes", "Raises"):
            lines.append(line[6:].rjust(len(line[6:]) + 2) if line.strip() else "")
        elif section:
            lines.append(line.removeprefix("    "))
        else:
            lines.append(line)
    # `python` blocks of pages are run, and examples in docstrings need more than they say.
    return "\n".join(lines).strip().replace("```python", "```py")


def _item(line: str) -> str:
    match = re.match(r"^    (\S[^:]*): (.*)$", line)
    return f"`{match[1]}`: {match[2]}" if match else ""


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page))
