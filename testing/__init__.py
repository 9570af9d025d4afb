"""For tests, ours and yours: the in-memory driver and fixtures for real servers."""
