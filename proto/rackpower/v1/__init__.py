"""Version 1 of the wire contract: stubs made by `make proto`, never edited; only `wire` and the services import it."""
