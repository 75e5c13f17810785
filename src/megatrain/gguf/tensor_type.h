// The element types that a GGUF file is written in, and fp32 values turned into each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

enum class GgufType : uint8_t { f32, f16, bf16, q8_0 };

inline constexpr int64_t kQ8Block = 32;       // numbers that share a scale
inline constexpr int64_t kQ8BlockBytes = 34;  // a scale in fp16, then a signed byte a number

// "q8_0"; empty when a file cannot be asked for in this type.
std::optional<GgufType> parse_gguf_type(std::string_view name);
const char* gguf_type_name(GgufType type);
uint32_t gguf_type_number(GgufType type);  // in a tensor's entry
uint32_t gguf_file_type(GgufType type);    // general.file_type of a file that is mostly of it

// `type`, or what stands for it in rows of this many numbers: fp16 where q8_0's blocks do not fill them.
GgufType type_for_rows(GgufType type, int64_t cols);

// `count` is a multiple of kQ8Block for q8_0.
int64_t gguf_bytes(GgufType type, int64_t count);

// fp16 and bf16 round to nearest even. A block of q8_0 has the scale max|x| / 127 in fp16, and its numbers are x times
// the inverse of the scale in fp32, rounded to nearest with halves away from zero: bit for bit what ggml's reference
// quantisation gives. Throws Error(bad_input) with `name` for values that are not finite, and for those that fp16 or a
// scale in fp16 cannot hold.
void encode_gguf(const float* values, int64_t count, GgufType type, const std::string& name,
                 std::vector<std::byte>& out);

}  // namespace megatrain
