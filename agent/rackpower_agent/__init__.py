"""The daemon of a GPU node: it measures its GPUs, holds their caps under leases, and alone it only ever lowers.

Never here: an import of the controller or of a solver, or a raise that no controller granted.
"""
