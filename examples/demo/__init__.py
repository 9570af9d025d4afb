"""The demo: a service desk's log replayed, a worker killed, and the result proved."""
