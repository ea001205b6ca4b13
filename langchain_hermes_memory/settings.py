"""Every tunable of the memory in one model: its range, its meaning, and where it may be set."""

from __future__ import annotations

import difflib
import json
import logging
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args, get_origin

from pydantic import Field, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from langchain_hermes_memory.errors import ConfigurationError

logger = logging.getLogger(__name__)

ENV_PREFIX = "HERMES_MEMORY_"
_TABLE = "hermes_memory"


class SettingRow(NamedTuple):
    """One setting as it is documented."""

    name: str
    default: str
    """As it would be written in TOML; `none` where there is no value."""
    allowed: str
    meaning: str


class Settings(BaseSettings):
    """How a memory behaves.

    Values come, first wins, from: arguments, environment variables (`HERMES_MEMORY_` plus the upper-case
    name, e.g. `HERMES_MEMORY_K=8`), a TOML file (`Settings.load("hermes.toml")`), the defaults.

    Raises:
        ConfigurationError: A value is out of its range, or a name is unknown.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=ENV_PREFIX,
        env_ignore_empty=True,
        env_parse_none_str="none",
        use_attribute_docstrings=True,
    )

    # --- encode
    admit_importance: int = Field(35, ge=0, le=100)
    """Importance from which a record enters long-term memory; below it stays in working memory."""
    critical_tools: Annotated[tuple[str, ...], NoDecode] = ()
    """Tools whose every run matters (backups, payments): names, case-insensitive, `*` allowed."""
    frequency_window_days: int = Field(7, ge=1, le=365)
    """Span in which repetitions of a failure are counted: an accident seen again in it is none."""
    recurring_after: int = Field(3, ge=2, le=100)
    """Failures of the same action within the window from which it counts as recurring."""
    redact: bool = True
    """Whether secrets are cut out before anything is written."""
    max_intent_chars: int = Field(200, ge=40, le=2_000)
    """Length to which the user's request is shortened."""
    max_command_chars: int = Field(2_000, ge=100, le=100_000)
    """Length to which a tool's input is shortened."""
    max_output_chars: int = Field(4_000, ge=100, le=1_000_000)
    """Length to which a tool's output is shortened (head and tail are kept)."""
    max_description_chars: int = Field(400, ge=100, le=4_000)
    """Length of the text that is embedded."""
    record_load: bool = False
    """Whether the system load is recorded with each run."""
    rules_file: Path | None = None
    """A TOML file with outcome rules of your own, tried before the packaged ones."""

    # --- keep
    durability: Literal["fast", "full"] = "fast"
    """`fast` survives a killed process; `full` also a power cut, at the price of a disk sync per record."""
    background: bool = True
    """Whether embedding and indexing run behind; False makes each capture index before it returns."""
    index_batch: int = Field(64, ge=1, le=5_000)
    """Memories that are embedded and indexed at once."""
    max_open_runs: int = Field(1_000, ge=10, le=1_000_000)
    """Started tool runs that are remembered while their end is awaited; the oldest is dropped."""
    working_records: int = Field(50, ge=1, le=1_000)
    """Newest records of a session that its working memory reaches back to."""
    working_turns: int = Field(6, ge=0, le=100)
    """Last turns of the session that the working memory shows."""

    # --- recall
    k: int = Field(5, ge=1, le=100)
    """Memories shown."""
    fetch_k: int = Field(50, ge=1, le=1_000)
    """Candidates that each search (meaning, words) brings."""
    words_weight: float = Field(2.0, ge=0, le=10)
    """The most that matching words add, in units of a typical match by meaning."""
    words_saturation: float = Field(8.0, gt=0, le=100)
    """BM25 score at which the words carry half of their weight."""
    action_bonus: float = Field(1.0, ge=0, le=10)
    """Added where a memory is of the very action that is planned."""
    target_bonus: float = Field(0.6, ge=0, le=10)
    """Added where a memory is about a target that is asked for; half of it for one inside or around it."""
    family_bonus: float = Field(0.2, ge=0, le=10)
    """Added where a memory is of the same kind of action on another target."""
    tool_bonus: float = Field(0.6, ge=0, le=10)
    """Added where a memory is of the tool that is planned; less, the more memories are of that tool."""
    min_relevance: float = Field(0.25, ge=0, le=10)
    """Relevance under which nothing is shown, in units of a typical match by meaning."""
    min_words_relevance: float = Field(0.55, ge=0, le=10)
    """The same for a memory that shares nothing but words with the request: one common word is no match."""
    min_share: float = Field(0.2, ge=0, le=1)
    """Share of the best memory's relevance under which another is left out."""
    repetition_weight: float = Field(0.8, ge=0.1, le=1)
    """Factor for each memory of the same action, or of the same wish and outcome, that is chosen already."""
    success_weight: float = Field(1.1, ge=0.5, le=2)
    """Factor for a success; 1.5 and more buries lessons."""
    efficient_weight: float = Field(1.05, ge=0.5, le=2)
    """Further factor for a success tagged `efficient`."""
    plain_request_weight: float = Field(0.7, ge=0.1, le=1)
    """Factor for a turn that states nothing: what came of the request is told by the runs that it caused."""
    transient_weight: float = Field(0.8, ge=0.1, le=1)
    """Factor for a failure that may have been an accident."""
    resolved_weight: float = Field(0.6, ge=0.1, le=1)
    """Factor for a failure whose action has succeeded since."""
    recurring_weight: float = Field(1.15, ge=1, le=2)
    """Factor for a failure that keeps coming back."""
    other_target_weight: float = Field(0.6, ge=0.1, le=1)
    """Factor for a memory about another target than the one that the request names."""
    importance_weight: float = Field(0.2, ge=0, le=1)
    """How far importance moves a memory: the factor runs from 1-w to 1+w over 0-100."""
    half_life_days: float = Field(60.0, gt=0, le=10_000)
    """Age at which a memory has lost half of what age can take."""
    age_weight: float = Field(0.25, ge=0, le=1)
    """The most that age can take from a memory."""
    tag_weight: float = Field(1.1, ge=1, le=2)
    """Factor for a memory that carries a tag which was asked for."""
    max_age_days: int = Field(90, ge=1, le=100_000)
    """Age from which memories under `aged_importance` are left out."""
    aged_importance: int = Field(40, ge=0, le=100)
    """Importance that an old memory needs to be shown."""

    # --- render
    language: Literal["auto", "en", "zh"] = "auto"
    """Language of the block; `auto` follows the request."""
    tone: Literal["neutral", "cautious"] = "neutral"
    """`cautious` asks the model to confirm before risky steps."""
    budget_tokens: int = Field(1_200, ge=50, le=100_000)
    """Tokens that the block may have, never exceeded."""
    memory_chars: int = Field(320, ge=80, le=10_000)
    """Length to which one memory's detail is shortened in the block."""

    if not TYPE_CHECKING:  # type checkers keep the constructor that pydantic describes

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigurationError(_message(error.errors(), "argument", values)) from error
            except SettingsError as error:
                raise ConfigurationError(f"A setting in the environment cannot be read: {error}") from error

    @field_validator("critical_tools", mode="before")
    @classmethod
    def _split_list(cls, value: object) -> object:
        """Environment variables give a list as JSON or with commas."""
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return json.loads(value)
        return tuple(name.strip() for name in value.split(",") if name.strip())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  (pydantic-settings passes them by name)
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then environment variables; `load` puts a file's values below both."""
        return init_settings, env_settings

    @classmethod
    def load(cls, path: str | Path | None = None, **values: Any) -> Settings:
        """Read settings from a TOML file, the environment and arguments.

        Args:
            path: A TOML file; its top-level keys, or those of its table `[hermes_memory]`, are settings.
            **values: Settings that win over everything else.

        Raises:
            ConfigurationError: The file cannot be read, a value is out of range, or a name is unknown.
        """
        _warn_of_unknown_variables()
        if path is None:
            return cls(**values)
        from_file = {
            name: value
            for name, value in _read(Path(path)).items()
            if name not in values and not _variable_set(name)
        }
        try:
            return cls(**from_file, **values)
        except ConfigurationError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            details = error.__cause__.errors()
            raise ConfigurationError(
                _message(details, f"file {path}", from_file, values)
            ) from error.__cause__

    @classmethod
    def describe(cls) -> list[SettingRow]:
        """Return name, default, allowed values and meaning of every setting, in order."""
        return [
            SettingRow(
                name, _as_toml(field.default), _allowed(field), " ".join((field.description or "").split())
            )
            for name, field in cls.model_fields.items()
        ]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"Cannot read the settings file {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The settings file {path} is not valid TOML: {error}") from error
    own = tables.get(_TABLE, tables)
    if not isinstance(own, dict):
        raise ConfigurationError(f"{path}: `{_TABLE}` must be a table, written [{_TABLE}].")
    return own


