// Runs one case of one op on any device: inputs are random, outputs start as NaN, and everything is returned as
// float64. Only Device, Stream and Ops are used, so the same cases run on the CPU and on CUDA.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "megatrain/base/bf16.h"
#include "megatrain/base/clock.h"
#include "megatrain/base/rng.h"
#include "megatrain/ops/ops.h"
#include "tests/ops/cases.h"

namespace megatrain::testing {

using Vector = std::vector<double>;
using Values = std::map<std::string, Vector>;  // row-major, without gaps

// The inputs and outputs of a case. `in` holds values as stored, so rounded to the case's dtype. `before_X` in `in` is
// the previous content of output X if the op adds to it.
struct OpRun {
  Values in;
  Values out;
  std::set<std::string> exact;            // names in `out` of integers and copies, which are equal on every device
  std::map<std::string, double> seconds;  // per call, by direction
};

inline double stored(double value, DType dtype) {
  const float single = static_cast<float>(value);
  return dtype == DType::bf16 ? to_float(to_bf16(single)) : single;
}

struct Tensor {
  Buffer buffer;
  View view;
};

class Harness {
 public:
  // With repeat > 1, calls are timed; the values of ops that work in place or accumulate are then meaningless.
  Harness(Device& device, Ops& ops, Stream& stream, int repeat = 1)
      : device(device), ops(ops), stream(stream), repeat_(repeat) {}

  Device& device;
  Ops& ops;
  Stream& stream;

  void start(uint64_t seed) {
    seed_ = seed;
    purpose_ = 0;
  }

  Vector random(int64_t count, DType dtype, double amplitude = 1.0) {
    Vector values(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; i += 2) {
      const std::array<float, 2> pair = random_normal_pair(seed_, purpose_, static_cast<uint64_t>(i / 2));
      for (int64_t lane = 0; lane < 2 && i + lane < count; ++lane) {
        values[static_cast<size_t>(i + lane)] =
            stored(amplitude * static_cast<double>(pair[static_cast<size_t>(lane)]), dtype);
      }
    }
    ++purpose_;
    return values;
  }
  uint64_t random_index(uint64_t index, uint64_t bound) { return random_below(seed_, 0xffff, index, bound); }

  // Every byte is 0xFF, a NaN in each floating-point type.
  Tensor poisoned(DType dtype, int64_t rows, int64_t cols, int64_t gap = 0) {
    Tensor tensor;
    const std::vector<unsigned char> poison(static_cast<size_t>(rows * (cols + gap) * dtype_bytes(dtype)), 0xFF);
    tensor.buffer = device.allocate(poison.size(), "test");
    tensor.view = {tensor.buffer.data(), dtype, rows, cols, cols + gap};
    stream.copy(tensor.buffer.data(), poison.data(), poison.size());
    stream.synchronize();
    return tensor;
  }
  void write(const Tensor& tensor, const View& part, const Vector& values) {
    std::vector<std::byte> bytes = download(tensor);
    std::byte* base = bytes.data() + offset(tensor, part);
    for (int64_t row = 0; row < part.rows; ++row) {
      for (int64_t col = 0; col < part.cols; ++col) {
        const double value = values[static_cast<size_t>(row * part.cols + col)];
        const int64_t at = row * part.row_stride + col;
        if (part.dtype == DType::bf16) {
          const bf16 x = to_bf16(static_cast<float>(value));
          std::memcpy(base + at * 2, &x, 2);
        } else {
          const float x = static_cast<float>(value);
          std::memcpy(base + at * 4, &x, 4);
        }
      }
    }
    stream.copy(tensor.buffer.data(), bytes.data(), bytes.size());
    stream.synchronize();
  }
  Tensor filled(DType dtype, int64_t rows, int64_t cols, const Vector& values, int64_t gap = 0) {
    Tensor tensor = poisoned(dtype, rows, cols, gap);
    write(tensor, tensor.view, values);
    return tensor;
  }
  Vector read(const Tensor& tensor, const View& part) {
    const std::vector<std::byte> bytes = download(tensor);
    const std::byte* base = bytes.data() + offset(tensor, part);
    Vector values(static_cast<size_t>(part.elements()));
    for (int64_t row = 0; row < part.rows; ++row) {
      for (int64_t col = 0; col < part.cols; ++col) {
        const int64_t at = row * part.row_stride + col;
        double& value = values[static_cast<size_t>(row * part.cols + col)];
        if (part.dtype == DType::bf16) {
          bf16 x;
          std::memcpy(&x, base + at * 2, 2);
          value = to_float(x);
        } else {
          float x;
          std::memcpy(&x, base + at * 4, 4);
          value = x;
        }
      }
    }
    return values;
  }
  // Reads the whole tensor, after checking that nothing was written into its gaps.
  Vector read(const Tensor& tensor) {
    const std::vector<std::byte> bytes = download(tensor);
    const int64_t size = dtype_bytes(tensor.view.dtype);
    for (int64_t row = 0; row < tensor.view.rows; ++row) {
      for (int64_t at = tensor.view.cols * size; at < tensor.view.row_stride * size; ++at) {
        if (bytes[static_cast<size_t>(row * tensor.view.row_stride * size + at)] != std::byte{0xFF}) {
          throw std::runtime_error("an op wrote into the gap after row " + std::to_string(row));
        }
      }
    }
    return read(tensor, tensor.view);
  }

