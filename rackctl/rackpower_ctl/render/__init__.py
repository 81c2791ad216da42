"""From protos to what a person or a script reads: pure functions, no connection, no clock.

Never here: gRPC, the terminal (a rich console is handed in by the command), exit codes.
"""
