"""`rackpower-agent doctor`: what this node's agent sees and may do, each trouble with what to do about it.

It looks and changes nothing; only `--write-test` lowers a cap by a few watts for a moment and puts it back.
"""
