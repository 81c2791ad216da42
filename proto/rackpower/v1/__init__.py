"""Version 1 of the wire contract: stubs made by `make proto`, never edited, imported by `wire` and the services only."""
