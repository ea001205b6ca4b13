"""The error tree: what can go wrong, and what the user should do about it.

```
HermesMemoryError
├── ConfigurationError (ValueError)
│   └── RuleError                    a rule or text file is malformed
├── MissingDependencyError (ImportError)
├── EmbeddingError                   the embedding model failed, or gave no usable vectors
└── StoreError
    ├── StoreClosedError             used after `close()`
    ├── StoreDamagedError            the ledger cannot be read
    ├── StoreLockedError             another process holds what is needed
    ├── SchemaVersionError           the store was written by a newer version
    ├── EmbeddingMismatchError       another embedding model than the store's
    └── IndexDamagedError            the vector index cannot be used; it can be rebuilt from the ledger
```
"""


class HermesMemoryError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigurationError(HermesMemoryError, ValueError):
    """A setting or an argument has no usable value."""


class RuleError(ConfigurationError):
    """A rule or text file is malformed; the message names file and rule."""


class MissingDependencyError(HermesMemoryError, ImportError):
    """An optional package is not installed; the message names the extra."""

    def __init__(self, package: str, extra: str, purpose: str, *, or_extra: str = "") -> None:
        """Name the package, the extra that brings it and what it is for.

        Args:
            package: What is missing.
            extra: The extra of this distribution that brings it.
            purpose: What needs it.
            or_extra: Another extra that would serve as well.
        """
        instead = f' or: pip install "langchain-hermes-memory[{or_extra}]"' if or_extra else ""
        super().__init__(
            f"{purpose} needs the package `{package}`, which is not installed. "
            f'Install it with: pip install "langchain-hermes-memory[{extra}]"{instead}'
        )
        self.package = package
        self.extra = extra


class EmbeddingError(HermesMemoryError):
    """The embedding model failed, or gave no usable vectors."""


class StoreError(HermesMemoryError):
    """Something is wrong with the ledger or the index."""


class StoreClosedError(StoreError):
    """The memory was used after `close()`."""


class StoreDamagedError(StoreError):
    """The ledger file cannot be read; nothing was changed."""


class StoreLockedError(StoreError):
    """Another process holds the ledger; nothing was changed."""


class SchemaVersionError(StoreError):
    """The store was written by a newer version of this package."""


class EmbeddingMismatchError(StoreError):
    """The store was indexed with another embedding model than the one given."""


class IndexDamagedError(StoreError):
    """The vector index cannot be used; nothing is lost, since it can be rebuilt from the ledger."""
