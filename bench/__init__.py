"""Measures refold against the limit: the same work written as a bare loop without refold."""
