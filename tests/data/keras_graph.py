"""Keras models in the format of TensorFlow.js: their layers run one by one, as model.json lists them; a tiny one."""

import json

import numpy
import torch
from torch.nn import functional

MEAN = (103.939, 116.779, 123.68)  # of blue, green and red, as keras.applications subtracts it


def read(description, shards):
    """The layers, and their arrays by name."""
    model = json.loads(description)
    arrays = {}
    for group in model["weightsManifest"]:
        content = b"".join(shards[path] for path in group["paths"])
        start = 0
        for entry in group["weights"]:
            count = int(numpy.prod(entry["shape"]))
            array = numpy.frombuffer(content, numpy.float32, count, start).reshape(entry["shape"])
            arrays[entry["name"]] = torch.from_numpy(array.copy())
            start += array.nbytes
        assert start == len(content)
    return model["modelTopology"]["model_config"]["config"]["layers"], arrays


def run(layers, arrays, images):
    """Probabilities (batch, classes) of images of bytes (batch, 3, height, width), red first."""
    outputs = {}
    for layer in layers:
        name, config = layer["name"], layer["config"]
        inputs = [outputs[node[0]] for nodes in layer["inbound_nodes"] for node in nodes]
        kind = layer["class_name"]
        if kind == "InputLayer":
            outputs[name] = images.flip(1).float() - torch.tensor(MEAN).view(3, 1, 1)
        elif kind == "ZeroPadding2D":
            (top, bottom), (left, right) = config["padding"]
            outputs[name] = functional.pad(inputs[0], (left, right, top, bottom))
        elif kind == "Conv2D":
            kernel = arrays[f"{name}/kernel"].permute(3, 2, 0, 1)
            padding = kernel.shape[-1] // 2 if config["padding"] == "same" else 0
            outputs[name] = functional.conv2d(inputs[0], kernel, arrays[f"{name}/bias"], config["strides"], padding)
        elif kind == "BatchNormalization":
            gamma, beta, mean, variance = (
                arrays[f"{name}/{part}"].view(-1, 1, 1) for part in ("gamma", "beta", "moving_mean", "moving_variance")
            )
            outputs[name] = gamma * (inputs[0] - mean) / (variance + config["epsilon"]).sqrt() + beta
        elif kind == "Activation":
            assert config["activation"] == "relu"
            outputs[name] = inputs[0].clamp(min=0)
        elif kind == "MaxPooling2D":
            outputs[name] = functional.max_pool2d(inputs[0], config["pool_size"], config["strides"])
        elif kind == "Add":
            outputs[name] = inputs[0] + inputs[1]
        elif kind == "GlobalAveragePooling2D":
            outputs[name] = inputs[0].mean((2, 3))
        else:
            assert (kind, config["activation"]) == ("Dense", "softmax")
            outputs[name] = (inputs[0] @ arrays[f"{name}/kernel"] + arrays[f"{name}/bias"]).softmax(-1)
    return outputs[name]


class Tiny:
    """A ResNet with stages of 2 blocks and 1, width 3 and 5 classes: its layers, and random arrays for them."""

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)
        self.layers, self.arrays = [], {}
        self.add("InputLayer", "input_1")
        x = self.add("ZeroPadding2D", "conv1_pad", "input_1", padding=[[3, 3], [3, 3]])
        x = self.relu(self.convolution("conv1", "bn_conv1", x, (7, 7, 3, 3), 2))
        x = self.add("ZeroPadding2D", "pool1_pad", x, padding=[[1, 1], [1, 1]])
        x = self.add("MaxPooling2D", "pool", x, pool_size=[3, 3], strides=[2, 2])
        x = self.block("2a", x, 3, 3, 1, shortcut=True)
        x = self.block("2b", x, 12, 3, 1, shortcut=False)
        x = self.block("3a", x, 12, 6, 2, shortcut=True)
        x = self.add("GlobalAveragePooling2D", "avg_pool", x)
        self.add("Dense", "fc1000", x, activation="softmax")
        self.arrays |= {"fc1000/kernel": self.normal(24, 5) / 50, "fc1000/bias": self.normal(5)}

    def add(self, kind, name, *inputs, **config):
        nodes = [[[node, 0, 0, {}] for node in inputs]] if inputs else []
        self.layers.append({"class_name": kind, "name": name, "config": config, "inbound_nodes": nodes})
        return name

    def convolution(self, name, norm, x, shape, stride):
        padding = "same" if shape[0] == 3 else "valid"
        self.add("Conv2D", name, x, strides=[stride, stride], padding=padding)
        outputs = shape[-1]
        fan_in = numpy.prod(shape[:-1]) * (3_000 if name == "conv1" else 1)  # pixels are large
        self.arrays |= {f"{name}/kernel": self.normal(*shape) / fan_in**0.5, f"{name}/bias": self.normal(outputs)}
        self.arrays |= {f"{norm}/{part}": self.normal(outputs) for part in ("gamma", "beta", "moving_mean")}
        self.arrays[f"{norm}/moving_variance"] = self.random.uniform(0.01, 1, outputs)
        return self.add("BatchNormalization", norm, name, epsilon=float(self.random.uniform(0.001, 0.1)))

    def relu(self, x):
        return self.add("Activation", f"activation_{len(self.layers)}", x, activation="relu")

    def block(self, name, x, inputs, depth, stride, shortcut):
        branch = f"{name}_branch"
        y = self.relu(self.convolution(f"res{branch}2a", f"bn{branch}2a", x, (1, 1, inputs, depth), stride))
        y = self.relu(self.convolution(f"res{branch}2b", f"bn{branch}2b", y, (3, 3, depth, depth), 1))
        y = self.convolution(f"res{branch}2c", f"bn{branch}2c", y, (1, 1, depth, 4 * depth), 1)
        if shortcut:
            x = self.convolution(f"res{branch}1", f"bn{branch}1", x, (1, 1, inputs, 4 * depth), stride)
        return self.relu(self.add("Add", f"add_{name}", y, x))

    def normal(self, *shape):
        return self.random.normal(size=shape)

    def files(self):
        """model.json and two shards, which are cut in the middle of an array."""
        names = sorted(self.arrays)
        weights = [{"name": name, "shape": list(self.arrays[name].shape), "dtype": "float32"} for name in names]
        content = b"".join(self.arrays[name].astype("<f4").tobytes() for name in names)
        cut = len(content) // 2 // 4 * 4 + 2
        manifest = [{"paths": ["one.bin", "two.bin"], "weights": weights}]
        topology = {"model_config": {"config": {"layers": self.layers}}}
        description = json.dumps({"modelTopology": topology, "weightsManifest": manifest}).encode()
        return {"model.json": description, "one.bin": content[:cut], "two.bin": content[cut:]}
