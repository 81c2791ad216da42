"""Devices: the seam to GPUs, the worker thread that each of them gets, and one file per vendor.

Never here: a decision about caps; and vendor units (milli- and microwatts) never leave the vendor's own file.
"""