def _variables() -> Iterator[tuple[str, str]]:
    """Yield the names of environment variables with our prefix and of the settings that they name."""
    for variable in os.environ:
        if variable.upper().startswith(ENV_PREFIX) and os.environ[variable]:
            yield variable, variable[len(ENV_PREFIX) :].lower()


def _variable_set(name: str) -> str:
    """Return the environment variable that sets a setting; empty where none does."""
    return next((variable for variable, setting in _variables() if setting == name), "")


def _warn_of_unknown_variables() -> None:
    """Only warn: a variable with our prefix may belong to somebody else."""
    for variable, name in _variables():
        if name not in Settings.model_fields:
            logger.warning("The environment variable %s sets nothing.%s", variable, _nearest(name))


def _message(details: list[ErrorDetails], source: str, *given: Mapping[str, Any]) -> str:
    """Say which settings are wrong, what was given, where, and what is allowed.

    Args:
        details: What pydantic found.
        source: Where the first of `given` comes from; a second one are arguments.
        given: Values by name.
    """
    lines = []
    for detail in details:
        name = str(detail["loc"][0]) if detail["loc"] else ""
        origin = source if name in given[0] else "argument"
        if not any(name in values for values in given):
            origin = f"environment variable {_variable_set(name) or ENV_PREFIX + name.upper()}"
        field = Settings.model_fields.get(name)
        if field is None:
            lines.append(f"Unknown setting `{name}` ({origin}).{_nearest(name)}")
        else:
            lines.append(
                f"Setting `{name}` cannot be {detail['input']!r} ({origin}): "
                f"allowed is {_allowed(field)}; the default is {_as_toml(field.default)}."
            )
    return "\n".join(lines)


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, Settings.model_fields, n=1)
    return f" Did you mean `{close[0]}`?" if close else " See `Settings.describe()` for all names."


def _as_toml(value: object) -> str:
    if value is None:
        return "none"
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _allowed(field: FieldInfo) -> str:
    """Say in words which values a setting takes."""
    options = get_args(field.annotation)
    if get_origin(field.annotation) is Literal:
        return " or ".join(f'"{option}"' for option in options)
    if field.annotation is bool:
        return "true or false"
    if get_origin(field.annotation) is tuple:
        return "a list of strings"
    suffix = ", or none" if type(None) in options else ""
    if Path in options:
        return f"a path{suffix}"
    bounds = {
        word: bound
        for limit in field.metadata
        for word in ("ge", "gt", "le", "lt")
        if (bound := getattr(limit, word, None)) is not None
    }
    low = f"above {bounds['gt']:,}, up" if "gt" in bounds else f"{bounds['ge']:,}"
    kind = "a whole number" if field.annotation is int else "a number"
    return f"{kind}, {low} to {bounds['le']:,}{suffix}"
