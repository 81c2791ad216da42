"""The daemon that decides, once a second, how many watts each GPU may draw.

Never here: an import of the agent, or a decision outside `core`.
"""
