"""What stands after `rackctl`, one file a noun: flags in, a call, something printed, an exit code.

Never here: how things look (`render`) or how the controller is reached (`client`). Modules keep their imports light,
since every start of rackctl reads all of them; what a command needs, it imports when it runs.
"""
