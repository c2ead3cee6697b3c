"""Which nodes of a fleet are slow, and how sure that is. Pure: values in, values out."""
