// The element types of a GGUF file, and the conversion from fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

enum class GgufType : uint8_t { f32, f16, bf16, q8_0 };

inline constexpr uint32_t kQuantizationVersion = 2;  // of ggml's block layout
inline constexpr int64_t kQ8Block = 32;              // values that share a scale
inline constexpr int64_t kQ8BlockBytes = 34;         // one fp16 scale, then a signed byte per value

// "q8_0"; empty if it is not a type that a file can be written in.
std::optional<GgufType> parse_gguf_type(std::string_view name);
const char* gguf_type_name(GgufType type);
uint32_t gguf_type_number(GgufType type);  // in a tensor's table entry
uint32_t gguf_file_type(GgufType type);    // general.file_type of a file that is mostly of this type

// `type`, or the substitute for rows of this length: fp16 if they are not a multiple of q8_0's block.
GgufType type_for_rows(GgufType type, int64_t cols);

// For q8_0, `count` must be a multiple of kQ8Block.
int64_t gguf_bytes(GgufType type, int64_t count);

// fp16 and bf16 round to nearest even. A q8_0 block has the scale max|x| / 127 in fp16. Its values are x times the
// inverse of the scale in fp32, rounded to nearest with halves away from zero: bit for bit ggml's reference
// quantisation. Throws Error(bad_input) with `name` for values that are not finite, and for those that fp16 or an fp16
// scale cannot hold.
void encode_gguf(const float* values, int64_t count, GgufType type, const std::string& name,
                 std::vector<std::byte>& out);

}  // namespace megatrain
