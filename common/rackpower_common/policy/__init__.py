"""Policy files: their models, the loader with file, line and column, and the compiled policy.

Never here: what a policy means for a running rack; that is the controller's core.
"""
