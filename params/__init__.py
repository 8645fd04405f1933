"""Experiments: registered classes, one file a data set. --model=image.digits.AmoebaNet is class AmoebaNet in params/image/digits.py."""
