"""Stress: work that takes all the power that a device gives, and whose results are verified.

A lap is a fixed chain of operations, each of which works on what the last one left. All laps begin with the same data,
so they must end with the same bits; an error in any of them goes on to the end, where a digest shows it.
"""
