"""What a domain needs: models, inputs, metrics. Imports lingpipe."""
