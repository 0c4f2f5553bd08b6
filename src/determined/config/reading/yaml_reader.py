"""Read YAML 1.2 text as plain values, with the place of every key and value.

Numbers may have underscores and integers may be binary, octal or hexadecimal, as in the reader of
the original.

It uses the parser's events rather than composed nodes: one pass, no recursion in C that deep
nesting could overflow, and the size of an alias is counted before it is expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from determined.config.messages.problems import Path, Place, Problem, shown

MAX_BYTES = 1_000_000
MAX_DEPTH = 64
MAX_VALUES = 100_000

_PREFIX = "tag:yaml.org,2002:"
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9][0-9_]*")
_OTHER_BASES = {
    2: re.compile(r"[-+]?0b_*[01][01_]*"),
    8: re.compile(r"[-+]?0o_*[0-7][0-7_]*"),
    16: re.compile(r"[-+]?0x_*[0-9a-fA-F][0-9a-fA-F_]*"),
}
_FLOAT = re.compile(r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NAN = re.compile(r"\.(nan|NaN|NAN)")
_MERGE = "<<"
_OLDER_BOOL = {"yes": True, "on": True, "y": True, "no": False, "off": False, "n": False}


class Marks(NamedTuple):
    """Where a value and its key start; the key of a list item is the item itself."""

    key: Place
    value: Place


class Document(NamedTuple):
    """A parsed file: its value (None if parsing failed), its places and its problems."""

    value: Any
    marks: dict[Path, Marks]
    problems: list[Problem]


def plain_scalar(text: str) -> Any:
    """Return what unquoted text means under the core schema of YAML 1.2."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text[0] in "tT"
    digits = text.replace("_", "")
    if _INT.fullmatch(text):
        return int(digits)
    for base, number in _OTHER_BASES.items():
        if number.fullmatch(text):
            return int(digits, base)
    if _FLOAT.fullmatch(text):
        return float(digits)
    if _INFINITY.fullmatch(text):
        return float(text.replace(".", "").lower())
    return float("nan") if _NAN.fullmatch(text) else text


def in_older_yaml(text: str) -> bool | None:
    """Return what text meant under YAML 1.1, if it was a boolean."""
    return _OLDER_BOOL.get(text.lower())


def read_value(data: bytes | str, source: str) -> Any:
    """Read a document that is no configuration: keys have types, and ValueError says what is wrong.

    Raises:
        ValueError: It is not YAML, or not plain values only.
    """
    document = read(data, source, typed_keys=True)
    for problem in document.problems:
        if problem.severity == "error":
            raise ValueError(f"{source} is not YAML of plain values: {problem}")
    return document.value


def read(data: bytes | str, source: str, *, typed_keys: bool = False) -> Document:
    """Read one YAML document; mistakes in it become problems, never exceptions."""
    text = _decode(data, source)
    if isinstance(text, Problem):
        return Document(None, {}, [text])
    reader = _Reader(text, source, typed_keys)
    try:
        value = reader.document()
    except _Refused as refused:
        return Document(None, {}, [*reader.problems, refused.problem])
    except yaml.YAMLError as error:
        return Document(None, {}, [*reader.problems, reader.syntax_problem(error)])
    return Document(value, reader.marks, reader.problems)


def _decode(data: bytes | str, source: str) -> str | Problem:
    if len(data) > MAX_BYTES:
        message = f"the file has {len(data):,} bytes; at most {MAX_BYTES:,} are read"
        return Problem(message, source=source)
    if isinstance(data, str):
        return data.removeprefix("\ufeff")
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding, errors="replace")
        line = before.count("\n") + 1
        column = len(before) - (before.rfind("\n") + 1) + 1
        byte = data[error.start]
        message = f"line {line}, column {column} is not UTF-8 text (byte 0x{byte:02x})"
        return Problem(message, hint="save the file as UTF-8", source=source)


