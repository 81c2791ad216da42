"""A small deterministic world around the pure cores: virtual time, a lossy link, faults, true hardware.

What lives here: the scheduler, the link, the store, hardware that knows what it could draw, and shells as thin as
possible around `LeaseKeeper` and `decide`. One seed replays a run. What must never: real time, real I/O, threads.
"""
