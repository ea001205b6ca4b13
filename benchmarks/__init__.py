"""Benchmarks: each is a module to run, prints a table, and one JSON object as its last line."""
