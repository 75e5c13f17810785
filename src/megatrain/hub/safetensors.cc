#include "megatrain/hub/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/io/json_file.h"

namespace megatrain {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kShownCharacters = 120;
constexpr const char* kAdvice = "the file is damaged or not a safetensors file: download it again";
constexpr std::string_view kLfsPointer = "version https://git-lfs";

[[noreturn]] void refuse(const std::string& path, const std::string& finding) {
  fail_input(fmt::format("{} {}; {}.", path, finding, kAdvice));
}

[[noreturn]] void refuse_tensor(const std::string& path, const std::string& name, const std::string& finding) {
  fail_input(fmt::format("{}: tensor {} {}; {}.", path, printable(name), finding, kAdvice));
}

// JSON text for a message, shortened if long.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > kShownCharacters) text = text.substr(0, kShownCharacters) + "...";
  return text;
}

// A JSON integer in [0, 2^63), read without going through a double.
std::optional<int64_t> whole_number(const Json& value) {
  if (!value.is_number_unsigned()) return {};
  const uint64_t number = value.get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return {};
  return static_cast<int64_t>(number);
}

// Where a tensor is in the data buffer.
struct Extent {
  int64_t begin = 0;
  int64_t end = 0;
  size_t tensor = 0;
};

class HeaderReader {
 public:
  HeaderReader(const std::byte* data, int64_t data_bytes, const std::string& path)
      : data_(data), data_bytes_(data_bytes), path_(path) {}

  SafetensorsContents read(const Json& header) {
    if (!header.is_object()) refuse(path_, "has a header that is not a JSON object");
    for (const auto& [key, value] : header.items()) {
      if (key == "__metadata__") {
        read_metadata(value);
      } else {
        read_tensor(key, value);
      }
    }
    check_tiling();
    for (const Extent& extent : extents_) contents_.tensors[extent.tensor].data = data_ + extent.begin;
    std::sort(contents_.tensors.begin(), contents_.tensors.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
    return std::move(contents_);
  }

 private:
  void read_metadata(const Json& value) {
    if (!value.is_object()) {
      refuse(path_, fmt::format("has a __metadata__ of {}, expected an object of strings", shown(value)));
    }
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        refuse(path_, fmt::format("has {} under {} in __metadata__, expected a string", shown(text), printable(key)));
      }
      contents_.metadata[key] = text.get<std::string>();
    }
  }

  void read_tensor(const std::string& name, const Json& entry) {
    if (!entry.is_object()) {
      refuse_tensor(path_, name, fmt::format("is described by {}, expected an object", shown(entry)));
    }
    for (const auto& [key, value] : entry.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        refuse_tensor(path_, name, fmt::format("has the unknown field {}", printable(key)));
      }
    }
    StoredTensor tensor;
    tensor.name = name;
    tensor.dtype = read_type(name, field(name, entry, "dtype"));
    const int64_t expected_bytes = read_shape(tensor, field(name, entry, "shape"));
    const Extent extent = read_offsets(name, field(name, entry, "data_offsets"));
    tensor.bytes = extent.end - extent.begin;
    if (tensor.bytes != expected_bytes) {
      refuse_tensor(path_, name,
                    fmt::format("has data_offsets [{}, {}], which are {} bytes, but its shape {} of {} takes {}",
                                extent.begin, extent.end, tensor.bytes, format_shape(tensor.shape),
                                stored_type_name(tensor.dtype), expected_bytes));
    }
    extents_.push_back({extent.begin, extent.end, contents_.tensors.size()});
    contents_.tensors.push_back(std::move(tensor));
  }

  const Json& field(const std::string& name, const Json& entry, const char* key) {
    const auto found = entry.find(key);
    if (found == entry.end()) refuse_tensor(path_, name, fmt::format("has no field \"{}\"", key));
    return *found;
  }

  StoredType read_type(const std::string& name, const Json& value) {
    const std::optional<StoredType> type =
        value.is_string() ? parse_stored_type(value.get_ref<const std::string&>()) : std::nullopt;
    if (!type) {
      fail_input(fmt::format(
          "{}: tensor {} has the dtype {}, which is not one that megatrain knows (F64 F32 F16 BF16 I64 I32 I16 I8 U64 "
          "U32 U16 U8 BOOL F8_E4M3 F8_E5M2); convert the model to BF16, or download the file again.",
          path_, printable(name), shown(value)));
    }
    return *type;
  }

  // Returns the size in bytes of the shape.
  int64_t read_shape(StoredTensor& tensor, const Json& value) {
    if (!value.is_array()) {
      refuse_tensor(path_, tensor.name, fmt::format("has a shape of {}, expected a list", shown(value)));
    }
    int64_t bytes = stored_type_bytes(tensor.dtype);
    for (const Json& size : value) {
      const std::optional<int64_t> number = whole_number(size);
      if (!number) {
        refuse_tensor(path_, tensor.name, fmt::format("has {} in its shape, expected a whole number", shown(size)));
      }
      if (__builtin_mul_overflow(bytes, *number, &bytes)) {
        refuse_tensor(path_, tensor.name,
                      fmt::format("has a shape of {}, whose size in bytes is more than 64 bits hold", shown(value)));
      }
      tensor.shape.push_back(*number);
    }
    return bytes;
  }

  Extent read_offsets(const std::string& name, const Json& value) {
    const bool pair = value.is_array() && value.size() == 2;
    const std::optional<int64_t> begin = pair ? whole_number(value[0]) : std::nullopt;
    const std::optional<int64_t> end = pair ? whole_number(value[1]) : std::nullopt;
    if (!begin || !end) {
      refuse_tensor(path_, name, fmt::format("has data_offsets of {}, expected two whole numbers", shown(value)));
    }
    if (*end < *begin) {
      refuse_tensor(path_, name,
                    fmt::format("has data_offsets [{}, {}], whose end comes before the begin", *begin, *end));
    }
    return {*begin, *end};
  }

  // Sorted by offset, the tensors must tile the data from 0 to the end of the file.
  void check_tiling() {
    std::sort(extents_.begin(), extents_.end(),
              [](const Extent& a, const Extent& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    int64_t reached = 0;
    for (const Extent& extent : extents_) {
      const std::string& name = contents_.tensors[extent.tensor].name;
      if (extent.begin != reached) {
        refuse_tensor(path_, name,
                      fmt::format("begins at offset {}, but the tensor before it ends at {}: the two {}", extent.begin,
                                  reached, extent.begin < reached ? "overlap" : "leave a hole"));
      }
      if (extent.end > data_bytes_) {
        refuse_tensor(path_, name,
                      fmt::format("ends at offset {} of the data, but the file holds only {} bytes of data (it is cut "
                                  "short)",
                                  extent.end, data_bytes_));
      }
      reached = extent.end;
    }
    if (reached != data_bytes_) {
      refuse(path_, fmt::format("holds {} bytes of data, but its tensors end at {}", data_bytes_, reached));
    }
  }

  const std::byte* data_;
  int64_t data_bytes_;
  const std::string& path_;
  SafetensorsContents contents_;
  std::vector<Extent> extents_;
};

}  // namespace

