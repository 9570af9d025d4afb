"""Executors: what acts on the outside world for commands, through a ledger of intents."""
