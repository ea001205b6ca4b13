"""A memory for LangChain agents that use tools."""
