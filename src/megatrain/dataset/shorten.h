// Cuts conversations that are longer than a sequence, turn by turn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace megatrain {

// Cuts the entries of a SampleStore's conversation to at most `most`, as LLaMA-Factory does. A turn is its untrained
// part (prompt) and the trained part after it (answer). Turns take space in order, and each keeps the beginning of both
// parts. An answer gets
// - all it needs, if that is less than half of the space
// - otherwise what the prompt leaves, if the prompt needs less than half
// - otherwise its share by length
//
// With `recent`, the end of a prompt is kept instead of its beginning, as it is next to the answer.
void shorten_turns(std::span<const uint32_t> entries, int64_t most, bool recent, std::vector<uint32_t>& into);

}  // namespace megatrain
