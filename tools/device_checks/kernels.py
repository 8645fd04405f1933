"""Kernels: which do not give the same bits when they are repeated, or on another device.

With TensorFlow's op determinism, a kernel that cannot be deterministic refuses to run.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

import tensorflow as tf

from lingpipe.tools.device_checks.machine import Machine
from lingpipe.tools.device_checks.rows import Row

NUM_RUNS = 10
SEED = 1234
SETTING = 'TF_DETERMINISTIC_OPS=1'


def rows(machine: Machine) -> Iterator[Row]:
    """Runs each kernel several times on the first device, and once on each other one."""
    kernels = make_kernels(large=machine.is_gpu)
    same: list[str] = []
    differ_when_repeated: list[str] = []
    differ_between_devices: list[str] = []
    refuses: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name, run in kernels.items():
        try:
            results = [bits_of(run, machine.devices[0]) for _ in range(NUM_RUNS)]
            others = [bits_of(run, device) for device in machine.devices[1:]]
        except tf.errors.UnimplementedError as error:
            refuses[name] = first_line(error)
        except (tf.errors.OpError, ValueError) as error:
            failed[name] = first_line(error)
        else:
            if len(set(results)) > 1:
                differ_when_repeated.append(name)
            elif set(others) - {results[0]}:
                differ_between_devices.append(name)
            else:
                same.append(name)

    numbers = {'same': same, 'differ_when_repeated': differ_when_repeated,
               'differ_between_devices': differ_between_devices, 'refuse': refuses,
               'failed': failed}
    verdict = machine.promised(False)
    remedy = '' if machine.is_deterministic else f'; set {SETTING}'
    yield machine.row('ok', f'{len(same)} of {len(kernels)} kernels repeat their bits, {NUM_RUNS} '
                            'times and on every device', **numbers)
    if differ_when_repeated:
        yield machine.row(
            verdict, f'not deterministic: {", ".join(differ_when_repeated)}{remedy}')
    if differ_between_devices:
        yield machine.row(
            verdict, f'other bits on another device: {", ".join(differ_between_devices)}{remedy}, '
                     'or TF_CUDNN_USE_AUTOTUNE=0 for convolutions')
    for name, reason in refuses.items():
        yield machine.row('n/a', f'{name} refuses to run: {reason}')
    for name, reason in failed.items():
        yield machine.row('FAILED', f'{name}: {reason}')


def first_line(error: Exception) -> str:
    """Returns the first line of an error, of which TensorFlow writes many."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def bits_of(run: Callable[[], tf.Tensor], device: str) -> bytes:
    """Returns the bytes of a kernel's result on a device."""
    with tf.device(device):
        return bytes(run().numpy().tobytes())


def make_kernels(large: bool) -> dict[str, Callable[[], tf.Tensor]]:
    """Returns what is run, by name; inputs are the same in every run."""
    n = 4 if large else 1
    a, b = _normal(64 * n, 512 * n), _normal(512 * n, 64 * n)
    image, kernel = _normal(4 * n, 16, 16, 8 * n), _normal(3, 3, 8 * n, 8 * n)
    depthwise = _normal(3, 3, 8 * n, 1)
    table, ids = _normal(50, 16), _ids(4096 * n, 50)
    grads = _normal(4096 * n, 16)
    scale = tf.ones([8 * n])
    labels, logits = _ids(256, 100), _normal(256, 100)
    return {
        'MatMul': lambda: tf.matmul(a, b),
        'BatchMatMul': lambda: tf.matmul(image, image, transpose_a=True),
        'Conv2D': lambda: tf.nn.conv2d(image, kernel, 1, 'SAME'),
        'Conv2DBackpropInput, Filter': lambda: _gradient(
            lambda x, w: tf.nn.conv2d(x, w, 1, 'SAME'), image, kernel),
        'DepthwiseConv2dNativeBackprop': lambda: _gradient(
            lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], 'SAME'), image, depthwise),
        'MaxPoolGrad': lambda: _gradient(
            lambda x: tf.nn.max_pool2d(x, 3, 2, 'SAME'), image),
        'AvgPoolGrad': lambda: _gradient(
            lambda x: tf.nn.avg_pool2d(x, 3, 2, 'SAME'), image),
        'FusedBatchNormGradV3': lambda: _gradient(
            lambda x: tf.compat.v1.nn.fused_batch_norm(x, scale, scale)[0], image),
        'BiasAddGrad': lambda: _gradient(lambda x, c: tf.nn.bias_add(x, c), image, scale),
        'Sum': lambda: tf.reduce_sum(a),
        'Softmax': lambda: tf.nn.softmax(a),
        'SparseSoftmaxCrossEntropy': lambda: _gradient(
            lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x), logits),
        "Gather's gradient": lambda: _gradient(lambda x: tf.gather(x, ids), table),
        'UnsortedSegmentSum': lambda: tf.math.unsorted_segment_sum(grads, ids, 50),
        'SegmentSum': lambda: tf.math.segment_sum(grads, tf.sort(ids)),
        'ScatterNd': lambda: tf.scatter_nd(ids[:, None], grads, [50, 16]),
        'TensorScatterAdd': lambda: tf.tensor_scatter_nd_add(table, ids[:, None], grads),
        'Cumsum': lambda: tf.cumsum(a, 1),
        'Bincount': lambda: tf.math.bincount(ids, weights=grads[:, 0], minlength=50),
        'ResizeBilinearGrad': lambda: _gradient(
            lambda x: tf.compat.v1.image.resize_bilinear(x, [37, 37]), image),
    }


def _gradient(function: Callable[..., tf.Tensor], *inputs: tf.Tensor) -> tf.Tensor:
    """Returns all gradients of function(*inputs), flat, for an output gradient of many values."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        result = function(*inputs)
        total = result * tf.reshape(
            tf.cos(tf.range(tf.size(result), dtype=tf.float32)), tf.shape(result))
    gradients = tape.gradient(total, inputs)
    return tf.concat([tf.reshape(tf.convert_to_tensor(one), [-1]) for one in gradients], 0)


def _normal(*shape: int) -> tf.Tensor:
    return tf.random.stateless_normal(shape, [SEED, len(shape)])


def _ids(number: int, most: int) -> tf.Tensor:
    return tf.random.stateless_uniform([number], [SEED, 0], 0, most, tf.int32)
