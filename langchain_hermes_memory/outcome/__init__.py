"""How a tool run ended and why, read off whatever the tool returned or raised."""

from langchain_hermes_memory.outcome.reader import OutcomeReader, Reader
from langchain_hermes_memory.outcome.values import text_of

__all__ = ["OutcomeReader", "Reader", "text_of"]
