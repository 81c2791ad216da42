"""Model to proto and back: the only place in `common` that knows the stubs, and the only one that converts units.

Never here: anything but conversion; caps exact, readings and exposures rounded up. `faults` turns errors into
gRPC's words and back.
"""
