#!/usr/bin/env python3
"""Writes a model with every weight as F32, the exact reference for device_check --exact.

usage: dequantise.py IN.gguf OUT.gguf      (needs numpy and gguf, both on PyPI)

Values come from the gguf package's own dequantiser; metadata is copied unchanged.
"""
import sys

import gguf
import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter

GENERAL = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")


def copy_metadata(reader, writer):
    for name, field in reader.fields.items():
        if name.startswith(GENERAL):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=sub)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    reader = GGUFReader(sys.argv[1])
    writer = GGUFWriter(sys.argv[2], reader.fields["general.architecture"].contents())
    copy_metadata(reader, writer)
    shapes = {}
    for tensor in reader.tensors:
        shapes[tensor.name] = [int(n) for n in reversed(tensor.shape)]
        writer.add_tensor_info(tensor.name, shapes[tensor.name], np.dtype(np.float32), 4 * int(tensor.n_elements))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.write_tensor_data(values.reshape(shapes[tensor.name]))
    writer.close()


if __name__ == "__main__":
    main()
