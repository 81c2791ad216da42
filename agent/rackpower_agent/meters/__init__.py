"""Node meters: what a whole node draws, one small file per source.

Never here: GPU readings; those come from devices.
"""
