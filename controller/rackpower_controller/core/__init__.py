"""The decision: pure functions of state, plan, policy and time.

What lives here: the ledger, the transition, shed, the decision and the values they speak.
What must never: I/O, clocks, randomness, asyncio, gRPC, Redis, OR-Tools, logging.
"""
