"""The planner: target caps out of OR-Tools, in a thread, with a deadline.

Never here: a grant; a plan is an argument of `decide`. OR-Tools is imported nowhere else.
"""
