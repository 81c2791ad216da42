"""The operator's command `rackctl`: one file a noun.

Never here: an import of agent or controller; it speaks the operator service and reads policy files.
"""
