"""The simulator: physics, devices, workloads, network and faults, and checkers that know the truth by themselves.

Never here: anything that a production daemon imports; agents reach it only through the entry point `sim`.
"""
