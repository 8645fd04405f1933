"""Export: a trained network as files that other programs read, without lingpipe.

    export(program, predictor, 'exported/digits', 'saved_model')

    saved_model   a directory for TensorFlow and TensorFlow Serving: one signature, any batch size
    keras         the weights in the Keras model that came in, as a .keras file
    npz           the weights as NumPy arrays by their paths, and a JSON file that describes them
    safetensors   likewise as one safetensors file
    hugging_face  a directory for transformers: config.json, weights, the tokenizer
    onnx          the network for ONNX runtimes

All of them hold the weights that evaluation uses: the moving averages where the learner keeps them.

    served_network.py   the layers as one function of any number of examples
    formats.py          writes each format
    hugging_face_folder.py   what a folder of Hugging Face holds
    description.py      what is exported, as JSON
    onnx_check.py       whether an ONNX model computes what the network computes
    replacement.py      nothing that was there is lost
"""
from lingpipe.export.formats import FORMATS, check_dtype, check_path, export

__all__ = ['FORMATS', 'check_dtype', 'check_path', 'export']
