"""Every tunable of the memory in one model: its range, its meaning, and where it may be set."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from langchain_hermes_memory.errors import ConfigurationError


class Settings(BaseSettings):
    """How a memory behaves.

    Values come, first wins, from: arguments, environment variables (`HERMES_MEMORY_` plus the upper-case
    name, e.g. `HERMES_MEMORY_K=8`), a TOML file (`Settings.load("hermes.toml")`), the defaults.

    Raises:
        ConfigurationError: From `Settings.load`, when a value is out of its range or a name is unknown.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix="HERMES_MEMORY_")

    # --- encode
    admit_importance: int = Field(35, ge=0, le=100)
    """Importance from which a record enters long-term memory; below it stays in working memory."""
    critical_tools: tuple[str, ...] = ()
    """Tools whose every run matters (backups, payments): names, case-insensitive, `*` allowed."""
    frequency_window_days: int = Field(7, ge=1, le=365)
    """Span in which repetitions of the same failure are counted: seen again within it, an accident is no accident."""
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
    words_weight: float = Field(0.4, ge=0, le=2)
    """Weight of matching words beside a meaning of at most 1."""
    words_saturation: float = Field(8.0, gt=0, le=100)
    """BM25 score at which the words carry half of their weight."""
    min_relevance: float | None = Field(None, ge=0, le=2)
    """Floor under which nothing is shown; None: calibrated for the embedding model."""
    success_weight: float = Field(1.1, ge=0.5, le=2)
    """Factor for a success (the article's 1.5 buries lessons)."""
    efficient_weight: float = Field(1.05, ge=0.5, le=2)
    """Further factor for a success tagged `efficient`."""
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

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then environment variables, then the TOML file named in the class's configuration."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @classmethod
    def load(cls, path: str | Path | None = None, **values: Any) -> Settings:
        """Read settings from a TOML file, the environment and arguments.

        Args:
            path: A TOML file; its top-level keys, or those of its table `[hermes_memory]`, are settings.
            **values: Settings that win over everything else.

        Raises:
            ConfigurationError: The file cannot be read, a value is out of range, or a name is unknown.
        """
        raise NotImplementedError
