#include "megatrain/gguf/gguf_file.h"

#include <bit>
#include <type_traits>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/base/units.h"

namespace megatrain {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kVersion = 3;
constexpr int64_t kAlignment = 32;  // the default when general.alignment is absent

// The format's numbers for value types.
enum class ValueKind : uint32_t { uint32 = 4, int32 = 5, float32 = 6, boolean = 7, string = 8, array = 9 };

static_assert(std::endian::native == std::endian::little, "GGUF is written as memory holds it");

class Header {
 public:
  template <typename T>
  void number(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void string(std::string_view value) {
    number(static_cast<uint64_t>(value.size()));
    text_ += value;
  }
  void kind(ValueKind kind) { number(static_cast<uint32_t>(kind)); }

  void value(uint32_t v) { kind(ValueKind::uint32), number(v); }
  void value(int32_t v) { kind(ValueKind::int32), number(v); }
  void value(float v) { kind(ValueKind::float32), number(v); }
  void value(bool v) { kind(ValueKind::boolean), number(static_cast<uint8_t>(v)); }
  void value(const std::string& v) { kind(ValueKind::string), string(v); }
  void value(const std::vector<std::string>& v) {
    array(ValueKind::string, v.size());
    for (const std::string& item : v) string(item);
  }
  void value(const std::vector<float>& v) {
    array(ValueKind::float32, v.size());
    for (const float item : v) number(item);
  }
  void value(const std::vector<int32_t>& v) {
    array(ValueKind::int32, v.size());
    for (const int32_t item : v) number(item);
  }

  void pad() { text_.resize(static_cast<size_t>(round_up(std::ssize(text_), kAlignment)), '\0'); }
  const std::string& text() const { return text_; }

 private:
  void array(ValueKind of, size_t count) {
    kind(ValueKind::array);
    kind(of);
    number(static_cast<uint64_t>(count));
  }

  std::string text_;
};

}  // namespace

void GgufMetadata::add(std::string key, GgufValue value) {
  ensure(find(key) == nullptr, "a key of GGUF's metadata is written once");
  entries_.emplace_back(std::move(key), std::move(value));
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  for (const auto& [name, value] : entries_) {
    if (name == key) return &value;
  }
  return nullptr;
}

int64_t GgufTensorEntry::elements() const {
  int64_t matmul = 1;
  for (const int64_t size : shape) matmul *= size;
  return matmul;
}

GgufFile::GgufFile(const std::string& path, const GgufMetadata& metadata, const std::vector<GgufTensorEntry>& tensors)
    : output_(path) {
  Header header;
  header.number(kMagic);
  header.number(kVersion);
  header.number(static_cast<uint64_t>(tensors.size()));
  header.number(static_cast<uint64_t>(metadata.entries().size()));
  for (const auto& [key, value] : metadata.entries()) {
    header.string(key);
    std::visit([&](const auto& v) { header.value(v); }, value);
  }
  int64_t offset = 0;  // from the start of the tensor data
  for (const GgufTensorEntry& tensor : tensors) {
    header.string(tensor.name);
    header.number(static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      header.number(static_cast<uint64_t>(*size));
    header.number(gguf_type_number(tensor.type));
    header.number(static_cast<uint64_t>(offset));
    tensors_.push_back({offset, offset + tensor.bytes()});
    offset = round_up(tensors_.back().end, kAlignment);
  }
  header.pad();
  const int64_t begin = std::ssize(header.text());
  for (Range& tensor : tensors_) {
    tensor.next += begin;
    tensor.end += begin;
  }
  end_ = begin + offset;

  file_ = File::create(output_.path());
  file_.reserve(end_);  // gaps, and the padding after the last tensor, read as zeros
  file_.write_at(0, header.text().data(), begin);
}

void GgufFile::write(size_t tensor, const std::vector<std::byte>& bytes) {
  Range& range = tensors_.at(tensor);
  ensure(range.next + std::ssize(bytes) <= range.end, "a tensor of a GGUF file has the bytes that its entry says");
  file_.write_at(range.next, bytes.data(), std::ssize(bytes));
  range.next += std::ssize(bytes);
}

void GgufFile::finish() {
  for (const Range& range : tensors_) ensure(range.next == range.end, "every byte of a GGUF file was written");
  file_.sync();
  file_.close();
  output_.put_in_place();
}

}  // namespace megatrain
