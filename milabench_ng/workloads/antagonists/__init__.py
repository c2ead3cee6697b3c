"""Antagonists: neighbours that press on one shared resource each, at a rate of their own.

An antagonist's rate shows that it pressed, and how hard; ``busy`` sets the share of the time in which it does. The
method is that of iBench (Delimitrou and Kozyrakis, IISWC 2013) and Bubble-Up (Mars et al., MICRO 2011). `h2d` of the
modern suite presses on PCIe.
"""