class _Refused(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def _events(text: str) -> Iterator[Any]:
    """Yield the parser's events; from the C parser if PyYAML was built with it."""
    parser: Any = yaml.CSafeLoader(text) if yaml.__with_libyaml__ else yaml.SafeLoader(text)
    while True:
        event = parser.get_event()
        if event is None or isinstance(event, yaml.StreamEndEvent):
            return
        yield event


class _Reader:
    """Builds the value of one document from its events."""

    def __init__(self, text: str, source: str, typed_keys: bool) -> None:
        self._typed_keys = typed_keys
        self.marks: dict[Path, Marks] = {}
        self.problems: list[Problem] = []
        self._text = text
        self._lines = text.splitlines()
        self._source = source
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._num_values = 0
        self._events: Iterator[Any] = iter(())

    def document(self) -> Any:
        self._events = _events(self._text)
        next(self._events)  # the stream's start
        first = next(self._events, None)
        if first is None:
            return None
        value = self._value(next(self._events), (), 0)
        next(self._events)  # the document's end
        another = next(self._events, None)
        if another is not None:
            raise self._refused("a second document starts here; a configuration is one", another)
        return value

    def syntax_problem(self, error: yaml.YAMLError) -> Problem:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        message = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        position = getattr(error, "position", None)
        if mark is not None:
            place = self._place(mark.line, mark.column)
        elif isinstance(position, int):
            before = self._text[:position]
            place = self._place(before.count("\n"), len(before) - before.rfind("\n") - 1)
        else:
            place = None
        text = self._lines[place.line - 1] if place and place.line <= len(self._lines) else ""
        indent = text[: len(text) - len(text.lstrip())]
        hint = "indent with spaces, not tabs" if "\t" in indent else None
        return Problem(f"not YAML: {message}", hint=hint, source=self._source, place=place)

    def _place(self, line: int, column: int) -> Place:
        text = self._lines[line] if line < len(self._lines) else ""
        return Place(line + 1, column + 1, text)

    def _at(self, event: Any) -> Place:
        return self._place(event.start_mark.line, event.start_mark.column)

    def _refused(self, message: str, event: Any, path: Path = ()) -> _Refused:
        place = self._at(event)
        return _Refused(Problem(message, path=path, source=self._source, place=place))

    def _note_problem(self, message: str, event: Any, path: Path) -> None:
        self.problems.append(
            Problem(message, path=path, source=self._source, place=self._at(event))
        )

    def _count(self, number: int, event: Any, path: Path) -> None:
        self._num_values += number
        if self._num_values > MAX_VALUES:
            raise self._refused(
                f"more than {MAX_VALUES:,} values once aliases are expanded", event, path
            )

    def _value(self, event: Any, path: Path, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._refused(f"nested more than {MAX_DEPTH} levels deep", event)
        if path not in self.marks:
            self.marks[path] = Marks(self._at(event), self._at(event))
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise self._refused(f"unknown alias `*{event.anchor}`", event, path)
            value, size = self._anchors[event.anchor]
            self._count(size, event, path)
            return value
        before = self._num_values
        self._count(1, event, path)
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(event, path, depth)
        else:
            value = self._mapping(event, path, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._num_values - before)
        return value

    def _scalar(self, event: Any, path: Path) -> Any:
        tag, text = event.tag, event.value
        if tag == "!" or tag == _PREFIX + "str" or (tag is None and not event.implicit[0]):
            return text
        try:
            value = plain_scalar(text)
        except ValueError:  # too many digits
            self._note_problem("an integer with too many digits", event, path)
            return 0
        if tag is None:
            self._tell_older_meaning(text, event, path)
            return value
        wanted = tag.removeprefix(_PREFIX)
        if wanted == "float" and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        names = {bool: "bool", int: "int", float: "float", type(None): "null"}
        if names.get(type(value)) != wanted:
            self._refuse_tag(event, path)
        return value

    def _tell_older_meaning(self, text: str, event: Any, path: Path) -> None:
        """Point out that a hyperparameter is now text, which no schema would notice."""
        meant = in_older_yaml(text) if path[:1] == ("hyperparameters",) else None
        if meant is not None and len(text) > 1:  # `y` and `n` are names
            words = f"in YAML 1.2 this is text; write {shown(meant)}, or quote it"
            place = self._at(event)
            self.problems.append(
                Problem(words, path=path, source=self._source, place=place, severity="note")
            )

    def _refuse_tag(self, event: Any, path: Path) -> None:
        tag = event.tag.replace(_PREFIX, "!!")
        self._note_problem(f"the tag `{tag}` is not allowed here; write a plain value", event, path)

    def _sequence(self, event: Any, path: Path, depth: int) -> list[Any]:
        if event.tag not in (None, "!", _PREFIX + "seq"):
            self._refuse_tag(event, path)
        items: list[Any] = []
        for item in self._events:
            if isinstance(item, yaml.SequenceEndEvent):
                break
            items.append(self._value(item, (*path, len(items)), depth + 1))
        return items

    def _mapping(self, event: Any, path: Path, depth: int) -> dict[str, Any]:
        if event.tag not in (None, "!", _PREFIX + "map"):
            self._refuse_tag(event, path)
        own: dict[str, Any] = {}
        merged: list[Any] = []
        for key_event in self._events:
            if isinstance(key_event, yaml.MappingEndEvent):
                break
            if not isinstance(key_event, yaml.ScalarEvent):
                raise self._refused("a key must be a plain word", key_event, path)
            self._count(1, key_event, path)
            value_event = next(self._events)
            key = self._key(key_event, path)
            if key == _MERGE and key_event.implicit[0]:
                value = self._value(value_event, (*path, key), depth + 1)
                merged.extend(self._merged(value, value_event, path))
                continue
            self._mark_key(own, key, key_event, value_event, path)
            value = self._value(value_event, (*path, key), depth + 1)
            own.setdefault(key, value)
        for other in merged:
            own = {**{k: v for k, v in other.items() if k not in own}, **own}
        return own

    def _key(self, event: Any, path: Path) -> Any:
        """Return a key: as it is written, unless keys have types."""
        return self._scalar(event, path) if self._typed_keys else event.value

    def _mark_key(
        self, own: dict[str, Any], key: str, key_event: Any, value_event: Any, path: Path
    ) -> None:
        here = (*path, key)
        if key in own:
            first = self.marks[here].key
            self._note_problem(f"duplicate key, first given in line {first.line}", key_event, here)
        else:
            self.marks[here] = Marks(self._at(key_event), self._at(value_event))

    def _merged(self, value: Any, event: Any, path: Path) -> list[dict[str, Any]]:
        """Return the mappings that a merge key `<<` brings in."""
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            self._note_problem("`<<` takes a mapping or a list of mappings", event, path)
            return []
        return sources
