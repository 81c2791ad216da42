"""The lease keeper: what cap each GPU of this node may have now, as a pure state machine.

What lives here: frozen state, events in, actions out; grants, renewals, lease ends, term and sequence fencing,
read-back, overrides, restarts. Every time is passed in.
What must never: I/O, clocks, threads, asyncio, logging. The shell and the simulator carry the actions out.
"""
