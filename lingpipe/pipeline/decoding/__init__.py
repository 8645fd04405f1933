"""Decoding: sequences written by the network, one position at a time."""
