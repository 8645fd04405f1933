"""Image classification: AmoebaNet and ResNet, inputs and a recipe."""
