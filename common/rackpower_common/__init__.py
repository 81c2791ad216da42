"""What both daemons and rackctl speak: values, units, policy, wire, errors and the small things every process needs.

Never here: a decision about watts, a vendor's library, a store, or an import of another package of ours.
"""