SafetensorsContents parse_safetensors(const std::byte* file, int64_t bytes, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(file), static_cast<size_t>(bytes));
  if (text.starts_with(kLfsPointer)) {
    fail_input(fmt::format("{} is a Git LFS pointer, not the file itself; run `git lfs pull` in its directory.", path));
  }
  if (bytes < kLengthBytes) {
    refuse(path, fmt::format("has {} bytes, but the length of its header takes {}", bytes, kLengthBytes));
  }
  uint64_t header_bytes = 0;
  for (int i = 0; i < kLengthBytes; ++i) header_bytes |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  if (header_bytes > static_cast<uint64_t>(kMaxHeaderBytes)) {
    refuse(path,
           fmt::format("says that its header has {} bytes, but at most {} are allowed", header_bytes, kMaxHeaderBytes));
  }
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(header_bytes);
  if (data_begin > bytes) {
    refuse(path, fmt::format("says that its header has {} bytes, but the file ends {} bytes after the length (it is "
                             "cut short)",
                             header_bytes, bytes - kLengthBytes));
  }
  const std::string_view header = text.substr(kLengthBytes, header_bytes);
  if (!header.starts_with('{')) refuse(path, "has a header that does not begin with '{'");
  return HeaderReader(file + data_begin, bytes - data_begin, path)
      .read(parse_json(header, "the header of " + path, kAdvice));
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path), contents_(parse_safetensors(file_.data(), file_.bytes(), path)) {}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : tensors()) names.push_back(tensor.name);
  return names;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors().begin(), tensors().end(), name,
                       [](const StoredTensor& tensor, std::string_view key) { return tensor.name < key; });
  return found != tensors().end() && found->name == name ? &*found : nullptr;
}

std::string format_shape(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + ")";
}

void release_pages(const StoredTensor& tensor, int64_t begin, int64_t count) {
  const int64_t width = stored_type_bytes(tensor.dtype);
  release_pages({.name = {}, .shape = {}, .data = tensor.data + begin * width, .bytes = count * width});
}

void release_pages(const StoredTensor& tensor) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.data));
  const int64_t begin = round_up(address, page);
  const int64_t end = (address + tensor.bytes) / page * page;
  // Pages shared with a neighbour are kept. If madvise fails, that costs memory, not correctness.
  if (begin < end) {
    ::madvise(const_cast<std::byte*>(tensor.data) + (begin - address), static_cast<size_t>(end - begin), MADV_DONTNEED);
  }
}

}  // namespace megatrain
