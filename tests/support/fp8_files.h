// Matrices in block-scaled fp8, and safetensors files with tensors of any type.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "megatrain/base/rng.h"
#include "megatrain/hub/safetensors.h"
#include "megatrain/io/json.h"
#include "megatrain/tensor/fp8.h"
#include "tests/support/fixtures.h"

namespace megatrain {

struct Fp8Matrix {
  int64_t rows, cols;
  std::vector<std::byte> codes;
  std::vector<float> scales;

  std::vector<float> values(DType dtype) const {
    std::vector<float> out(codes.size());
    decode_fp8(dtype, codes.data(), scales.data(), cols, 0, rows * cols, out.data());
    return out;
  }
};

// Scales of a matrix whose values are about `deviation`: different in each block, with all bits of a mantissa.
inline std::vector<float> some_fp8_scales(int64_t rows, int64_t cols, double deviation, uint64_t seed) {
  std::vector<float> scales;
  for (int64_t i = 0; i < fp8_scales(rows, cols); ++i) {
    const auto part = static_cast<double>(random_below(seed, 1, static_cast<uint64_t>(i), 1u << 20)) / (1u << 20);
    scales.push_back(static_cast<float>(deviation / 64 * (0.7 + part)));
  }
  return scales;
}

inline Fp8Matrix to_fp8(const std::vector<float>& values, int64_t rows, int64_t cols, std::vector<float> scales) {
  Fp8Matrix matrix{.rows = rows, .cols = cols, .codes = {}, .scales = std::move(scales)};
  for (int64_t i = 0; i < rows * cols; ++i) {
    const int64_t block = i / cols / kFp8Block * ceil_div(cols, kFp8Block) + i % cols / kFp8Block;
    matrix.codes.push_back(nearest_fp8(values[static_cast<size_t>(i)], matrix.scales[static_cast<size_t>(block)]));
  }
  return matrix;
}

struct RawTensor {
  std::string type;  // as the header has it
  std::vector<int64_t> shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

inline std::string bytes_of(const void* data, size_t bytes) { return {static_cast<const char*>(data), bytes}; }

inline void add_fp8(RawTensors& tensors, const std::string& name, const Fp8Matrix& matrix) {
  tensors[name] = {"F8_E4M3", {matrix.rows, matrix.cols}, bytes_of(matrix.codes.data(), matrix.codes.size())};
  tensors[name + "_scale_inv"] = {"F32",
                                  {ceil_div(matrix.rows, kFp8Block), ceil_div(matrix.cols, kFp8Block)},
                                  bytes_of(matrix.scales.data(), 4 * matrix.scales.size())};
}

inline RawTensors read_raw(const std::string& path) {
  RawTensors tensors;
  const SafetensorsFile file(path);
  for (const StoredTensor& tensor : file.tensors())
    tensors[tensor.name] = {stored_type_name(tensor.dtype), tensor.shape,
                            bytes_of(tensor.data, static_cast<size_t>(tensor.bytes))};
  return tensors;
}

inline void write_raw(const std::string& path, const RawTensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.type},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  write_bytes(path, safetensors_bytes(header.dump(), data));
}

}  // namespace megatrain
