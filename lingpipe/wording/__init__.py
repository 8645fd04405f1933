"""The wording of errors: what the sentences of all rooms share. It knows nothing of what failed.

    values.py       a value cut short, the nearest right name
    counts.py       '1 cell is', '2 cells are'
    bounds.py       which numbers are accepted, and what to use for others
    keras_words.py  where an argument, a method or an object of Keras is here
"""
