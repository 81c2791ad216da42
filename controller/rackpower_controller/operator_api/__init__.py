"""What operators ask and say: status, policy and events over gRPC, and who may.

What lives here: the `Desk` that the controller answers through, the status drawn from the books, the servicer.
What must never: decisions, and any change of the state but through the desk.
"""
