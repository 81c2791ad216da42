"""The link to a controller: the seam, and gRPC behind it.

Never here: what a message means; the agent decides that.
"""
