"""The limits: bare loops over the same log, written plainly. Nothing here imports refold."""
