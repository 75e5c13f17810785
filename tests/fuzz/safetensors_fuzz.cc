// Any bytes as a file are either refused with an Error, or every tensor can be read whole.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megatrain;
  try {
    const auto contents =
        parse_safetensors(reinterpret_cast<const std::byte*>(data), static_cast<int64_t>(size), "fuzz.safetensors");
    for (const StoredTensor& tensor : contents.tensors) {
      const std::byte* const end = reinterpret_cast<const std::byte*>(data) + size;
      if (tensor.bytes < 0 || tensor.data > end || tensor.bytes > end - tensor.data) __builtin_trap();
      if (!parameter_type(tensor.dtype)) continue;
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      read_as_f32(tensor, 0, tensor.elements(), values.data());
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) __builtin_trap();
  }
  return 0;
}