  // Checks that no op wrote rows [begin, ...) of a poisoned tensor.
  void expect_untouched(const Tensor& tensor, int64_t begin) {
    const std::vector<std::byte> bytes = download(tensor);
    const auto first = bytes.begin() + begin * tensor.view.row_stride * dtype_bytes(tensor.view.dtype);
    if (!std::all_of(first, bytes.end(), [](std::byte byte) { return byte == std::byte{0xFF}; }))
      throw std::runtime_error("an op wrote behind the " + std::to_string(begin) + " rows there are");
  }

  template <class T>
  Buffer upload(const std::vector<T>& values) {
    Buffer buffer = device.allocate(values.size() * sizeof(T), "test");
    stream.copy(buffer.data(), values.data(), values.size() * sizeof(T));
    stream.synchronize();
    return buffer;
  }
  template <class T>
  std::vector<T> download_as(const Buffer& buffer, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    stream.copy(values.data(), buffer.data(), values.size() * sizeof(T));
    stream.synchronize();
    return values;
  }

  // Downloads into `plane`; does nothing if it is empty.
  template <class T>
  void fetch(std::vector<T>& plane, const Buffer& from) {
    if (!plane.empty()) plane = download_as<T>(from, std::ssize(plane));
  }

  // Enqueues `call` and waits; stores the time of one call in `seconds`.
  template <class Call>
  void launch(double& seconds, const Call& call) {
    const double start = now_s();
    for (int i = 0; i < repeat_; ++i) call();
    stream.synchronize();
    seconds = (now_s() - start) / repeat_;
  }

 private:
  static int64_t offset(const Tensor& tensor, const View& part) {
    return static_cast<const std::byte*>(part.data) - tensor.buffer.data();
  }
  std::vector<std::byte> download(const Tensor& tensor) {
    return download_as<std::byte>(tensor.buffer, static_cast<int64_t>(tensor.buffer.bytes()));
  }

  int repeat_;
  uint64_t seed_ = 0;
  uint64_t purpose_ = 0;
};

template <class T>
T* pointer(const Buffer& buffer) {
  return reinterpret_cast<T*>(buffer.data());
}

inline Vector to_vector(const std::vector<int32_t>& values) { return Vector(values.begin(), values.end()); }
inline Vector to_vector(const std::vector<int64_t>& values) { return Vector(values.begin(), values.end()); }
inline Vector to_vector(const std::vector<float>& values) { return Vector(values.begin(), values.end()); }

}  // namespace megatrain::testing
