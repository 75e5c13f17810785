// Reads a GGUF file for tests, from the format's description and without the code that writes it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "megatrain/io/json.h"
#include "tests/support/fixtures.h"

namespace megatrain {

struct ReadTensor {
  std::vector<int64_t> shape;  // the contiguous dimension first, as in the file
  uint32_t type = 0;
  std::vector<double> values;  // decoded
  std::string bytes;
};

struct ReadGguf {
  nlohmann::json metadata;
  std::vector<std::string> keys;  // in order
  std::map<std::string, ReadTensor> tensors;
};

inline double fp16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

class GgufBytes {
 public:
  explicit GgufBytes(std::string bytes) : bytes_(std::move(bytes)) {}
  template <typename T>
  T number() {
    T value{};
    std::memcpy(&value, part(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return part(number<uint64_t>()); }
  std::string part(uint64_t size) {
    if (size > bytes_.size() - at_) throw std::runtime_error("the file ends too early");
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  nlohmann::json value(uint32_t kind) {
    switch (kind) {
      case 4: return number<uint32_t>();
      case 5: return number<int32_t>();
      case 6: return number<float>();
      case 7: return number<uint8_t>() != 0;
      case 8: return text();
      case 9: {
        const auto of = number<uint32_t>();
        nlohmann::json items = nlohmann::json::array();
        for (uint64_t left = number<uint64_t>(); left > 0; --left) items.push_back(value(of));
        return items;
      }
      default: throw std::runtime_error("a value of an unknown kind");
    }
  }
  uint64_t at() const { return at_; }
  uint64_t size() const { return bytes_.size(); }
  std::string at(uint64_t begin, uint64_t size) const { return bytes_.substr(begin, size); }

 private:
  std::string bytes_;
  uint64_t at_ = 0;
};

// Decodes the values of a tensor by type: 0 f32, 1 f16, 8 q8_0, 30 bf16.
inline std::vector<double> decode_values(const std::string& bytes, uint32_t type) {
  std::vector<double> values;
  const auto half = [&](size_t at) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, 2);
    return bits;
  };
  if (type == 0) {
    std::vector<float> floats(bytes.size() / 4);
    std::memcpy(floats.data(), bytes.data(), bytes.size());
    values.assign(floats.begin(), floats.end());
  }
  for (size_t at = 0; (type == 1 || type == 30) && at < bytes.size(); at += 2) {
    const uint32_t wide = uint32_t{half(at)} << 16;
    float as_bf16 = 0;
    std::memcpy(&as_bf16, &wide, 4);
    values.push_back(type == 1 ? fp16_value(half(at)) : as_bf16);
  }
  for (size_t at = 0; type == 8 && at < bytes.size(); at += 34) {
    for (size_t i = 0; i < 32; ++i)
      values.push_back(fp16_value(half(at)) * static_cast<double>(static_cast<int8_t>(bytes[at + 2 + i])));
  }
  return values;
}

inline ReadGguf read_gguf(const std::string& path) {
  GgufBytes in(read_bytes(path));
  EXPECT_EQ(in.part(4), "GGUF");
  EXPECT_EQ(in.number<uint32_t>(), 3u);
  const auto tensors = in.number<uint64_t>(), keys = in.number<uint64_t>();
  ReadGguf file;
  for (uint64_t i = 0; i < keys; ++i) {
    file.keys.push_back(in.text());
    const auto kind = in.number<uint32_t>();
    file.metadata[file.keys.back()] = in.value(kind);
  }
  std::vector<std::pair<std::string, uint64_t>> offsets;
  for (uint64_t i = 0; i < tensors; ++i) {
    const std::string name = in.text();
    ReadTensor& tensor = file.tensors[name];
    for (uint32_t left = in.number<uint32_t>(); left > 0; --left)
      tensor.shape.push_back(static_cast<int64_t>(in.number<uint64_t>()));
    tensor.type = in.number<uint32_t>();
    offsets.emplace_back(name, in.number<uint64_t>());
  }
  const uint64_t data = (in.at() + 31) / 32 * 32;
  for (const auto& [name, offset] : offsets) {
    ReadTensor& tensor = file.tensors[name];
    uint64_t count = 1;
    for (const int64_t size : tensor.shape) count *= static_cast<uint64_t>(size);
    const uint64_t bytes = tensor.type == 0 ? 4 * count : tensor.type == 8 ? count / 32 * 34 : 2 * count;
    EXPECT_EQ(offset % 32, 0u) << name;
    EXPECT_LE(data + offset + bytes, in.size()) << name;
    tensor.bytes = in.at(data + offset, bytes);
    tensor.values = decode_values(tensor.bytes, tensor.type);
  }
  return file;
}

}  // namespace megatrain
