#include "megatrain/hub/safetensors_writer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/stored_type.h"
#include "megatrain/io/json.h"

namespace megatrain {
namespace {

constexpr int64_t kHeaderLengthBytes = 8;
constexpr int64_t kDataAlign = 64;
constexpr int64_t kChunkElements = int64_t{1} << 18;

std::string json_text(const std::string& text) { return nlohmann::json(text).dump(); }

std::string header_entry(const TensorDeclaration& tensor, int64_t begin, int64_t end) {
  return fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}", json_text(tensor.name),
                     stored_type_name(tensor.type()), nlohmann::json(tensor.shape).dump(), begin, end);
}

}  // namespace

int64_t TensorDeclaration::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) {
    ensure(size >= 0 && !__builtin_mul_overflow(count, size, &count), "a declared shape fits 64 bits");
  }
  return count;
}

int64_t header_entry_bytes(const TensorDeclaration& tensor) {
  constexpr int64_t kLongest = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(header_entry(tensor, kLongest, kLongest).size()) + 1;  // plus a comma
}

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<TensorDeclaration> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)), partial_(path_ + ".partial") {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorDeclaration& a, const TensorDeclaration& b) {
    return stored_type_bytes(a.type()) > stored_type_bytes(b.type());
  });
  std::string header = "{";
  if (!metadata.empty()) header += "\"__metadata__\":" + nlohmann::json(metadata).dump();
  int64_t data_bytes = 0;
  for (const TensorDeclaration& tensor : tensors) {
    const int64_t end = data_bytes + tensor.bytes();
    if (header.size() > 1) header += ',';
    header += header_entry(tensor, data_bytes, end);
    const bool fresh = slots_.emplace(tensor.name, Slot{tensor, data_bytes, {}}).second;
    if (!fresh || tensor.name == "__metadata__") {
      fail_internal(
          fmt::format("tensor {} of {} is declared twice or under a reserved name", printable(tensor.name), path_));
    }
    data_bytes = end;
  }
  header += '}';
  const int64_t data_begin = round_up(kHeaderLengthBytes + static_cast<int64_t>(header.size()), kDataAlign);
  header.resize(static_cast<size_t>(data_begin - kHeaderLengthBytes), ' ');
  for (auto& [name, slot] : slots_) slot.begin += data_begin;
  file_bytes_ = data_begin + data_bytes;

  std::byte length[kHeaderLengthBytes];
  for (int i = 0; i < kHeaderLengthBytes; ++i) length[i] = static_cast<std::byte>((header.size() >> (8 * i)) & 0xFF);
  file_ = File::create(partial_.path());
  partial_.created();
  file_.reserve(file_bytes_);
  file_.write_at(0, length, kHeaderLengthBytes);
  file_.write_at(kHeaderLengthBytes, header.data(), static_cast<int64_t>(header.size()));
}

SafetensorsWriter::Slot& SafetensorsWriter::slot_of(const std::string& name) {
  const auto found = slots_.find(name);
  if (found == slots_.end())
    fail_internal(fmt::format("{} was given tensor {}, never declared", path_, printable(name)));
  return found->second;
}

void SafetensorsWriter::write(const std::string& name, int64_t byte_offset, const void* data, int64_t bytes) {
  Slot& slot = slot_of(name);
  const int64_t size = slot.tensor.bytes();
  if (byte_offset < 0 || bytes < 0 || bytes > size || byte_offset > size - bytes) {
    fail_internal(fmt::format("bytes [{}, +{}) were written to tensor {} of {}, which has {}", byte_offset, bytes,
                              printable(name), path_, size));
  }
  file_.write_at(slot.begin + byte_offset, data, bytes);
  note_written(slot, byte_offset, byte_offset + bytes);
}

void SafetensorsWriter::write_f32(const std::string& name, int64_t element_offset, const float* data, int64_t count) {
  const DType type = slot_of(name).tensor.dtype;
  const int64_t width = dtype_bytes(type);
  if (type == DType::f32) return write(name, element_offset * width, data, count * width);
  const auto buffer = std::make_unique<std::byte[]>(static_cast<size_t>(std::min(count, kChunkElements) * width));
  for (int64_t done = 0; done < count; done += kChunkElements) {
    const int64_t chunk = std::min(count - done, kChunkElements);
    write_from_f32(data + done, chunk, type, buffer.get());
    write(name, (element_offset + done) * width, buffer.get(), chunk * width);
  }
}

void SafetensorsWriter::note_written(Slot& slot, int64_t begin, int64_t end) {
  if (begin == end) return;
  const std::lock_guard lock(mutex_);
  auto next = slot.written.lower_bound(begin);
  auto previous = next == slot.written.begin() ? slot.written.end() : std::prev(next);
  const bool overlaps =
      (next != slot.written.end() && next->first < end) || (previous != slot.written.end() && previous->second > begin);
  if (overlaps) {
    fail_internal(fmt::format("bytes [{}, {}) of tensor {} of {} were written twice", begin, end,
                              printable(slot.tensor.name), path_));
  }
  if (next != slot.written.end() && next->first == end) {
    end = next->second;
    slot.written.erase(next);
  }
  if (previous != slot.written.end() && previous->second == begin) {
    previous->second = end;
  } else {
    slot.written.emplace(begin, end);
  }
}

void SafetensorsWriter::finish() {
  for (const auto& [name, slot] : slots_) {
    const int64_t size = slot.tensor.bytes();
    const bool whole = size == 0 || (slot.written.size() == 1 && slot.written.begin()->first == 0 &&
                                     slot.written.begin()->second == size);
    if (!whole) fail_internal(fmt::format("tensor {} of {} was not written whole", printable(name), path_));
  }
  file_.sync();
  file_.close();
  partial_.put_at(path_);
}

}  // namespace megatrain
