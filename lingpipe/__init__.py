"""lingpipe: giant neural networks by pipeline parallelism, on TensorFlow."""
