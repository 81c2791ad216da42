"""Frozen values that both daemons speak: identities, devices, messages, the compiled policy.

What lives here: plain frozen dataclasses and enums in whole watts and seconds.
What must never: I/O, clocks, pydantic, protobuf.
"""
