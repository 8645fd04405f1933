"""Experiments: registered classes, one file for each data set.

--model=image.digits.AmoebaNet is the class AmoebaNet in params/image/digits.py.
"""
