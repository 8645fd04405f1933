"""Image classification: AmoebaNet, its inputs and its recipe."""
