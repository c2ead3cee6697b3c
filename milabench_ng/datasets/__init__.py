"""Data sets, one file each: twins generated once in the real set's on-disk format; real ones are used as they are."""
