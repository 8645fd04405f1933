"""Planning: which layers are in which cell, and what each device runs when.

Nothing here makes a variable or runs an op. All that it gives is complete when it is returned.
"""
