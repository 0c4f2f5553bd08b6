"""Load a file, text or dictionary into a complete configuration, or report all of its problems."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from determined.config.messages.problems import Path, Problem, dotted, shown
from determined.errors import ConfigurationError

if TYPE_CHECKING:
    from determined.config.model.experiment import Configuration
    from determined.config.reading.origins import Origins

_DEFAULT_POLICIES = [
    {"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"},
    {"name": "ECC Error", "pattern": ".*uncorrectable ECC error encountered.*"},
]


@dataclasses.dataclass(frozen=True)
class Completion:
    """Sources of missing values: the time, a template and the platform's own settings."""

    created: int = 0
    """Unix seconds; the experiment's seed unless the configuration has one."""
    name: str = "Experiment"
    template: Mapping[str, Any] | str | None = None
    """Another configuration (a dictionary, or YAML) that supplies missing values."""
    checkpoint_storage: Mapping[str, Any] | None = None
    """The platform's default storage."""
    managed: bool = True
    """Whether the platform starts the trials, so that an entrypoint is needed."""
    count_slots: Callable[[], int] | None = None
    """Tells how many slots there are: as many trials of a search with a model run at once."""


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A configuration without errors."""

    configuration: Configuration
    effective: dict[str, Any]
    """The whole configuration as plain values with every default filled in: what a trial sees."""
    notes: tuple[Problem, ...]


def load_file(
    path: str | FilePath, overrides: Sequence[str] = (), completion: Completion | None = None
) -> Loaded:
    """Load a YAML file. Raises `ConfigurationError`, which holds all problems at once."""
    source = str(path)
    try:
        with FilePath(path).open("rb") as file:
            data = file.read(_max_bytes() + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            source, [Problem(f"cannot be read: {reason}", source=source)]
        ) from None
    return load(data, source, overrides, completion)


def load(
    config: Mapping[str, Any] | str | bytes,
    source: str = "configuration",
    overrides: Sequence[str] = (),
    completion: Completion | None = None,
) -> Loaded:
    """Load a dictionary, or the text of a YAML file.

    In this order: the configuration, `overrides` (`a.b=value`), the template, the platform's
    storage, the defaults. Raises `ConfigurationError`, which holds all problems at once.
    """
    loader = _Loader(source, completion or Completion())
    return loader.load(config, overrides)


def stored(config: Mapping[str, Any]) -> Configuration:
    """The typed value of a configuration that this version or an older one stored.

    Keys that came later get their defaults. Raises `ConfigurationError` if the values are wrong,
    which only damage can cause.
    """
    from pydantic import ValidationError

    from determined.config.messages.explain import explain_all
    from determined.config.model.experiment import Configuration

    try:
        return Configuration.model_validate(dict(config))
    except ValidationError as errors:
        found = explain_all(errors.errors(include_url=False))
    # A script that the platform did not start may have hyperparameters that look like anything.
    if all(problem.path[:1] == ("hyperparameters",) for problem in found):
        return Configuration.model_validate({**config, "hyperparameters": {}})
    raise ConfigurationError("stored configuration", found)


class _Loader:
    """One load: the problems found so far, and where each value came from."""

    def __init__(self, source: str, completion: Completion) -> None:
        from determined.config.reading.origins import Origins

        self._source = source
        self._completion = completion
        self._origins: Origins = Origins(source)
        self._problems: list[Problem] = []

    def load(self, config: Mapping[str, Any] | str | bytes, overrides: Sequence[str]) -> Loaded:
        from determined.config.messages.notes import notes
        from determined.config.reading.merge import merged
        from determined.config.reading.old_forms import modern

        written = self._read(config, self._source)
        if written is None:
            raise self._error()
        written = self._overridden(written, overrides)
        if self._completion.template is not None:
            template = self._read(self._completion.template, "template")
            written = merged(written, template or {})
        new = modern(written)
        complete = self._completed(new.config)
        validated = self._validated(complete, new.moved)
        told = [*new.notes, *notes(written)]
        self._problems += [self._origins.located(note, {}) for note in told]
        if validated is None or any(problem.severity == "error" for problem in self._problems):
            raise self._error()
        return Loaded(validated, _effective(validated, complete), tuple(_ordered(self._problems)))

    def _error(self) -> ConfigurationError:
        return ConfigurationError(self._source, _ordered(self._problems))

    def _read(self, config: Mapping[str, Any] | str | bytes, source: str) -> dict[str, Any] | None:
        """Return the mapping in a source; if there is none, record a problem and return None."""
        from determined.config.reading import python_values, yaml_reader

        if isinstance(config, (str, bytes)):
            document = yaml_reader.read(config, source)
            self._problems += document.problems
            self._origins.add(source, document.marks)
            value, unreadable = document.value, not document.marks and bool(document.problems)
        else:
            value, problems = python_values.copied(config, source)
            self._problems += problems
            unreadable = bool(problems)
        if isinstance(value, dict) and value and not unreadable:
            return value
        if not unreadable:
            got = "an empty file" if value is None else shown(value)
            problem = Problem(f"expected a mapping of keys to values, got {got}")
            self._problems.append(self._origins.located(problem, {}))
        return None

    def _overridden(self, config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        from determined.config.reading.overrides import parse, with_value

        for text in overrides:
            parsed = parse(text)
            if isinstance(parsed, Problem):
                self._problems.append(parsed)
                continue
            path, value = parsed
            changed = with_value(config, path, value)
            source = f"--config {text}"
            if isinstance(changed, tuple):
                words = f"`{dotted(changed)}` is not a mapping, so nothing in it can be set"
                self._problems.append(Problem(words, path=path, source=source))
                continue
            config = changed
            self._origins.override(path, source)
        return config

    def _completed(self, config: dict[str, Any]) -> dict[str, Any]:
        """Fill in values from the platform and the time."""
        from determined.config.reading.merge import merged

        platform: dict[str, Any] = {
            "name": self._completion.name,
            "reproducibility": {"experiment_seed": self._completion.created},
        }
        if self._completion.checkpoint_storage is not None:
            platform["checkpoint_storage"] = dict(self._completion.checkpoint_storage)
        complete: dict[str, Any] = merged(config, platform)
        if complete.get("log_policies") is None or isinstance(complete["log_policies"], list):
            complete["log_policies"] = _with_default_policies(complete.get("log_policies") or [])
        if self._completion.count_slots is not None and _leaves_concurrency_to_a_model(complete):
            slots = self._completion.count_slots()
            complete["searcher"] = _with_concurrency(complete, slots)
        return {k: v for k, v in complete.items() if v != "" or k not in ("workspace", "project")}

    def _validated(
        self, config: dict[str, Any], moved: Mapping[Path, Path]
    ) -> Configuration | None:
        from pydantic import ValidationError

        from determined.config._checks import check
        from determined.config.messages.explain import explain_all
        from determined.config.model.experiment import Configuration

        found = list(check(config, managed=self._completion.managed))
        validated = None
        try:
            validated = Configuration.model_validate(config)
        except ValidationError as errors:
            found += explain_all(errors.errors(include_url=False))
        self._problems += _distinct(self._origins.located(problem, moved) for problem in found)
        return validated


def _leaves_concurrency_to_a_model(config: dict[str, Any]) -> bool:
    searcher = config.get("searcher")
    if not isinstance(searcher, dict) or searcher.get("max_concurrent_trials") is not None:
        return False
    return searcher.get("sampler") not in (None, "random")


def _with_concurrency(config: dict[str, Any], slots: int) -> dict[str, Any]:
    """A model learns from results: trials that only wait for a slot would start without any."""
    resources = config.get("resources")
    each = resources.get("slots_per_trial") if isinstance(resources, dict) else None
    at_once = slots // each if isinstance(each, int) and each > 0 else slots
    return {**config["searcher"], "max_concurrent_trials": max(at_once, 1)}


def _with_default_policies(own: list[Any]) -> list[Any]:
    """Complete policies from the default ones of the same name, and add the other defaults."""
    defaults = {policy["name"]: policy for policy in _DEFAULT_POLICIES}
    named = [str(p.get("name")) if isinstance(p, dict) else "" for p in own]
    completed = [
        {**defaults[name], **policy} if name in defaults else policy
        for name, policy in zip(named, own, strict=True)
    ]
    return [*completed, *(policy for name, policy in defaults.items() if name not in named)]


def _effective(configuration: Configuration, written: dict[str, Any]) -> dict[str, Any]:
    effective = configuration.as_dict()
    effective["hyperparameters"] = written.get("hyperparameters") or {}
    return effective


def _distinct(problems: Iterable[Problem]) -> list[Problem]:
    return list({(problem.path, problem.message): problem for problem in problems}.values())


def _ordered(problems: Iterable[Problem]) -> list[Problem]:
    """Errors first, then notes, each in file order; those without a line come last."""

    def position(problem: Problem) -> tuple[bool, bool, int, int]:
        line, column = (problem.place.line, problem.place.column) if problem.place else (0, 0)
        return (problem.severity == "note", problem.place is None, line, column)

    return sorted(problems, key=position)


def _max_bytes() -> int:
    from determined.config.reading.yaml_reader import MAX_BYTES

    return MAX_BYTES
