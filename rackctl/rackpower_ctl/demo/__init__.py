"""`rackctl demo`: a whole simulated rack on this machine, with the real daemons between.

What lives here: what is written into the demo's folder, which processes run and how they end, what is measured on
the simulated hardware, what is shown. What must never: imports of agent or controller (they are processes here), and
any number in the report that comes from a report of theirs where the hardware itself can tell.
"""
