"""Worked examples that run."""
